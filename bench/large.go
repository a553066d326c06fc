package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"sheaf/bench/run"
	"sheaf/peer"
)

// The large workload: an object streams, so that neither end holds more of it than
// windows and buffers, whatever its size.
const (
	largeSize   = 1 << 30
	largeBucket = "large"
)

// pattern is a payload of any size that costs little to make.
type pattern struct {
	block []byte
	at    int64
	size  int64
}

func newPattern(size int64) *pattern { return &pattern{block: content(3, 1<<20), size: size} }

// Read implements io.Reader.
func (p *pattern) Read(b []byte) (int, error) {
	if p.at == p.size {
		return 0, io.EOF
	}
	n := copy(b[:min(int64(len(b)), p.size-p.at)], p.block[p.at%int64(len(p.block)):])
	p.at += int64(n)
	return n, nil
}

// largeRun is what the variants share.
type largeRun struct {
	client *client
	url    string // of the node's metrics
	file   string

	mbs  map[string][]float64
	heap map[string][]float64 // MiB: the node's and this process's peaks together
}

func runLarge(ctx context.Context, o options) (_ *Result, err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, err := h.Sheaf(ctx, "cert", "init"); err != nil {
		return nil, err
	}
	s, err := h.Start(ctx, "serve", "--name", "n1", "--dir", h.Path("n1"), "--listen", "127.0.0.1:0", "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	l := &largeRun{file: h.Path("file"), mbs: map[string][]float64{}, heap: map[string][]float64{}}
	if l.client, err = connect(ctx, h.Certs(), s.Endpoint()); err != nil {
		return nil, err
	}
	defer l.client.Close()
	l.url = "http://" + l.client.Map().Nodes[0].Admin + "/metrics"
	if err := l.client.CreateBucket(ctx, largeBucket, peer.BucketProps{Copies: 1}); err != nil {
		return nil, err
	}
	variants := []struct {
		name string
		do   func(context.Context) error
	}{
		{"file: write, fsync", l.writeFile}, {"PUT", l.put}, {"file: read", l.readFile}, {"GET", l.get},
	}
	for range min(o.Rounds, 3) {
		for _, v := range variants {
			if err := l.measure(ctx, v.name, v.do); err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
		}
	}
	r := &Result{Params: map[string]string{"object": "1 GiB", "nodes": "1, a process of its own", "page cache": "warm for what is read"}}
	for _, v := range variants {
		r.Cases = append(r.Cases, Case{Name: v.name, Figures: []Figure{
			figure("rate", "MB/s", l.mbs[v.name]), figure("heap of both ends, peak", "MiB", l.heap[v.name])}})
	}
	r.Ratios = []Ratio{ratio("PUT / write of a file", l.mbs["PUT"], l.mbs["file: write, fsync"]),
		ratio("GET / read of a file", l.mbs["GET"], l.mbs["file: read"])}
	return r, nil
}

// measure times a variant and watches the heaps.
func (l *largeRun) measure(ctx context.Context, name string, do func(context.Context) error) error {
	runtime.GC()
	s := startSampler(ctx, l.url)
	defer s.stop()
	stop, own := make(chan struct{}), make(chan float64)
	go func() { // ends with stop
		var m runtime.MemStats
		peak := 0.0
		for {
			runtime.ReadMemStats(&m)
			peak = max(peak, float64(m.HeapInuse))
			select {
			case <-stop:
				own <- peak
				return
			case <-time.After(dtSampling):
			}
		}
	}()
	start := time.Now()
	err := do(ctx)
	took := time.Since(start)
	close(stop)
	peak := <-own
	samples, serr := s.stop()
	if err := errors.Join(err, serr); err != nil {
		return err
	}
	node := 0.0
	for _, x := range samples {
		node = max(node, x.heap)
	}
	l.mbs[name] = append(l.mbs[name], largeSize/1e6/took.Seconds())
	l.heap[name] = append(l.heap[name], (peak+node)/(1<<20))
	return nil
}

func (l *largeRun) writeFile(context.Context) error {
	f, err := os.Create(l.file)
	if err != nil {
		return err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, newPattern(largeSize), make([]byte, 1<<20))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (l *largeRun) readFile(context.Context) error {
	f, err := os.Open(l.file)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{f}, make([]byte, 1<<20))
	if err == nil && n != largeSize {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

func (l *largeRun) put(ctx context.Context) error {
	if err := l.client.Delete(ctx, largeBucket, "object"); err != nil && len(l.mbs["PUT"]) > 0 {
		return err
	}
	_, err := l.client.Put(ctx, largeBucket, "object", newPattern(largeSize), peer.PutOptions{Size: largeSize})
	return err
}

func (l *largeRun) get(ctx context.Context) error {
	_, body, err := l.client.Get(ctx, largeBucket, "object", peer.GetOptions{})
	if err != nil {
		return err
	}
	defer body.Close()
	n, err := io.Copy(io.Discard, body)
	if err == nil && n != largeSize {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}
