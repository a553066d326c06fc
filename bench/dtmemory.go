package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"sheaf/batching"
	"sheaf/bench/run"
	"sheaf/peer"
)

// The dtmemory workload: the ordered merge holds nothing back, so what a batch costs
// the Designated Target must not grow with the batch, nor with a client that is slow.
const (
	dtEntries   = 1000
	dtSize      = 1 << 20
	dtSlow      = 20 << 20 // bytes a second
	dtSampling  = 40 * time.Millisecond
	dtQuiet     = 1500 * time.Millisecond // of samples before and after
	dtBucket    = "big"
	residentKey = "process_resident_memory_bytes"
	heapKey     = "go_memstats_heap_inuse_bytes"
	batchesKey  = "sheaf_getbatch_inflight"
)

// dtNodes are three processes with their data. They keep their addresses.
type dtNodes struct {
	home  *run.Home
	addrs []string // empty before the first start
	nodes []*run.Service
}

func (d *dtNodes) start(ctx context.Context) error {
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		args := []string{"serve", "--name", name, "--dir", d.home.Path(name), "--log-level", "warn"}
		if len(d.addrs) == 3 {
			args = append(args, "--listen", d.addrs[i])
		} else {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		if i > 0 {
			args = append(args, "--join", d.addrs[0])
		}
		s, err := d.home.Start(ctx, args...)
		if err != nil {
			return err
		}
		d.nodes = append(d.nodes, s)
		if len(d.addrs) < 3 {
			d.addrs = append(d.addrs, s.Endpoint())
		}
	}
	return nil
}

func (d *dtNodes) stop() error {
	var all []error
	for _, s := range slices.Backward(d.nodes) {
		all = append(all, s.Stop())
	}
	d.nodes = nil
	return errors.Join(all...)
}

// connect waits until the cluster's map has all nodes.
func (d *dtNodes) connect(ctx context.Context) (*client, error) {
	c, err := connect(ctx, d.home.Certs(), d.addrs[0])
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(30 * time.Second); len(c.Map().Nodes) < 3; {
		if time.Now().After(end) {
			c.Close()
			return nil, errors.New("the nodes don't find each other")
		}
		time.Sleep(100 * time.Millisecond)
		if err := c.Refresh(ctx); err != nil {
			c.Close()
			return nil, err
		}
	}
	return c, nil
}

// dtCase is one variant: so many entries, read at a rate (0: as fast as they come).
type dtCase struct {
	name    string
	entries int
	rate    int64
	rounds  int

	base, peak, growth, heapBase, heapPeak, after, seconds, speed, perSecond []float64
}

