package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sheaf/bench/run"
	"sheaf/peer"
)

// The rebalance workload: three nodes hold objects, a fourth joins, and a quarter of the
// objects moves to it while nothing else goes on. What is timed is the time from the
// join until all nodes say that every object is where it belongs.
var rebalanceCases = []struct {
	name string
	n    int
	size int
}{
	{"10 KiB", 8000, 10 << 10},
	{"1 MiB", 400, 1 << 20},
}

func runRebalance(ctx context.Context, o options) (*Result, error) {
	r := &Result{Params: map[string]string{"nodes": "3, then 4, each a process", "rebalance rate": "as by default, 256 MiB/s a node", "durability": "sync"}}
	for _, c := range rebalanceCases {
		var mbs, objects, moved, seconds []float64
		for range min(o.Rounds, 3) {
			m, bytes, took, err := rebalanceOnce(ctx, o, c.n, c.size)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			moved = append(moved, float64(m))
			seconds = append(seconds, took.Seconds())
			mbs = append(mbs, float64(bytes)/1e6/took.Seconds())
			objects = append(objects, float64(m)/took.Seconds())
		}
		r.Cases = append(r.Cases, Case{Name: fmt.Sprintf("%d objects of %s", c.n, c.name), Figures: []Figure{
			figure("moved", "objects", moved), figure("time", "s", seconds), figure("rate", "MB/s", mbs), figure("rate", "objects/s", objects)}})
	}
	return r, nil
}

// rebalanceOnce gives how many objects and bytes the fourth node has got, and in what time.
func rebalanceOnce(ctx context.Context, o options, n, size int) (moved int, bytes int64, took time.Duration, err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return 0, 0, 0, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, err := h.Sheaf(ctx, "cert", "init"); err != nil {
		return 0, 0, 0, err
	}
	d := &dtNodes{home: h}
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx); err != nil {
		return 0, 0, 0, err
	}
	c, err := d.connect(ctx)
	if err != nil {
		return 0, 0, 0, err
	}
	defer c.Close()
	const bucket = "moving"
	if err := c.putAll(ctx, bucket, n, func(i int) (string, []byte) { return fmt.Sprintf("%03d/%d", i%100, i), content(i, size) }); err != nil {
		return 0, 0, 0, err
	}
	if err := settled(ctx, c, 3); err != nil {
		return 0, 0, 0, err
	}
	start := time.Now()
	s, err := h.Start(ctx, "serve", "--name", "n4", "--dir", h.Path("n4"), "--listen", "127.0.0.1:0", "--join", d.addrs[0], "--log-level", "warn")
	if err != nil {
		return 0, 0, 0, err
	}
	d.nodes = append(d.nodes, s)
	if err := settled(ctx, c, 4); err != nil {
		return 0, 0, 0, err
	}
	took = time.Since(start)
	var page *peer.ListPage
	for token := ""; ; token = page.Token {
		if page, err = c.ListAt(ctx, s.Endpoint(), bucket, peer.ListOptions{StartAfter: token}); err != nil {
			return 0, 0, 0, err
		}
		for _, x := range page.Objects {
			moved++
			bytes += x.Size
		}
		if page.Token == "" {
			break
		}
	}
	if moved < n/8 || moved > n/2 {
		return 0, 0, 0, fmt.Errorf("%d of %d objects moved: that isn't a quarter", moved, n)
	}
	return moved, bytes, took, nil
}

// settled waits until so many nodes say that every object is where it belongs.
func settled(ctx context.Context, c *client, nodes int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for {
		if err := c.Refresh(ctx); err != nil {
			return err
		}
		ready := 0
		for _, n := range c.Map().Nodes {
			if st, err := c.Status(ctx, n.Addr); err == nil && st.Settled {
				ready++
			}
		}
		if ready == nodes {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return errors.New("the cluster doesn't settle")
		}
	}
}
