package server

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/store"
)

const (
	passPage  = 1000    // records looked at together
	passLeft  = 100_000 // names of which is remembered that they aren't done
	passFirst = 50 * time.Millisecond
	passMost  = 10 * time.Second
)

// pass brings what this node has to where one placement wants it:
//
//	records in name order ─page─▶ ask the holders ─▶ decide ─▶ send ─▶ ask again ─▶ remove the own copy
//	                                                   └──▶ left: looked at again until there is none
//
// It changes nothing but through its environment, and ends when every record of this node is
// in its place, or with ctx.
type pass struct {
	env  passEnv
	seen passCount

	left []passName // not done yet
	over *cursor    // from here on names aren't in left, which is full
}

// passEnv is what a pass sees of the node and the cluster. Nodes are named.
type passEnv struct {
	buckets func() []string // sorted
	records func(ctx context.Context, bucket, after string, limit int) ([]store.Record, error)
	lookup  func(bucket string, names []string) ([]store.Record, error)
	// place gives an object's holders, the owner first, this node's place among them, −1 for
	// none, and whether they are as many as the bucket wants.
	place    func(bucket, name string) (holders []string, self int, enough bool)
	versions func(ctx context.Context, node, bucket string, names []string) ([]uint64, error)
	// send gives the records to a node and tells of each whether it is durable there.
	send   func(ctx context.Context, node, bucket string, recs []store.Record) []error
	remove func(bucket string, rec store.Record) error
	walked func() // told when the pass has been once around
	// done tells whether a node has said that its pass for this placement has been around.
	done   func(node string) bool
	repair func(bucket, name string, suspect bool) // suspect: the bytes of the own copy
	save   func(c cursor)
	wake   func() <-chan struct{} // closed when a node has said something new
}

// passCount is a pass's progress.
type passCount struct {
	objects, moved, bytes, removed, failed atomic.Uint64
}

// passName is an object's name.
type passName struct{ bucket, name string }

// cursor is how far a pass has come: the names up to and with Name are behind it.
type cursor struct {
	Bucket string `json:"bucket"`
	Name   string `json:"name"`
}

func (c cursor) zero() bool { return c == cursor{} }

func (c cursor) less(o cursor) bool {
	return c.Bucket < o.Bucket || c.Bucket == o.Bucket && c.Name < o.Name
}

// run goes once around all names, beginning after from, and then looks again at what
// isn't done until nothing is left.
func (p *pass) run(ctx context.Context, from cursor) error {
	if err := p.walk(ctx, from, cursor{}); err != nil {
		return err
	}
	if !from.zero() {
		// What lies before was walked by a process that ended since.
		if err := p.walk(ctx, cursor{}, from); err != nil {
			return err
		}
	}
	p.env.walked()
	pause := passFirst
	for len(p.left) > 0 || p.over != nil {
		wake := p.env.wake()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		case <-time.After(pause):
		}
		before := len(p.left)
		if err := p.again(ctx); err != nil {
			return err
		}
		if pause = min(2*pause, passMost); len(p.left) < before {
			pause = passFirst
		}
	}
	return ctx.Err()
}

// walk goes through the names after from, up to and with to; to zero is the end.
func (p *pass) walk(ctx context.Context, from, to cursor) error {
	for _, b := range p.env.buckets() {
		if b < from.Bucket || !to.zero() && b > to.Bucket {
			continue
		}
		after := ""
		if b == from.Bucket {
			after = from.Name
		}
		for {
			if err := ctx.Err(); err != nil {
				return err
			}
			recs, err := p.env.records(ctx, b, after, passPage)
			if errs.IsCode(err, errs.BucketNotFound) {
				break // destroyed since
			}
			if err != nil {
				return err
			}
			if len(recs) == 0 {
				break
			}
			last := len(recs) < passPage
			after = recs[len(recs)-1].Name
			if b == to.Bucket {
				if i := slices.IndexFunc(recs, func(r store.Record) bool { return r.Name > to.Name }); i >= 0 {
					recs, last = recs[:i], true
				}
			}
			if err := p.page(ctx, b, recs); err != nil {
				return err
			}
			p.env.save(cursor{b, after})
			if last {
				break
			}
		}
	}
	return nil
}

