package server

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// update merges a view of the cluster into this node's. It tells whether anything was new.
func (n *Node) update(m *peer.Map, buckets []bucketRecord) (bool, error) {
	return n.change(func(st *state) (*state, bool) { return st.merge(m, buckets) })
}

// change replaces the state by the one that f makes of it, and saves it before it is
// used. It tells whether anything was new. The disks follow first: when they can't, or
// the process dies in between, the news count as not heard and come again.
func (n *Node) change(f func(st *state) (*state, bool)) (bool, error) {
	n.saving.Lock()
	defer n.saving.Unlock()
	old := n.state.Load()
	st, changed := f(old)
	refuted := false
	if me := n.me.Load(); me != nil {
		now := *me
		now.Epoch = nextEpoch(0)
		was := st
		st = st.asserted(now)
		refuted = st != was
	}
	if !changed && !refuted {
		return false, nil
	}
	var news []bucketRecord
	for _, b := range st.Buckets {
		if had, ok := old.Buckets[b.Name]; !ok || b.newer(had) {
			news = append(news, b)
		}
	}
	if err := n.applyRecords(old, news); err != nil {
		return false, err
	}
	if err := st.save(n.o.Dirs); err != nil {
		return false, err
	}
	n.state.Store(st)
	n.reconciler.look()
	n.tell(old, st)
	if refuted {
		n.spread()
	}
	return true, nil
}

// tell makes a change of the state known within this node, and its digest to the others.
func (n *Node) tell(old, st *state) {
	if st.Map != old.Map {
		n.log.Info("cluster map", "version", st.Map.Version, "up", st.Map.Count(peer.Up), "nodes", len(st.Map.Nodes)-st.Map.Count(peer.Left))
		for _, node := range st.Map.Nodes {
			i := old.Map.Find(node.Name)
			switch {
			case i < 0:
				n.log.Info("node "+node.State.String(), "which", node.Name, "addr", node.Addr, "before", "unknown")
			case old.Map.Nodes[i].State != node.State || old.Map.Nodes[i].Addr != node.Addr:
				n.log.Info("node "+node.State.String(), "which", node.Name, "addr", node.Addr, "before", old.Map.Nodes[i].State.String())
			}
		}
	}
	if i := st.Map.Find(st.Name); i >= 0 && st.Map.Nodes[i].State == peer.Left {
		n.leaving.Do(func() {
			if st.Want != peer.Left {
				n.log.Error("the others have taken this node out of the cluster: it serves no more. To join again it must begin with empty data folders")
			}
			close(n.gone)
		})
	}
	if n.live != nil {
		n.live.announce(st)
	}
}

// errGone is what a node answers that is no longer in the cluster.
func (n *Node) errGone() error {
	return &errs.Error{Code: errs.Unavailable, Op: "call", Node: n.Name(), Msg: "this node has left the cluster"}
}

// Gone is closed when this node has left the cluster, or was taken out of it.
func (n *Node) Gone() <-chan struct{} { return n.gone }

// exchange is the one call by which nodes share state: each sends its map and bucket
// records and merges the other's. kind is TMapPush, or TJoin to be taken in. It gives the
// name of the node that answered.
func (n *Node) exchange(ctx context.Context, addr string, kind wire.Type) (with string, err error) {
	call, err := n.ep.Open(ctx, addr)
	if err != nil {
		return "", err
	}
	defer call.Close()
	if err := n.writeState(call.W, kind); err != nil {
		return "", err
	}
	if err := call.W.Frame(&wire.End{}, nil); err != nil {
		return "", err
	}
	if err := call.CloseSend(); err != nil {
		return "", err
	}
	var view view
	for {
		h, _, err := call.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return "", err
		}
		if err := view.read(call.R, h, wire.TMap); err != nil {
			return "", err
		}
	}
	if err := n.stranger(&view); err != nil {
		return "", err
	}
	_, err = n.update(view.m, view.buckets)
	return view.from, err
}

