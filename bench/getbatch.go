package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sheaf/batching"
	"sheaf/bench/run"
	"sheaf/peer"
	"sheaf/server"
)

// The getbatch workload: what one request for many entries gains over many requests,
// by the size of the entries and the number of clients.
const (
	gbBatch     = 128
	gbClients   = 8
	gbParallel  = 8
	gbTime      = 1000 * time.Millisecond // of each case in each round
	gbPerShard  = 256
	gbBucketFmt = "s%d"
)

// gbKind is one kind of entries.
type gbKind struct {
	name    string
	size    int
	count   int // stored, to draw from
	members bool
	bucket  string
}

func gbKinds() []gbKind {
	return []gbKind{
		{name: "10 KiB objects", size: 10 << 10, count: 4096},
		{name: "100 KiB objects", size: 100 << 10, count: 1024},
		{name: "1 MiB objects", size: 1 << 20, count: 256},
		{name: "10 KiB members", size: 10 << 10, count: 4096, members: true},
	}
}

// entry is the i-th entry that was stored.
func (k gbKind) entry(i int) batching.Entry {
	if k.members {
		return batching.Entry{Bucket: k.bucket, ObjName: fmt.Sprintf("%03d.tar", i/gbPerShard), ArchPath: fmt.Sprintf("%03d.bin", i%gbPerShard)}
	}
	return batching.Entry{Bucket: k.bucket, ObjName: fmt.Sprintf("%05d", i)}
}

func (k gbKind) store(ctx context.Context, c *client) error {
	if !k.members {
		return c.putAll(ctx, k.bucket, k.count, func(i int) (string, []byte) { return k.entry(i).ObjName, content(i, k.size) })
	}
	return c.putAll(ctx, k.bucket, k.count/gbPerShard, func(s int) (string, []byte) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for i := s * gbPerShard; i < (s+1)*gbPerShard; i++ {
			// Writes to memory of names and sizes that fit don't fail.
			_ = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: k.entry(i).ArchPath, Mode: 0o644, Size: int64(k.size)})
			_, _ = w.Write(content(i, k.size))
		}
		_ = w.Close()
		return k.entry(s * gbPerShard).ObjName, b.Bytes()
	})
}

// gbMethod is one way to read a set of entries.
type gbMethod struct {
	name string
	read func(context.Context, *client, gbKind, []batching.Entry) error
}

func gbMethods() []gbMethod {
	return []gbMethod{
		{"GET one by one", func(ctx context.Context, c *client, k gbKind, in []batching.Entry) error {
			for i := range in {
				if err := k.get(ctx, c, &in[i]); err != nil {
					return err
				}
			}
			return nil
		}},
		{"GET 8 parallel", func(ctx context.Context, c *client, k gbKind, in []batching.Entry) error {
			var next atomic.Int64
			errs := make([]error, gbParallel)
			var wg sync.WaitGroup
			for w := range gbParallel {
				wg.Go(func() { // ends with the entries, or its first error
					for i := int(next.Add(1)) - 1; i < len(in) && errs[w] == nil; i = int(next.Add(1)) - 1 {
						errs[w] = k.get(ctx, c, &in[i])
					}
				})
			}
			wg.Wait()
			return errors.Join(errs...)
		}},
		{"GetBatch", func(ctx context.Context, c *client, k gbKind, in []batching.Entry) error {
			_, err := c.fetch(ctx, &batching.Request{In: in}, int64(len(in)*k.size), io.Discard)
			return err
		}},
	}
}

// get reads one entry to its end; the client checks its checksum.
func (k gbKind) get(ctx context.Context, c *client, e *batching.Entry) error {
	_, r, err := c.Get(ctx, e.Bucket, e.ObjName, peer.GetOptions{ArchPath: e.ArchPath})
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, r)
	if err = errors.Join(err, r.Close()); err == nil && n != int64(k.size) {
		err = fmt.Errorf("%s/%s: %d bytes, want %d", e.Bucket, e.ObjName, n, k.size)
	}
	return err
}

// gbCase is one row: a kind read by a method by so many clients.
type gbCase struct {
	kind    gbKind
	method  gbMethod
	clients int

	mu      sync.Mutex
	latency []float64 // ms, of each batch; guarded by mu
	rates   []float64 // entries a second, of each round
}