// again looks once more at what is left.
func (p *pass) again(ctx context.Context) error {
	left, over := p.left, p.over
	p.left, p.over = nil, nil
	slices.SortFunc(left, func(a, b passName) int {
		if c := strings.Compare(a.bucket, b.bucket); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	left = slices.Compact(left)
	for len(left) > 0 {
		n := 1
		for n < len(left) && n < passPage && left[n].bucket == left[0].bucket {
			n++
		}
		names := make([]string, n)
		for i := range names {
			names[i] = left[i].name
		}
		recs, err := p.env.lookup(left[0].bucket, names)
		switch {
		case errs.IsCode(err, errs.BucketNotFound):
		case err != nil:
			p.seen.failed.Add(uint64(n))
			p.left = append(p.left, left[:n]...)
		default:
			recs = slices.DeleteFunc(recs, func(r store.Record) bool { return r.Version == 0 })
			if err := p.page(ctx, left[0].bucket, recs); err != nil {
				return err
			}
		}
		left = left[n:]
	}
	if over != nil {
		return p.walk(ctx, *over, cursor{})
	}
	return ctx.Err()
}

// item is a record under way through a page.
type item struct {
	rec     store.Record
	holders []string
	self    int
	enough  bool
	have    []holding
}

func (it *item) decide() verdict { return decide(it.rec.Version, it.self, it.have, it.enough) }

// page brings the records of one page to where they belong, as far as it goes now.
func (p *pass) page(ctx context.Context, bucket string, recs []store.Record) error {
	items := make([]*item, 0, len(recs))
	ask := map[string][]*item{}
	for _, r := range recs {
		p.seen.objects.Add(1)
		it := &item{rec: r}
		it.holders, it.self, it.enough = p.env.place(bucket, r.Name)
		it.have = make([]holding, len(it.holders))
		for i, h := range it.holders {
			if i != it.self {
				ask[h] = append(ask[h], it)
			}
		}
		items = append(items, it)
	}
	p.each(ask, func(node string, its []*item) {
		names := make([]string, len(its))
		for i, it := range its {
			names[i] = it.rec.Name
		}
		got, err := p.env.versions(ctx, node, bucket, names)
		if err != nil {
			p.seen.failed.Add(uint64(len(its)))
			return
		}
		done := p.env.done(node)
		for i, it := range its {
			it.have[slices.Index(it.holders, node)] = holding{known: true, version: got[i], done: done}
		}
	})
	send := map[string][]*item{}
	for _, it := range items {
		for _, i := range it.decide().push {
			send[it.holders[i]] = append(send[it.holders[i]], it)
		}
	}
	p.each(send, func(node string, its []*item) {
		recs := make([]store.Record, len(its))
		for i, it := range its {
			recs[i] = it.rec
		}
		for i, err := range p.env.send(ctx, node, bucket, recs) {
			it := its[i]
			if err != nil {
				p.seen.failed.Add(1)
				if errs.IsCode(err, errs.ChecksumMismatch) {
					p.env.repair(bucket, it.rec.Name, true)
				}
				continue
			}
			h := &it.have[slices.Index(it.holders, node)]
			h.version = it.rec.Version
			p.seen.moved.Add(1)
			p.seen.bytes.Add(uint64(it.rec.Size))
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, it := range items {
		p.finish(bucket, it)
	}
	return nil
}

// finish ends a record's way through a page.
func (p *pass) finish(bucket string, it *item) {
	v := it.decide()
	if v.pull {
		p.env.repair(bucket, it.rec.Name, false)
	}
	if v.remove {
		switch err := p.env.remove(bucket, it.rec); {
		case err == nil:
			p.seen.removed.Add(1)
		case errs.IsCode(err, errs.NotFound), errs.IsCode(err, errs.BucketNotFound):
			// Whoever took it away was right.
		default:
			// Written anew since, or the placement has changed.
			v.wait = true
		}
	}
	if v.wait {
		p.later(bucket, it.rec.Name)
	}
}

// later remembers a name that isn't done.
func (p *pass) later(bucket, name string) {
	switch {
	case len(p.left) < passLeft:
		p.left = append(p.left, passName{bucket, name})
	default:
		// A walk begins after its cursor; this one is the nearest that is shorter.
		c := cursor{bucket, name[:len(name)-1]}
		if p.over == nil || c.less(*p.over) {
			p.over = &c
		}
	}
}

// each runs f for every node at once and waits.
func (p *pass) each(by map[string][]*item, f func(node string, its []*item)) {
	var wg sync.WaitGroup
	for node, its := range by {
		wg.Go(func() { f(node, its) })
	}
	wg.Wait()
}

// errPlaced tells that the placement has changed under an operation.
var errPlaced = errs.New(errs.VersionMismatch, "reconcile", "the placement has changed")