func runDTMemory(ctx context.Context, o options) (_ *Result, err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, err := h.Sheaf(ctx, "cert", "init"); err != nil {
		return nil, err
	}
	d := &dtNodes{home: h}
	if err := d.load(ctx); err != nil {
		return nil, err
	}
	cases := []*dtCase{
		{name: "100 entries", entries: 100, rounds: min(o.Rounds, 3)},
		{name: "1000 entries", entries: dtEntries, rounds: min(o.Rounds, 3)},
		{name: "1000 entries, client reads 20 MiB/s", entries: dtEntries, rate: dtSlow, rounds: 1},
	}
	for round := range o.Rounds {
		for _, c := range cases {
			if round >= c.rounds {
				continue
			}
			if err := d.measure(ctx, c); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	r := &Result{Params: map[string]string{"bytes an entry": fmt.Sprint(dtSize), "nodes": "3, each a process", "strm": "true",
		"sampled every": dtSampling.String(), "before each round": "all nodes restarted, one batch of 8 entries"}}
	for _, c := range cases {
		r.Cases = append(r.Cases, Case{Name: c.name, Figures: []Figure{
			figure("RSS before", "MiB", c.base), figure("peak", "MiB", c.peak), figure("growth", "MiB", c.growth), figure("1.5 s after", "MiB", c.after),
			figure("heap before", "MiB", c.heapBase), figure("heap peak", "MiB", c.heapPeak),
			figure("time", "s", c.seconds), figure("rate", "MB/s", c.speed), figure("samples", "/s", c.perSecond),
		}})
	}
	small, large, slow := cases[0], cases[1], cases[2]
	r.Ratios = []Ratio{
		{What: "payload of the batch of 1000 entries / growth of the DT", Value: dtEntries / summarize(large.growth).Median},
		ratio("growth with 1000 entries / with 100", large.growth, small.growth),
		ratio("growth with a slow client / a fast one", slow.growth, large.growth),
	}
	return r, nil
}

func (d *dtNodes) load(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	c, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.putAll(ctx, dtBucket, dtEntries, func(i int) (string, []byte) { return dtName(i), content(i, dtSize) })
}

func dtName(i int) string { return fmt.Sprintf("%04d", i) }

// dtRequest makes a batch whose Designated Target is node n.
func dtRequest(m *peer.Map, n, entries int) *batching.Request {
	req := &batching.Request{Bucket: dtBucket}
	for req.ID = batching.NewID(); m.Owner(peer.HashKey(req.ID)) != n; {
		req.ID = batching.NewID()
	}
	for i := range entries {
		req.In = append(req.In, batching.Entry{ObjName: dtName(i)})
	}
	return req
}

// measure runs one batch on nodes that have just been started.
func (d *dtNodes) measure(ctx context.Context, c *dtCase) (err error) {
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	cl, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	const dt = 1
	m := cl.Map()
	if _, err := cl.fetch(ctx, dtRequest(m, dt, 8), 8*dtSize, io.Discard); err != nil { // connections
		return err
	}
	runtime.GC()
	s := startSampler(ctx, "http://"+m.Nodes[dt].Admin+"/metrics")
	defer s.stop()
	if err := sleep(ctx, dtQuiet); err != nil {
		return err
	}
	from := time.Now()
	t, err := cl.fetch(ctx, dtRequest(m, dt, c.entries), int64(c.entries)*dtSize, &paced{start: from, rate: c.rate})
	if err != nil {
		return err
	}
	to := time.Now()
	if err := sleep(ctx, dtQuiet); err != nil {
		return err
	}
	samples, err := s.stop()
	if err != nil {
		return err
	}
	const mib = 1 << 20
	var base, after, heapBase []float64
	var peak, heapPeak float64
	during, assembling := 0, 0.0
	for _, x := range samples {
		switch {
		case x.at.Before(from):
			base, heapBase = append(base, x.resident/mib), append(heapBase, x.heap/mib)
		case x.at.After(to):
			after = append(after, x.resident/mib)
		default:
			during++
			peak, heapPeak, assembling = max(peak, x.resident/mib), max(heapPeak, x.heap/mib), max(assembling, x.batches)
		}
	}
	if during == 0 || assembling == 0 {
		return fmt.Errorf("%d samples during the batch, %v batches assembled by %s: this is not what was to be measured", during, assembling, m.Nodes[dt].Name)
	}
	b := summarize(base).Median
	c.base, c.peak, c.growth = append(c.base, b), append(c.peak, peak), append(c.growth, peak-b)
	c.heapBase, c.heapPeak = append(c.heapBase, summarize(heapBase).Median), append(c.heapPeak, heapPeak)
	c.after = append(c.after, summarize(after).Median)
	c.seconds = append(c.seconds, t.Last.Seconds())
	c.speed = append(c.speed, float64(c.entries)*dtSize/1e6/t.Last.Seconds())
	c.perSecond = append(c.perSecond, float64(during)/t.Last.Seconds())
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// paced takes bytes at a rate, from its start on; 0 is as fast as they come.
type paced struct {
	start time.Time
	rate  int64 // bytes a second
	n     int64
}

// Write implements io.Writer.
func (p *paced) Write(b []byte) (int, error) {
	p.n += int64(len(b))
	if p.rate > 0 {
		time.Sleep(time.Until(p.start.Add(time.Duration(float64(p.n) / float64(p.rate) * float64(time.Second)))))
	}
	return len(b), nil
}

// memory is one sample of a node's metrics.
type memory struct {
	at             time.Time
	resident, heap float64 // bytes
	batches        float64 // being assembled
}

// sampler reads a node's metrics all the time.
type sampler struct {
	cancel  context.CancelFunc
	done    chan struct{}
	samples []memory
	err     error
}

// startSampler begins. stop must follow.
func startSampler(ctx context.Context, url string) *sampler {
	ctx, cancel := context.WithCancel(ctx)
	s := &sampler{cancel: cancel, done: make(chan struct{})}
	go func() { // ends with stop
		defer close(s.done)
		tick := time.NewTicker(dtSampling)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			x, err := sample(ctx, url)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				s.err = err
				return
			}
			s.samples = append(s.samples, x)
		}
	}()
	return s
}

func (s *sampler) stop() ([]memory, error) {
	s.cancel()
	<-s.done
	return s.samples, s.err
}

func sample(ctx context.Context, url string) (memory, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return memory{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return memory{}, err
	}
	defer resp.Body.Close()
	x, err := parseMemory(resp.Body)
	x.at = time.Now()
	return x, err
}

// parseMemory reads a metrics page in Prometheus' text format.
func parseMemory(r io.Reader) (memory, error) {
	var m memory
	want := map[string]*float64{residentKey: &m.resident, heapKey: &m.heap, batchesKey: &m.batches}
	sc := bufio.NewScanner(r)
	for sc.Scan() {
		name, value, ok := strings.Cut(sc.Text(), " ")
		to := want[name]
		if !ok || to == nil {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return m, fmt.Errorf("metrics: %q", sc.Text())
		}
		*to = v
		delete(want, name)
	}
	if err := sc.Err(); err != nil {
		return m, err
	}
	for name := range want {
		return m, fmt.Errorf("the metrics have no %s", name)
	}
	return m, nil
}