// ready waits until this node has caught up with the others: a bucket may have been
// destroyed and made anew while it was away, and what lies here be of the old one.
func (n *Node) ready(ctx context.Context) error {
	select {
	case <-n.gone:
		return n.errGone()
	default:
	}
	select {
	case <-n.current:
		return nil
	case <-n.gone:
		return n.errGone()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) writeState(w *wire.Writer, kind wire.Type) error {
	st := n.state.Load()
	if err := w.Frame(&peer.MapMessage{Kind: kind, Map: st.Map, Node: st.Name}, nil); err != nil {
		return err
	}
	for _, b := range st.sortedBuckets(true) {
		if err := w.Frame(b.message(), nil); err != nil {
			return err
		}
	}
	return nil
}

// view is what another node sends of its state.
type view struct {
	from    string // its name
	m       *peer.Map
	buckets []bucketRecord
}

// read takes one frame of what writeState wrote.
func (v *view) read(r *wire.Reader, h wire.Head, kind wire.Type) error {
	switch h.Type {
	case kind:
		msg := peer.MapMessage{Kind: kind}
		if err := r.Decode(&msg); err != nil {
			return err
		}
		if msg.Map == nil {
			return errs.New(errs.Protocol, "state", "an empty map")
		}
		v.m, v.from = msg.Map, msg.Node
		return nil
	case wire.TBucket:
		msg := peer.BucketMessage{Kind: wire.TBucket}
		err := r.Decode(&msg)
		v.buckets = append(v.buckets, recordOf(&msg))
		return err
	}
	return errs.New(errs.Protocol, "state", fmt.Sprintf("message %d among the state", h.Type))
}

// receive reads a whole exchange from a caller.
func (v *view) receive(c *peer.ServerCall, kind wire.Type) error {
	for h := c.R.Head(); ; {
		if h.Type == wire.TEnd {
			return nil
		}
		if err := v.read(c.R, h, kind); err != nil {
			return err
		}
		var err error
		if h, err = c.R.Next(); err != nil {
			return errs.Wrap(errs.Protocol, "state", err)
		}
	}
}

// stranger refuses the view of another cluster: of another CA, or with no node in common
// that would tie it to this one.
func (n *Node) stranger(v *view) error {
	if v.m == nil {
		return errs.New(errs.Protocol, "state", "no map")
	}
	mine := n.Map()
	if v.m.Cluster != "" && mine.Cluster != "" && v.m.Cluster != mine.Cluster {
		return errs.New(errs.InvalidArgument, "state", fmt.Sprintf("node %q is of cluster %s, this one of %s", v.from, v.m.Cluster, mine.Cluster))
	}
	for _, node := range v.m.Nodes {
		if mine.Find(node.Name) >= 0 {
			return nil
		}
	}
	return errs.New(errs.InvalidArgument, "state", fmt.Sprintf("node %q is of a cluster of its own: the two have no node in common, and clusters can't be merged", v.from))
}

func (n *Node) servePush(_ context.Context, c *peer.ServerCall) error {
	var v view
	if err := v.receive(c, wire.TMapPush); err != nil {
		return err
	}
	if err := n.stranger(&v); err != nil {
		return err
	}
	if _, err := n.update(v.m, v.buckets); err != nil {
		return err
	}
	n.catchup.meet(v.from)
	return n.writeState(c.W, wire.TMap)
}

// exchangeTimeout bounds an exchange of state.
const exchangeTimeout = 5 * time.Second

// push exchanges state with all other nodes that serve. One that doesn't answer learns of
// it later.
func (n *Node) push(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, node := range n.Map().Nodes {
		if node.Name == n.Name() || !node.State.Readable() {
			continue
		}
		wg.Go(func() {
			if _, err := n.exchange(ctx, node.Addr, wire.TMapPush); err != nil && n.ctx.Err() == nil {
				n.log.Warn("exchange of state failed", "with", node.Name, "addr", node.Addr, "err", err)
			}
		})
	}
	wg.Wait()
}

// gossip exchanges state with a random node now and then, so that one that missed a
// push catches up.
func (n *Node) gossip() {
	t := time.NewTicker(n.o.GossipEvery)
	defer t.Stop()
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		m := n.Map()
		among := m.Readable()
		if len(among) == 0 {
			continue
		}
		node := m.Nodes[among[rand.IntN(len(among))]]
		if node.Name == n.Name() {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, exchangeTimeout)
		if _, err := n.exchange(ctx, node.Addr, wire.TMapPush); err != nil && n.ctx.Err() == nil {
			n.log.Debug("exchange of state failed", "with", node.Name, "addr", node.Addr, "err", err)
		}
		cancel()
	}
}

func (n *Node) serveMap(_ context.Context, c *peer.ServerCall) error {
	return c.W.Frame(&peer.MapMessage{Kind: wire.TMap, Map: n.Map()}, nil)
}
