package server

import (
	"context"
	"slices"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// search finds a copy of an object to read: here or at a neighbour (GFN, get from
// neighbor). While the cluster is settled every holder has the newest version, so the
// owner is read from, and the other holders only when it has nothing or nothing good.
// Otherwise, and when that fails, all nodes say what they have, and the newest counts. A
// search belongs to one goroutine.
type search struct {
	n     *Node
	r     *route
	phase searchPhase
	near  bool    // a copy here is as good as the owner's
	hint  answers // what all nodes said shortly before; nil for nothing
	queue []int   // nodes to read from
	tried []int   // nodes that can't be reached, or whose copy is bad
	asked answers // what all nodes said; in the last phase
	again bool    // a bad copy of a remote object was dropped, and the backend is asked
	moved int     // copies that were gone when they were to be read
	lacks bool    // this node is to have a copy and hasn't
	err   error   // the first failure that isn't absence
}

type searchPhase uint8

const (
	searchBegins  searchPhase = iota
	searchHere                // this node's own disks and nothing else: the call was passed on
	searchHint                // the nodes that the hint names
	searchHolders             // the holders of a settled cluster
	searchAll                 // the nodes that said they have the newest version
	searchRemote              // the owner, which asks the backend; without it this node does
	searchEnds
)

// maxMoved bounds how often a search begins anew because copies moved on meanwhile.
const maxMoved = 3

// search begins one. only: on this node's own disks.
func (n *Node) search(bucket, object string, only bool) (*search, error) {
	r, err := n.route(bucket, object)
	if err != nil {
		return nil, err
	}
	s := &search{n: n, r: r}
	if r.rec.Backend != "" {
		s.phase = searchRemote
		if !only && len(r.holders) > 0 {
			s.queue = append(s.queue, r.holders[0])
		}
		if r.self >= 0 && !slices.Contains(s.queue, r.self) {
			s.queue = append(s.queue, r.self)
		}
		return s, nil
	}
	if only {
		s.phase, s.queue = searchHere, []int{r.self}
	}
	return s, nil
}

// next gives the next node to read from.
func (s *search) next(ctx context.Context) (int, error) {
	for {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if len(s.queue) > 0 {
			i := s.queue[0]
			s.queue = s.queue[1:]
			return i, nil
		}
		switch {
		case s.phase == searchBegins && live(s.hint.newest()):
			s.phase, s.queue = searchHint, s.newest(s.hint)
		case s.phase == searchBegins && s.n.trusts():
			s.phase, s.queue = searchHolders, s.inOrder(s.r.holders)
		case s.phase == searchHolders && s.err == nil:
			return 0, s.r.missing(nil)
		case s.phase <= searchHolders && s.phase != searchHere, s.phase == searchAll && s.moved > 0 && s.moved <= maxMoved:
			s.n.metrics.surveys.Inc()
			s.asked = s.n.ask(ctx, s.r, s.r.readable())
			s.phase = searchAll
			if live(s.asked.newest()) {
				s.queue = s.newest(s.asked)
			} else if s.queue = s.changing(ctx); len(s.queue) == 0 {
				return 0, s.r.missing(s.asked)
			}
			if len(s.queue) == 0 {
				s.phase = searchEnds
			}
		case s.err != nil:
			return 0, s.err // also of a remote bucket
		default:
			return 0, s.r.fail(errs.NotFound, "", "")
		}
	}
}

// newest gives the nodes that have the newest version, the owner before the others: that is
// where a write becomes visible first, so of two readers the later one sees no older object.
func (s *search) newest(a answers) (nodes []int) {
	v := a.newest()
	for _, i := range s.r.readable() {
		if slices.ContainsFunc(a, func(one answer) bool { return one.node == i && one.err == nil && one.Version == v.Version }) {
			nodes = append(nodes, i)
		}
	}
	return s.inOrder(nodes)
}

// changing gives the owner when it has an object of which its records don't tell, though
// nobody knows of anything newer: one that is being written or deleted at this moment. Other
// readers go by the object alone, and they must not see it come and go.
func (s *search) changing(ctx context.Context) []int {
	if len(s.r.holders) == 0 {
		return nil
	}
	owner := s.r.holders[0]
	var high uint64
	for _, one := range s.asked {
		switch {
		case one.node != owner:
			high = max(high, one.Version)
		case one.err != nil:
			return nil
		}
	}
	var info peer.ObjectInfo
	req := &peer.ObjectRequest{Kind: wire.THead, Bucket: s.r.bucket, Object: s.r.object, Forwarded: true}
	var err error
	if owner == s.r.self {
		info, err = s.n.head(ctx, s.r, req)
	} else {
		err = s.n.calls.At(ctx, s.r.m.Nodes[owner].Addr, req, func(call *peer.Call, _ wire.Head) error {
			return call.R.Decode((*peer.ObjectMessage)(&info))
		})
	}
	if err != nil || info.Version <= high {
		return nil
	}
	return []int{owner}
}

// inOrder leaves out the nodes that were tried. It puts this one behind the others when its
// copy is known to be bad, and before them when it is as good.
func (s *search) inOrder(nodes []int) []int {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(i int) bool { return slices.Contains(s.tried, i) })
	switch i := slices.Index(nodes, s.r.self); {
	case i < 0:
	case s.n.suspect(s.r.bucket, s.r.object):
		nodes = append(slices.Delete(nodes, i, i+1), s.r.self)
	case s.near:
		nodes = slices.Insert(slices.Delete(nodes, i, i+1), 0, s.r.self)
	}
	return nodes
}

