package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

const (
	askTimeout    = 5 * time.Second // for a node to say what it has of a name
	turnPatience  = 3 * time.Second // for all nodes to go by one map
	ownerPatience = 3 * time.Second // for this node to hear of the map by which a forwarded write came
)

// route says where a name belongs by one view of the cluster. It is immutable.
type route struct {
	bucket, object string
	rec            bucketRecord
	m              *peer.Map
	self           int   // index of this node in m; −1 when it isn't in it
	holders        []int // indexes in m, the owner first; fewer than rec.Copies when too few nodes are up
}

// route finds a name's holders by this node's newest map.
func (n *Node) route(bucket, object string) (*route, error) {
	st := n.state.Load()
	b, ok := st.bucket(bucket)
	if !ok {
		return nil, &errs.Error{Code: errs.BucketNotFound, Bucket: bucket}
	}
	return &route{bucket: bucket, object: object, rec: b, m: st.Map, self: st.Map.Find(st.Name),
		holders: st.Map.Holders(peer.HashObject(bucket, object), max(b.Copies, 1))}, nil
}

// mine tells whether this node is the owner, which coordinates the writes of the name.
func (r *route) mine() bool { return len(r.holders) > 0 && r.holders[0] == r.self }

// holder tells whether node i is to have a copy.
func (r *route) holder(i int) bool { return slices.Contains(r.holders, i) }

// others gives the holders beside this node.
func (r *route) others() []int {
	return slices.DeleteFunc(slices.Clone(r.holders), func(i int) bool { return i == r.self })
}

// readable gives every node that serves what it holds: the holders first, in their order.
func (r *route) readable() []int {
	all := slices.Clone(r.holders)
	for _, i := range r.m.Readable() {
		if !r.holder(i) {
			all = append(all, i)
		}
	}
	return all
}

// same tells whether o places the name on the same nodes.
func (r *route) same(o *route) bool {
	return slices.EqualFunc(r.holders, o.holders, func(i, j int) bool { return r.m.Nodes[i].Name == o.m.Nodes[j].Name }) &&
		r.rec.Created.Equal(o.rec.Created)
}

// enough refuses a write when there aren't as many nodes as the bucket wants copies.
func (r *route) enough() error {
	if want := max(r.rec.Copies, 1); len(r.holders) < want {
		return r.fail(errs.Unavailable, fmt.Sprintf("the bucket keeps %d copies and only %d nodes are up", want, len(r.holders)), "")
	}
	return nil
}

// down gives the names of the nodes that hold what they hold and don't answer.
func (r *route) down() (names []string) {
	for i := range r.m.Nodes {
		if r.m.Nodes[i].State == peer.Down {
			names = append(names, r.m.Nodes[i].Name)
		}
	}
	return names
}

// fail makes an error about the name.
func (r *route) fail(code errs.Code, msg, node string) error {
	return &errs.Error{Code: code, Bucket: r.bucket, Object: r.object, Msg: msg, Node: node}
}

// of names the node in an error that came of asking it.
func (r *route) of(node int, err error) error {
	e := errs.Flatten(err)
	if e.Node == "" || e.Node == r.m.Nodes[node].Addr {
		e.Node = r.m.Nodes[node].Name
	}
	if e.Object == "" && e.Bucket == "" {
		e.Bucket, e.Object = r.bucket, r.object
	}
	return e
}

// answer is what one node has of a name.
type answer struct {
	node int // index in the route's map
	peer.VersionInfo
	placement uint64 // that the node went by
	err       error
}

// answers are those of several nodes.
type answers []answer

// ask asks nodes what they have of the route's name, all at once; this node's own disks
// are among what can be asked. The answers are in the order of nodes.
func (n *Node) ask(ctx context.Context, r *route, nodes []int) answers {
	out := make(answers, len(nodes))
	var wg sync.WaitGroup
	for k, i := range nodes {
		out[k].node = i
		if i == r.self {
			out[k].VersionInfo, out[k].err = n.lookup(r.bucket, r.object)
			continue
		}
		wg.Go(func() { // ends with askTimeout
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			got, placement, err := n.calls.PlacedVersionsAt(ctx, r.m.Nodes[i].Addr, r.bucket, []string{r.object})
			if err != nil {
				out[k].err = err
				return
			}
			out[k].VersionInfo, out[k].placement = got[0], placement
		})
	}
	wg.Wait()
	return out
}

// lookup tells what this node's disks have of a name.
func (n *Node) lookup(bucket, object string) (peer.VersionInfo, error) {
	rec, err := n.store.Lookup(bucket, object)
	if errs.IsCode(err, errs.NotFound) {
		return peer.VersionInfo{}, nil
	}
	return versionInfo(rec), err
}

