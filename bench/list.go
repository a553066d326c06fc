package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sheaf/bench/run"
	"sheaf/internal/store"
	"sheaf/peer"
)

// The list workload: a page costs what it shows, whatever the bucket holds and wherever in
// it the page lies, and a node's memory doesn't grow with its objects.
const (
	listPage    = 1000
	listRepeats = 5 // of each page in a round
	listBucket  = "listed"
)

// listCase is a bucket: so many objects, all in one folder or in a tree.
type listCase struct {
	name    string
	objects int
	tree    bool

	first, middle, last, folded, large, all, resident, growth []float64
	start, check, rebuild                                     []float64
}

func listCases() []*listCase {
	var all []*listCase
	for _, n := range []int{10_000, 100_000, 1_000_000} {
		for _, tree := range []bool{false, true} {
			layout := "one folder"
			if tree {
				layout = "tree"
			}
			all = append(all, &listCase{name: fmt.Sprintf("%d objects, %s", n, layout), objects: n, tree: tree})
		}
	}
	return all
}

// object names object i. Names sort as numbers do; a tree has folders of 100 objects in
// folders of 100.
func (c *listCase) object(i int) string {
	if c.tree {
		return fmt.Sprintf("%04d/%02d/sample-%07d.jpg", i/10_000, i/100%100, i)
	}
	return fmt.Sprintf("sample-%07d.jpg", i)
}

// foldedLines is what a page shows with the delimiter: the folders at the top of a tree.
func (c *listCase) foldedLines() int {
	if c.tree {
		return (c.objects + 9999) / 10_000
	}
	return listPage
}

func runList(ctx context.Context, o options) (*Result, error) {
	cases := listCases()
	for _, c := range cases {
		if err := c.run(ctx, o); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
	}
	r := &Result{Params: map[string]string{"nodes": "3, each a process, one mountpath each", "objects": "empty", "page": fmt.Sprint(listPage, " names; 10 000 where it says so"),
		"each page": fmt.Sprint(listRepeats, " times a round, each time through another node"), "before each bucket": "all nodes restarted"}}
	for _, c := range cases {
		r.Cases = append(r.Cases, Case{Name: c.name, Figures: []Figure{
			figure("first page", "ms", c.first), figure("middle", "ms", c.middle), figure("last", "ms", c.last),
			figure("folders", "ms", c.folded), figure("page of 10 000", "ms", c.large), figure("all", "names/s", c.all),
			figure("RSS of a node", "MiB", c.resident), figure("growth by listing all", "MiB", c.growth),
			figure("start", "s", c.start), figure("check", "s", c.check), figure("rebuild", "s", c.rebuild),
		}})
	}
	at := func(n int, tree bool) *listCase {
		i := slices.IndexFunc(cases, func(c *listCase) bool { return c.objects == n && c.tree == tree })
		return cases[i]
	}
	r.Ratios = []Ratio{
		ratio("first page of 1 000 000 objects / of 10 000, one folder", at(1_000_000, false).first, at(10_000, false).first),
		ratio("middle page of 1 000 000 objects / of 10 000, one folder", at(1_000_000, false).middle, at(10_000, false).middle),
		ratio("middle page of 1 000 000 objects / of 10 000, tree", at(1_000_000, true).middle, at(10_000, true).middle),
		ratio("last page / first page, 1 000 000 objects in one folder", at(1_000_000, false).last, at(1_000_000, false).first),
	}
	return r, nil
}

func (c *listCase) run(ctx context.Context, o options) (err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if _, err := h.Sheaf(ctx, "cert", "init"); err != nil {
		return err
	}
	d := &dtNodes{home: h}
	m, err := c.prepare(ctx, d)
	if err != nil {
		return err
	}
	if err := c.fill(ctx, h, m); err != nil {
		return err
	}
	return c.measure(ctx, o, d)
}

// prepare makes the bucket and gives the cluster's map; no node runs afterwards.
func (c *listCase) prepare(ctx context.Context, d *dtNodes) (m *peer.Map, err error) {
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx); err != nil {
		return nil, err
	}
	cl, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := cl.CreateBucket(ctx, listBucket, peer.BucketProps{}); err != nil {
		return nil, err
	}
	// The nodes make its folders in their own time.
	for _, n := range cl.Map().Nodes {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			if _, err = cl.ListAt(ctx, n.Addr, listBucket, peer.ListOptions{Limit: 1}); err == nil {
				break
			} else if time.Now().After(end) {
				return nil, err
			}
		}
	}
	return cl.Map(), nil
}

