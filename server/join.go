package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// serveJoin takes a node into the cluster. It may be new, or known and back with another
// address or empty disks: reconciling brings it the objects that belong there.
func (n *Node) serveJoin(ctx context.Context, c *peer.ServerCall) error {
	var v view
	if err := v.receive(c, wire.TJoin); err != nil {
		return err
	}
	if err := n.mayJoin(ctx, &v); err != nil {
		return err
	}
	changed, err := n.update(v.m, v.buckets)
	if err != nil {
		return err
	}
	n.catchup.meet(v.from)
	if changed {
		n.spread()
	}
	return n.writeState(c.W, wire.TMap)
}

// mayJoin refuses a node whose name another one bears, that was taken out of the cluster,
// or that is of another cluster.
func (n *Node) mayJoin(ctx context.Context, v *view) error {
	mine := n.Map()
	if len(v.m.Nodes) > 1 { // not a node that has never been in a cluster
		if err := n.stranger(v); err != nil {
			return err
		}
	} else if v.m.Cluster != mine.Cluster {
		return errs.New(errs.InvalidArgument, "join", fmt.Sprintf("the node is of cluster %s, this one of %s", v.m.Cluster, mine.Cluster))
	}
	for _, node := range v.m.Nodes {
		i := mine.Find(node.Name)
		if i < 0 {
			continue
		}
		have := mine.Nodes[i]
		switch {
		case have.State == peer.Left && node.Name == v.from && !node.Newer(have):
			return errs.New(errs.InvalidArgument, "join", fmt.Sprintf("node %q was taken out of the cluster: it can join again with empty data folders", node.Name))
		case have.State == peer.Left, have.Addr == node.Addr, !node.Newer(have), !node.State.Readable():
			continue // an old record of another, which merging passes over; or nobody to be in the way
		}
		if err := n.vacant(ctx, have); err != nil {
			return err
		}
	}
	return nil
}

// vacant makes sure that nobody answers under a name's old address before another takes it.
func (n *Node) vacant(ctx context.Context, node peer.Node) error {
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

// join finds a node of the cluster and is taken in by it.
func (n *Node) join(ctx context.Context, known bool) error {
	if len(n.o.Join) == 0 {
		n.catchUpLater()
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
			var with string
			if with, err = n.exchange(ctx, addr, wire.TJoin); err == nil {
				n.catchup.meet(with)
				if known {
					n.catchUpLater()
				} else {
					n.catchUp(ctx) // no node may place objects by a map without this one
				}
				return nil
			}
			if c := errs.CodeOf(err); c != errs.Unavailable && c != errs.Timeout {
				return err
			}
			n.log.Warn("join: no answer yet", "addr", addr, "err", err)
		}
		if err == nil { // only this node itself was named
			n.catchUpLater()
			return nil
		}
		if known && len(n.Map().Nodes) > 1 {
			// It is a member already and needs nobody's leave: those who are there will hear of it.
			n.log.Warn("no node to join is there: going on with the cluster map on disk", "join", n.o.Join, "err", err)
			n.catchUpLater()
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errs.Wrap(errs.Unavailable, fmt.Sprintf("join %v within %v", n.o.Join, n.o.JoinTimeout), err)
		}
	}
}

// catchup is whom this node has exchanged state with since it started.
type catchup struct {
	mu  sync.Mutex
	met map[string]bool // guarded by mu
	now chan struct{}   // guarded by mu: closed when met grows
}

func newCatchup() *catchup { return &catchup{met: map[string]bool{}, now: make(chan struct{})} }

// meet notes that state was exchanged with a node, whoever called.
func (c *catchup) meet(node string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.met[node] {
		c.met[node] = true
		close(c.now)
		c.now = make(chan struct{})
	}
}

// left gives those of the nodes that weren't met, and a channel closed when one more is.
func (c *catchup) left(m *peer.Map) (nodes []peer.Node, now <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, node := range m.Nodes {
		if !c.met[node.Name] && node.State != peer.Left {
			nodes = append(nodes, node)
		}
	}
	return nodes, c.now
}

// catchUpLater is catchUp for a node that was a member before: the others may have
// learned something meanwhile; they may also not be up yet.
func (n *Node) catchUpLater() {
	n.catchup.meet(n.Name())
	if left, _ := n.catchup.left(n.Map()); len(left) == 0 {
		n.caughtUp() // it is alone
		return
	}
	n.wg.Go(func() { n.catchUp(n.ctx) }) // ends when all were asked, each for a time
}

// catchUp exchanges state with every node that can be reached, those included that it
// learns of meanwhile, and then lets the calls for objects in.
func (n *Node) catchUp(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	n.catchup.meet(n.Name())
	asked := map[string]bool{}
	for {
		left, now := n.catchup.left(n.Map())
		if len(left) == 0 || ctx.Err() != nil {
			break
		}
		for _, node := range left {
			if asked[node.Name] {
				continue
			}
			asked[node.Name] = true
			wg.Go(func() { // ends within the exchange's timeout
				ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
				defer cancel()
				if _, err := n.exchange(ctx, node.Addr, wire.TMapPush); err != nil && ctx.Err() == nil {
					n.log.Warn("exchange of state failed", "with", node.Name, "addr", node.Addr, "err", err)
				}
				n.catchup.meet(node.Name) // or is not there to be met
			})
		}
		select {
		case <-now:
		case <-ctx.Done():
		}
	}
	n.caughtUp()
}

// caughtUp lets the calls for objects in: this node knows what the others know.
func (n *Node) caughtUp() { n.catchUpOnce.Do(func() { close(n.current) }) }
