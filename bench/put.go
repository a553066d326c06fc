package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sheaf/bench/run"
	"sheaf/peer"
)

// The put workload: what it costs to store small objects, against what the disk itself
// allows: the same bytes written to files with the same promises and no cluster.
const (
	putSize = 10 << 10
	putFor  = 2 * time.Second // each variant, each round
)

// putCase is one variant: where to, and by how many at once.
type putCase struct {
	name    string
	writers int
	put     func(ctx context.Context, i int64) error
	against int // index of the variant that is its limit, −1: it is a limit itself

	next atomic.Int64 // names are never used twice
	rate []float64    // objects a second, by round
	p50  []float64    // ms
}

func runPut(ctx context.Context, o options) (_ *Result, err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	s, err := h.Start(ctx, "up", "--nodes", "1", "--dir", h.Path("data"), "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, h.Certs(), s.Endpoint())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, d := range []string{"sync", "relaxed"} {
		if err := c.CreateBucket(ctx, d, peer.BucketProps{Copies: 1, Durability: d}); err != nil {
			return nil, err
		}
	}
	data := content(1, putSize)
	object := func(bucket string) func(context.Context, int64) error {
		return func(ctx context.Context, i int64) error {
			_, err := c.Put(ctx, bucket, fmt.Sprintf("%02d/%d", i%64, i), bytes.NewReader(data), peer.PutOptions{Size: putSize})
			return err
		}
	}
	file := func(dir string, sync bool) (func(context.Context, int64) error, error) {
		for i := range 64 {
			if _, err := h.MakeDir(dir, fmt.Sprintf("%02d", i)); err != nil {
				return nil, err
			}
		}
		return func(_ context.Context, i int64) error {
			return putFile(h.Path(dir, fmt.Sprintf("%02d", i%64)), strconv.FormatInt(i, 10), data, sync)
		}, nil
	}
	var cases []*putCase
	for _, writers := range []int{1, 8} {
		synced, err := file(fmt.Sprint("synced", writers), true)
		if err != nil {
			return nil, err
		}
		plain, err := file(fmt.Sprint("plain", writers), false)
		if err != nil {
			return nil, err
		}
		at := len(cases)
		cases = append(cases,
			&putCase{name: "files: write, fsync, rename, fsync of the folder", writers: writers, put: synced, against: -1},
			&putCase{name: "PUT, sync", writers: writers, put: object("sync"), against: at},
			&putCase{name: "files: write, rename", writers: writers, put: plain, against: -1},
			&putCase{name: "PUT, relaxed", writers: writers, put: object("relaxed"), against: at + 2})
	}
	for round := range o.Rounds + 1 {
		for i := range cases {
			if err := cases[(i+round)%len(cases)].measure(ctx, round > 0); err != nil {
				return nil, err
			}
		}
	}
	r := &Result{Params: map[string]string{"object": "10 KiB", "each": putFor.String(), "rounds": fmt.Sprint(o.Rounds), "nodes": "1"}}
	for _, c := range cases {
		who := "1 writer"
		if c.writers > 1 {
			who = fmt.Sprint(c.writers, " writers")
		}
		r.Cases = append(r.Cases, Case{Name: c.name + ", " + who, Figures: []Figure{
			figure("objects/s", "", c.rate), figure("p50", "ms", c.p50)}})
		if c.against >= 0 {
			r.Ratios = append(r.Ratios, ratio(c.name+", "+who+" / files", c.rate, cases[c.against].rate))
		}
	}
	return r, nil
}

// putFile stores bytes as a careful program does that has only the file system.
func putFile(dir, name string, data []byte, sync bool) error {
	tmp := filepath.Join(dir, "."+name)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil && sync {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil || !sync {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// measure stores objects for a while; the first round opens connections and isn't kept.
func (c *putCase) measure(ctx context.Context, keep bool) error {
	// What earlier variants left in the page cache isn't written at this one's expense.
	unix.Sync()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	times := make([][]float64, c.writers)
	var wg sync.WaitGroup
	start := time.Now()
	for w := range c.writers {
		wg.Go(func() { // ends with the time, or when one failed
			for time.Since(start) < putFor && ctx.Err() == nil {
				began := time.Now()
				if err := c.put(ctx, c.next.Add(1)); err != nil {
					fail(err)
					return
				}
				times[w] = append(times[w], millis(time.Since(began)))
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var all []float64
	for _, t := range times {
		all = append(all, t...)
	}
	if keep {
		c.rate = append(c.rate, float64(len(all))/took.Seconds())
		c.p50 = append(c.p50, summarize(all).Median)
	}
	return nil
}