func versionInfo(r store.Record) peer.VersionInfo {
	return peer.VersionInfo{Version: r.Version, Deleted: r.Deleted, Size: r.Size, Checksum: r.Checksum}
}

// newest gives the newest that any of the nodes has; Version 0 for nothing.
func (a answers) newest() (v peer.VersionInfo) {
	for i := range a {
		if a[i].err == nil && a[i].Version > v.Version {
			v = a[i].VersionInfo
		}
	}
	return v
}

// live tells whether v is an object.
func live(v peer.VersionInfo) bool { return v.Version > 0 && !v.Deleted }

// missing says why a name of which a nobody has anything isn't there: NotFound, but
// Unavailable when as many nodes as it has copies can't be asked.
func (r *route) missing(a answers) error {
	if v := a.newest(); v.Deleted {
		return r.fail(errs.NotFound, "", "")
	}
	silent := r.down()
	for i := range a {
		if a[i].err != nil {
			silent = append(silent, r.m.Nodes[a[i].node].Name)
		}
	}
	if len(silent) < max(r.rec.Copies, 1) {
		return r.fail(errs.NotFound, "", "")
	}
	return r.fail(errs.Unavailable, "no copy can be reached; those who don't answer may have one", strings.Join(silent, ", "))
}

// trusts tells whether the holders' word counts alone: every object lies where it belongs.
func (n *Node) trusts() bool { return n.settled() && !n.faults.unsettled.Load() }

// faults are what tests let go wrong.
type faults struct {
	unsettled atomic.Bool
	commit    atomic.Pointer[func(bucket, object string) error] // of another node's write, on this one
}

// known asks for what decides about a write of the name. Where the cluster is settled
// that is the word of the holders; else all nodes are asked. A holder that doesn't answer is
// an error: it couldn't take part in the write. So is, as errTurning, a node that goes by
// another map: it may take itself for the owner, and would go on reading an older version
// when this write is acknowledged.
func (n *Node) known(ctx context.Context, r *route) (answers, error) {
	nodes, settled := r.holders, n.trusts()
	if !settled {
		nodes = r.readable()
	}
	a := n.ask(ctx, r, nodes)
	for _, v := range a {
		if !settled && v.err == nil && v.node != r.self && v.placement != n.reconciler.hash() {
			return nil, errTurning
		}
		if v.err != nil && r.holder(v.node) {
			switch {
			case v.node != r.self:
				return nil, r.unreached(v.node, v.err)
			case !errs.IsCode(v.err, errs.Unavailable):
				return nil, v.err
			} // else a disk is away; what it had others may have
		}
	}
	return a, nil
}

// errTurning tells that not all nodes go by the same map yet.
var errTurning = errs.New(errs.Unavailable, "write", "the cluster map is changing: not all nodes have the new one yet")

// turned does something again as long as the nodes don't go by the same map, for a while.
func (n *Node) turned(ctx context.Context, do func() error) error {
	for deadline := time.Now().Add(turnPatience); ; {
		err := do()
		if err != errTurning || time.Now().After(deadline) || !pause(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// unreached makes of whatever a holder's silence looks like an error that says so.
func (r *route) unreached(node int, err error) error {
	e := errs.Flatten(r.of(node, err))
	switch e.Code {
	case errs.Unavailable, errs.NoSpace, errs.TooManyRequests, errs.ReadOnly:
	default:
		e.Msg = e.Code.String() + ": " + e.Msg
		e.Code = errs.Unavailable
	}
	return e
}

// owner gives the address of the node that a call for a name is to be passed on to, "" when
// this node answers it. A write that was passed on already comes by the caller's map; this
// node's may be a moment older.
func (n *Node) owner(ctx context.Context, bucket, object string, forwarded bool) (string, error) {
	h := peer.HashObject(bucket, object)
	var deadline time.Time
	for {
		st := n.state.Load()
		i := st.Map.Owner(h)
		switch {
		case i < 0:
			return "", &errs.Error{Code: errs.Unavailable, Bucket: bucket, Object: object, Msg: "no node of the cluster map is up"}
		case st.Map.Nodes[i].Name == st.Name:
			return "", nil
		case !forwarded:
			return st.Map.Nodes[i].Addr, nil
		case deadline.IsZero():
			deadline = time.Now().Add(ownerPatience)
		case time.Now().After(deadline):
			return "", &errs.Error{Code: errs.Unavailable, Bucket: bucket, Object: object, Node: st.Name,
				Msg: fmt.Sprintf("the cluster map is changing: node %s owns the object by version %d", st.Map.Nodes[i].Name, st.Map.Version)}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}