// fill writes the objects straight into the nodes' folders, and measures how long a store
// takes to open: after a close, after a crash, and when the catalog is lost.
func (c *listCase) fill(ctx context.Context, h *run.Home, m *peer.Map) error {
	var wg sync.WaitGroup
	errs := make([]error, len(m.Nodes))
	for i, n := range m.Nodes {
		wg.Go(func() { errs[i] = c.fillNode(ctx, h.Path(n.Name), m, i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	dir := h.Path(m.Nodes[0].Name)
	for _, x := range []struct {
		to     *[]float64
		remove []string
	}{
		{to: &c.start},
		{to: &c.check, remove: []string{".sheaf-clean"}},
		{to: &c.rebuild, remove: []string{".sheaf-clean", ".sheaf-catalog"}},
	} {
		for _, f := range x.remove {
			if err := os.RemoveAll(filepath.Join(dir, f)); err != nil {
				return err
			}
		}
		began := time.Now()
		s, err := store.Open(store.Options{Dirs: []string{dir}})
		if err != nil {
			return err
		}
		*x.to = append(*x.to, time.Since(began).Seconds())
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (c *listCase) fillNode(ctx context.Context, dir string, m *peer.Map, node int) (err error) {
	s, err := store.Open(store.Options{Dirs: []string{dir}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for i := range c.objects {
		name := c.object(i)
		if m.Owner(peer.HashObject(listBucket, name)) != node {
			continue
		}
		if _, err := s.Put(ctx, listBucket, name, bytes.NewReader(nil), store.PutOptions{Size: 0, Relaxed: true}); err != nil {
			return err
		}
	}
	return nil
}

func (c *listCase) measure(ctx context.Context, o options, d *dtNodes) (err error) {
	defer func() { err = errors.Join(err, d.stop()) }()
	if err := d.start(ctx); err != nil {
		return err
	}
	cl, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	before, err := residentOf(ctx, cl)
	if err != nil {
		return err
	}
	for round := range o.Rounds + 1 {
		counts := round > 0 // the first opens connections
		for _, x := range []struct {
			to   *[]float64
			opts peer.ListOptions
			want int
		}{
			{&c.first, peer.ListOptions{Limit: listPage}, listPage},
			{&c.middle, peer.ListOptions{Limit: listPage, StartAfter: c.object(c.objects/2 - 1)}, listPage},
			{&c.last, peer.ListOptions{Limit: listPage, StartAfter: c.object(c.objects - listPage - 1)}, listPage},
			{&c.folded, peer.ListOptions{Limit: listPage, Delimiter: "/"}, c.foldedLines()},
			{&c.large, peer.ListOptions{Limit: 10_000}, 10_000},
		} {
			began := time.Now()
			for range listRepeats {
				p, err := cl.List(ctx, listBucket, x.opts)
				if err != nil {
					return err
				}
				if n := len(p.Objects) + len(p.Prefixes); n != x.want {
					return fmt.Errorf("%+v: %d names, want %d", x.opts, n, x.want)
				}
			}
			if counts {
				*x.to = append(*x.to, millis(time.Since(began))/listRepeats)
			}
		}
	}
	for range o.Rounds {
		began, n := time.Now(), 0
		for o := (peer.ListOptions{}); ; {
			p, err := cl.List(ctx, listBucket, o)
			if err != nil {
				return err
			}
			n += len(p.Objects)
			if o.Token = p.Token; o.Token == "" {
				break
			}
		}
		if n != c.objects {
			return fmt.Errorf("%d objects were listed of %d", n, c.objects)
		}
		c.all = append(c.all, float64(n)/time.Since(began).Seconds())
		if c.objects >= 1_000_000 && len(c.all) == 3 {
			break
		}
	}
	after, err := residentOf(ctx, cl)
	if err != nil {
		return err
	}
	for i := range after {
		c.resident = append(c.resident, after[i])
		c.growth = append(c.growth, after[i]-before[i])
	}
	return nil
}

// residentOf gives the resident memory of every node in MiB.
func residentOf(ctx context.Context, cl *client) (all []float64, err error) {
	for _, n := range cl.Map().Nodes {
		x, err := sample(ctx, "http://"+n.Admin+"/metrics")
		if err != nil {
			return nil, err
		}
		all = append(all, x.resident/(1<<20))
	}
	return all, nil
}
