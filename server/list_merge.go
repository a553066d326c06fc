package server

import (
	"context"

	"sheaf/internal/errs"
	"sheaf/peer"
)

const (
	probeChunk = 64   // lines of a folded prefix that are first looked at
	chunkGrows = 1000 // up to so many
)

// lister merges the sorted listings of several nodes into one page. It holds one answer of
// each node at a time, and asks those whose answer is used up, all at once.
type lister struct {
	ask   func(ctx context.Context, node int, o peer.ListOptions) (*peer.ListPage, error)
	opts  peer.ListOptions // Tombstones: merge by version what nodes know to be deleted
	nodes int
	chunk int // lines to ask each node for
	spare int // so many nodes may fail

	sources []*listSource
}

// listSource is what one node has answered and the merge hasn't used yet.
type listSource struct {
	node  int
	page  peer.ListPage
	after string // where the node's next answer begins
	last  bool   // there is none
}

// listLine is what one node, or all together, say of a key: an object or a tombstone, or a
// folded prefix.
type listLine struct {
	object     *peer.ObjectInfo
	deleted    uint64 // version of the tombstone
	live, dead bool   // of a prefix: it holds objects, tombstones
}

// page gives the page.
func (l *lister) page(ctx context.Context) (*peer.ListPage, error) {
	for i := range l.nodes {
		l.sources = append(l.sources, &listSource{node: i, after: l.opts.StartAfter})
	}
	out, last := &peer.ListPage{}, ""
	for {
		if err := l.fill(ctx); err != nil {
			return nil, err
		}
		key, ok := l.lowest()
		if !ok {
			return out, nil
		}
		line := l.take(key)
		switch {
		case line.live && line.dead:
			// Is it only old copies of what was deleted?
			some, err := l.holds(ctx, key)
			if err != nil {
				return nil, err
			}
			line.live = some
		case line.object != nil && line.deleted >= line.object.Version:
			line.object = nil
		}
		if line.object == nil && !line.live {
			continue
		}
		if len(out.Objects)+len(out.Prefixes) == l.opts.Limit {
			out.Token = last
			return out, nil
		}
		if last = key; line.live {
			out.Prefixes = append(out.Prefixes, key)
		} else {
			out.Objects = append(out.Objects, *line.object)
		}
	}
}

// fill asks every node of which nothing is left and which has more.
func (l *lister) fill(ctx context.Context) error {
	var empty []*listSource
	for _, s := range l.sources {
		if _, some := s.lowest(); !some && !s.last {
			empty = append(empty, s)
		}
	}
	if len(empty) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		s    *listSource
		page *peer.ListPage
		err  error
	}
	o := l.opts
	o.Limit = l.chunk
	l.chunk = max(l.chunk, min(2*l.chunk, chunkGrows))
	answers := make(chan answer)
	for _, s := range empty {
		o.StartAfter = s.after
		go func(o peer.ListOptions) { // ends with its answer, which ctx bounds; the loop below waits for all
			p, err := l.ask(ctx, s.node, o)
			answers <- answer{s, p, err}
		}(o)
	}
	var failed error
	for range empty {
		a := <-answers
		switch code := errs.CodeOf(a.err); {
		case a.err == nil:
			a.s.page, a.s.after, a.s.last = *a.page, a.page.Token, a.page.Token == ""
		case failed != nil:
		case (code == errs.Unavailable || code == errs.Timeout) && l.spare > 0 && ctx.Err() == nil:
			// Each of its objects is on another node too.
			l.spare--
			a.s.last = true
		default:
			failed = a.err
			cancel()
		}
	}
	return failed
}

// lowest is the key that comes next.
func (l *lister) lowest() (key string, ok bool) {
	for _, s := range l.sources {
		if k, some := s.lowest(); some && (!ok || k < key) {
			key, ok = k, true
		}
	}
	return key, ok
}

// take takes a key from all nodes that have it; the newest of each kind counts.
func (l *lister) take(key string) (line listLine) {
	for _, s := range l.sources {
		one := s.take(key)
		if one.object != nil && (line.object == nil || one.object.Version > line.object.Version) {
			line.object = one.object
		}
		line.deleted = max(line.deleted, one.deleted)
		line.live, line.dead = line.live || one.live, line.dead || one.dead
	}
	return line
}

// holds tells whether there is an object under a folded prefix.
func (l *lister) holds(ctx context.Context, prefix string) (bool, error) {
	below := &lister{ask: l.ask, nodes: l.nodes, chunk: probeChunk, spare: l.spare,
		opts: peer.ListOptions{Prefix: prefix, Limit: 1, Tombstones: true}}
	p, err := below.page(ctx)
	return err == nil && len(p.Objects) > 0, err
}

func (s *listSource) lowest() (key string, ok bool) {
	see := func(k string) {
		if !ok || k < key {
			key, ok = k, true
		}
	}
	if len(s.page.Objects) > 0 {
		see(s.page.Objects[0].Name)
	}
	if len(s.page.Deleted) > 0 {
		see(s.page.Deleted[0].Name)
	}
	if len(s.page.Prefixes) > 0 {
		see(s.page.Prefixes[0])
	}
	if len(s.page.DeletedPrefixes) > 0 {
		see(s.page.DeletedPrefixes[0])
	}
	return key, ok
}

func (s *listSource) take(key string) (line listLine) {
	p := &s.page
	if len(p.Objects) > 0 && p.Objects[0].Name == key {
		line.object, p.Objects = &p.Objects[0], p.Objects[1:]
	}
	if len(p.Deleted) > 0 && p.Deleted[0].Name == key {
		line.deleted, p.Deleted = p.Deleted[0].Version, p.Deleted[1:]
	}
	if len(p.Prefixes) > 0 && p.Prefixes[0] == key {
		line.live, p.Prefixes = true, p.Prefixes[1:]
	}
	if len(p.DeletedPrefixes) > 0 && p.DeletedPrefixes[0] == key {
		line.dead, p.DeletedPrefixes = true, p.DeletedPrefixes[1:]
	}
	return line
}
