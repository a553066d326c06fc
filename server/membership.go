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

// update merges a view of the cluster into this node's and saves the result before it
// is used. It tells whether anything was new. The disks follow first: when they can't, or
// the process dies in between, the news count as not heard and come again.
func (n *Node) update(m *peer.Map, buckets []bucketRecord) (bool, error) {
	n.saving.Lock()
	defer n.saving.Unlock()
	old := n.state.Load()
	st, changed := old.merge(m, buckets)
	if !changed {
		return false, nil
	}
	var news []bucketRecord
	for _, b := range buckets {
		if st.Buckets[b.Name].Epoch == b.Epoch && old.Buckets[b.Name].Epoch != b.Epoch {
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
	if st.Map != old.Map {
		n.log.Info("cluster map", "version", st.Map.Version, "nodes", len(st.Map.Nodes))
	}
	return true, nil
}

// exchange is the one call by which nodes share state: each sends its map and bucket
// records and merges the other's. kind is TMapPush, or TJoin to be taken in.
func (n *Node) exchange(ctx context.Context, addr string, kind wire.Type) error {
	call, err := n.ep.Open(ctx, addr)
	if err != nil {
		return err
	}
	defer call.Close()
	if err := n.writeState(call.W, kind); err != nil {
		return err
	}
	if err := call.W.Frame(&wire.End{}, nil); err != nil {
		return err
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	var m *peer.Map
	var buckets []bucketRecord
	for {
		h, _, err := call.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if err := readState(call.R, h, wire.TMap, &m, &buckets); err != nil {
			return err
		}
	}
	if _, err = n.update(m, buckets); err == nil {
		n.caughtUp()
	}
	return err
}

// caughtUp lets the calls for objects in: this node knows what another one knows.
func (n *Node) caughtUp() { n.catchUp.Do(func() { close(n.current) }) }

// ready waits until this node has caught up with the others: a bucket may have been
// destroyed and made anew while it was away, and what lies here be of the old one.
func (n *Node) ready(ctx context.Context) error {
	select {
	case <-n.current:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) writeState(w *wire.Writer, kind wire.Type) error {
	st := n.state.Load()
	if err := w.Frame(&peer.MapMessage{Kind: kind, Map: st.Map}, nil); err != nil {
		return err
	}
	for _, b := range st.sortedBuckets(true) {
		if err := w.Frame(b.message(), nil); err != nil {
			return err
		}
	}
	return nil
}

// readState takes one frame of what writeState wrote.
func readState(r *wire.Reader, h wire.Head, kind wire.Type, m **peer.Map, buckets *[]bucketRecord) error {
	switch h.Type {
	case kind:
		msg := peer.MapMessage{Kind: kind}
		err := r.Decode(&msg)
		if err == nil && msg.Map == nil {
			err = errs.New(errs.Protocol, "state", "an empty map")
		}
		*m = msg.Map
		return err
	case wire.TBucket:
		msg := peer.BucketMessage{Kind: wire.TBucket}
		err := r.Decode(&msg)
		*buckets = append(*buckets, recordOf(&msg))
		return err
	}
	return errs.New(errs.Protocol, "state", fmt.Sprintf("message %d among the state", h.Type))
}

// receiveState reads a whole exchange from a caller.
func receiveState(c *peer.ServerCall, kind wire.Type) (m *peer.Map, buckets []bucketRecord, err error) {
	msg := peer.MapMessage{Kind: kind}
	if err := c.R.Decode(&msg); err != nil {
		return nil, nil, err
	}
	if msg.Map == nil {
		return nil, nil, errs.New(errs.Protocol, "state", "an empty map")
	}
	for {
		h, err := c.R.Next()
		if err != nil {
			return nil, nil, errs.Wrap(errs.Protocol, "state", err)
		}
		if h.Type == wire.TEnd {
			return msg.Map, buckets, nil
		}
		if err := readState(c.R, h, kind, &msg.Map, &buckets); err != nil {
			return nil, nil, err
		}
	}
}

func (n *Node) servePush(ctx context.Context, c *peer.ServerCall) error {
	m, buckets, err := receiveState(c, wire.TMapPush)
	if err != nil {
		return err
	}
	if _, err := n.update(m, buckets); err != nil {
		return err
	}
	n.caughtUp()
	return n.writeState(c.W, wire.TMap)
}

// serveJoin takes a node into the cluster. Objects are placed by the map, and nothing
// moves them yet when it grows: so a node that is new may only come while there are none.
func (n *Node) serveJoin(ctx context.Context, c *peer.ServerCall) error {
	m, buckets, err := receiveState(c, wire.TJoin)
	if err != nil {
		return err
	}
	mine := n.Map()
	for _, node := range m.Nodes {
		i := mine.Find(node.Name)
		if i >= 0 && (mine.Nodes[i].Addr == node.Addr || node.Epoch < mine.Nodes[i].Epoch) {
			continue // an old record of another, which merging passes over
		}
		if i >= 0 {
			if err := n.gone(ctx, mine.Nodes[i]); err != nil {
				return err
			}
			continue
		}
		if err := n.empty(ctx); err != nil {
			return err
		}
	}
	changed, err := n.update(m, buckets)
	if err != nil {
		return err
	}
	if changed {
		n.wg.Go(func() { n.push(n.ctx) })
	}
	return n.writeState(c.W, wire.TMap)
}

// gone makes sure that nobody answers under a name's old address before another takes it.
func (n *Node) gone(ctx context.Context, node peer.Node) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if node.Name != n.Name() {
		st, err := n.calls.Status(ctx, node.Addr)
		if err != nil || st.Name != node.Name {
			return nil
		}
	}
	return errs.New(errs.AlreadyExists, "join", fmt.Sprintf("a node named %q is there, at %s", node.Name, node.Addr))
}

// empty refuses to go on when any node holds objects.
func (n *Node) empty(ctx context.Context) error {
	for _, b := range n.state.Load().sortedBuckets(false) {
		page, err := n.list(ctx, b.Name, peer.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Objects) > 0 {
			return errs.New(errs.NotSupported, "join", fmt.Sprintf("the cluster holds objects (in bucket %q): this version doesn't move them, so all nodes must join before the first PUT", b.Name))
		}
	}
	return nil
}

// join finds a node of the cluster and is taken in by it.
func (n *Node) join(ctx context.Context, known bool) error {
	if len(n.o.Join) == 0 {
		if !known {
			n.caughtUp()
			return nil
		}
		n.pushLater()
		return nil
	}
	if m := n.Map(); len(m.Nodes) == 1 {
		if has, err := n.store.HasObjects(); err != nil {
			return err
		} else if has {
			return errs.New(errs.NotSupported, "join", "the data folder holds objects of a cluster of its own: they would not be found in another")
		}
	}
	ctx, cancel := context.WithTimeout(ctx, n.o.JoinTimeout)
	defer cancel()
	for pause := 200 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		var err error
		for _, addr := range n.o.Join {
			if addr == n.Addr() {
				continue
			}
			if err = n.exchange(ctx, addr, wire.TJoin); err == nil {
				if known {
					n.wg.Go(func() { n.push(n.ctx) }) // ends within push's timeout
				} else {
					n.push(ctx) // no node may place objects by a map without this one
				}
				return nil
			}
			if c := errs.CodeOf(err); c != errs.Unavailable && c != errs.Timeout {
				return err
			}
			n.log.Warn("join: no answer yet", "addr", addr, "err", err)
		}
		if err == nil {
			n.caughtUp()
			return nil // only this node itself was named
		}
		if known && len(n.Map().Nodes) > 1 {
			// It is a member already and needs nobody's leave: those who are there will hear of it.
			n.log.Warn("no node to join is there: going on with the cluster map on disk", "join", n.o.Join, "err", err)
			n.pushLater()
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errs.Wrap(errs.Unavailable, fmt.Sprintf("join %v within %v", n.o.Join, n.o.JoinTimeout), err)
		}
	}
}

// pushLater is push for a node that was a member before: the others may have learned
// something meanwhile; they may also not be up yet.
func (n *Node) pushLater() {
	n.wg.Go(func() { // ends within push's timeout
		n.push(n.ctx)
		n.caughtUp()
	})
}

// push exchanges state with all other nodes. One that doesn't answer learns of it later.
func (n *Node) push(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, node := range n.Map().Nodes {
		if node.Name == n.Name() {
			continue
		}
		wg.Go(func() {
			if err := n.exchange(ctx, node.Addr, wire.TMapPush); err != nil && n.ctx.Err() == nil {
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
		nodes := n.Map().Nodes
		node := nodes[rand.IntN(len(nodes))]
		if node.Name == n.Name() {
			continue
		}
		ctx, cancel := context.WithTimeout(n.ctx, 5*time.Second)
		if err := n.exchange(ctx, node.Addr, wire.TMapPush); err != nil && n.ctx.Err() == nil {
			n.log.Debug("exchange of state failed", "with", node.Name, "addr", node.Addr, "err", err)
		}
		cancel()
	}
}

func (n *Node) serveMap(_ context.Context, c *peer.ServerCall) error {
	return c.W.Frame(&peer.MapMessage{Kind: wire.TMap, Map: n.Map()}, nil)
}