// failed takes note of what came of reading from a node. It tells whether another may do
// better.
func (s *search) failed(ctx context.Context, node int, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	e := errs.Flatten(err)
	if s.phase == searchRemote {
		return s.failedRemote(node, err)
	}
	switch e.Code {
	case errs.RangeNotSatisfiable, errs.InvalidArgument, errs.PermissionDenied, errs.NotSupported:
		return false
	case errs.NotFound:
		if e.Member != "" {
			return false // the shard is there
		}
		if s.phase == searchAll {
			s.moved++ // it said that it has it
		}
		if s.phase == searchHolders && node == s.r.holders[0] && len(s.r.holders) > 1 {
			// A deletion that the owner knows of is the last word while the cluster is
			// settled, also when another holder hasn't heard of it yet.
			if a := s.n.ask(ctx, s.r, s.r.holders[:1]); a[0].err == nil && a[0].Deleted {
				return false
			}
		}
		s.lacks = s.lacks || s.phase == searchHolders && node == s.r.self
		return true
	case errs.ChecksumMismatch:
		if node == s.r.self {
			s.n.metrics.badCopies.Inc()
			s.n.copyIsBad(s.r.bucket, s.r.object)
		}
	}
	s.tried = append(s.tried, node)
	if s.err == nil {
		s.err = err
		if node != s.r.self {
			s.err = s.r.of(node, err)
		}
	}
	return true
}

// each reads from one node after the other until one serves. here reads from this node's
// own disks, there from another node.
func (s *search) each(ctx context.Context, here func() error, there func(node int, addr string) error) error {
	for {
		node, err := s.next(ctx)
		if err != nil {
			return err
		}
		if node == s.r.self {
			err = here()
		} else {
			err = there(node, s.r.m.Nodes[node].Addr)
			if err == nil {
				s.n.metrics.neighborReads.Inc()
				if s.lacks {
					s.n.repairSoon(s.r.bucket, s.r.object)
				}
			}
		}
		if err == nil {
			return nil
		}
		if !s.failed(ctx, node, err) {
			if node != s.r.self && !errs.IsCode(err, errs.NotFound) {
				err = s.r.of(node, err)
			}
			return err
		}
	}
}

// open opens an entry of the object, wherever a good copy of it is. The payload knows where
// to go on when this copy turns out bad. describe, unless nil, is told of the whole object
// or member.
func (s *search) open(ctx context.Context, e *batching.Entry, describe func(peer.ObjectInfo)) (batching.Payload, error) {
	var p batching.Payload
	var info peer.ObjectInfo
	from := s.r.self
	if s.phase == searchRemote {
		batching.Slow(ctx)
	}
	err := s.each(ctx, func() (err error) {
		from = s.r.self
		if s.phase == searchRemote {
			info, p, err = s.n.openRemote(ctx, s.r, e, s.r.mine())
		} else {
			info, p, err = s.n.openEntry(ctx, e)
		}
		return err
	}, func(node int, addr string) (err error) {
		from = node
		info, p, err = s.n.openNeighbor(ctx, addr, e)
		return err
	})
	if err != nil {
		return batching.Payload{}, err
	}
	if describe != nil {
		describe(info)
	}
	p.Again = func(ctx context.Context, cause error) (batching.Payload, error) {
		if !s.failed(ctx, from, cause) {
			return batching.Payload{}, cause
		}
		return s.open(ctx, e, describe)
	}
	return p, nil
}

// relay passes a call to another node and its frames, which have no payload, back.
func (n *Node) relay(ctx context.Context, c *peer.ServerCall, addr string, req *peer.ObjectRequest) error {
	return n.calls.At(ctx, addr, req, func(call *peer.Call, h wire.Head) error {
		var m wire.Message
		switch h.Type {
		case wire.TObject:
			m = new(peer.ObjectMessage)
		case wire.TTable:
			m = new(peer.TableMessage)
		default:
			return errs.New(errs.Protocol, "relay", "not an answer to the call")
		}
		if err := call.R.Decode(m); err != nil {
			return err
		}
		return c.W.Frame(m, nil)
	})
}