func runGetBatch(ctx context.Context, o options) (_ *Result, err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, err := h.Sheaf(ctx, "cert", "init"); err != nil {
		return nil, err
	}
	id, err := peer.LoadIdentity(h.Certs(), peer.NodeName)
	if err != nil {
		return nil, err
	}
	nodes, err := server.StartLocal(ctx, server.LocalOptions{Nodes: 3, Dir: h.Path("data"), Listen: "127.0.0.1:0", Identity: id})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, nodes.Close()) }()
	var clients []*client
	defer func() {
		for _, c := range clients {
			c.Close()
		}
	}()
	for range gbClients {
		c, err := connect(ctx, h.Certs(), nodes.Endpoint())
		if err != nil {
			return nil, err
		}
		clients = append(clients, c)
	}
	var cases []*gbCase
	for i, k := range gbKinds() {
		k.bucket = fmt.Sprintf(gbBucketFmt, i)
		if err := k.store(ctx, clients[0]); err != nil {
			return nil, err
		}
		for _, n := range []int{1, gbClients} {
			for _, m := range gbMethods() {
				cases = append(cases, &gbCase{kind: k, method: m, clients: n})
			}
		}
	}
	for _, c := range cases { // opens connections, reads indexes
		if _, err := c.batches(ctx, clients, 0, 0); err != nil {
			return nil, err
		}
		c.latency = nil
	}
	for round := range o.Rounds {
		for _, c := range cases {
			if err := c.measure(ctx, clients, round); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.kind.name, c.method.name, err)
			}
		}
	}
	return gbResult(o, cases), nil
}

// measure is one round of a case.
func (c *gbCase) measure(ctx context.Context, clients []*client, round int) error {
	start := time.Now()
	n, err := c.batches(ctx, clients, round, gbTime)
	c.rates = append(c.rates, float64(n*gbBatch)/time.Since(start).Seconds())
	return err
}

// batches has the case's clients read batches for so long, one each at the least. It
// gives how many were read.
func (c *gbCase) batches(ctx context.Context, clients []*client, round int, during time.Duration) (int, error) {
	var wg sync.WaitGroup
	var n atomic.Int64
	fails := make([]error, c.clients)
	until := time.Now().Add(during)
	for i, cl := range clients[:c.clients] {
		rnd := rand.New(rand.NewPCG(uint64(i), uint64(round)))
		wg.Go(func() { // ends after that time, or with an error
			for first := true; first || time.Now().Before(until); first = false {
				in := make([]batching.Entry, gbBatch)
				for j := range in {
					in[j] = c.kind.entry(rnd.IntN(c.kind.count))
				}
				start := time.Now()
				if fails[i] = c.method.read(ctx, cl, c.kind, in); fails[i] != nil {
					return
				}
				n.Add(1)
				c.mu.Lock()
				c.latency = append(c.latency, millis(time.Since(start)))
				c.mu.Unlock()
			}
		})
	}
	wg.Wait()
	return int(n.Load()), errors.Join(fails...)
}

func gbResult(o options, cases []*gbCase) *Result {
	r := &Result{Params: map[string]string{"batch": fmt.Sprint(gbBatch), "nodes": "3, in one process with the clients",
		"rounds": fmt.Sprintf("%d of %v each", o.Rounds, gbTime), "order": "random, with repetition"}}
	rates := map[string][]float64{}
	for _, c := range cases {
		slices.Sort(c.latency)
		f := figure("entries", "/s", c.rates)
		ms := func(name string, p float64) Figure {
			return Figure{Name: name, Unit: "ms", Value: percentile(c.latency, p)}
		}
		plural := ""
		if c.clients > 1 {
			plural = "s"
		}
		where := fmt.Sprintf("%s, %d client%s", c.kind.name, c.clients, plural)
		rates[where+c.method.name] = c.rates
		r.Cases = append(r.Cases, Case{Name: where + ", " + c.method.name, Figures: []Figure{
			ms("p50", 50), ms("p95", 95), ms("p99", 99), ms("longest", 100), f, {Name: "rate", Unit: "MB/s", Value: f.Value * float64(c.kind.size) / 1e6},
			{Name: "batches", Value: float64(len(c.latency))},
		}})
		if c.method.name == "GetBatch" {
			r.Ratios = append(r.Ratios,
				ratio(where+": GetBatch / GET one by one", c.rates, rates[where+"GET one by one"]),
				ratio(where+": GetBatch / GET 8 parallel", c.rates, rates[where+"GET 8 parallel"]))
		}
	}
	return r
}
