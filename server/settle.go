package server

import (
	"context"
	"sync"
	"time"

	"sheaf/peer"
	"sheaf/peer/wire"
)

const (
	settleTimeout = 2 * time.Second        // for a node to answer
	settleFirst   = 100 * time.Millisecond // before a node that didn't is told again
	settleMost    = 5 * time.Second
)

// board is what the nodes have told each other about their passes. A placement is settled
// when every node that serves objects has gone through all it holds by it: then each object
// lies with its holders, and an owner needs to ask nobody.
//
// A node tells the others when that changes for it, until each has answered; the answer is
// what the other says of itself. One goroutine does that.
type board struct {
	n    *Node
	news chan struct{} // holds one

	mu   sync.Mutex
	mine stage            // guarded by mu: what this node says of itself
	told map[string]stage // guarded by mu: what each node has heard of this one
	by   map[string]stage // guarded by mu: what each node says of itself
}

// stage is how far a node is, by the placements that it is there for.
type stage struct{ walked, settled uint64 }

func newBoard(n *Node) *board {
	return &board{n: n, news: make(chan struct{}, 1), told: map[string]stage{}, by: map[string]stage{}}
}

// settled tells whether every object lies with its holders and all nodes know it, so that
// what the owner has is the newest there is.
func (n *Node) settled() bool {
	p := n.reconciler.active.Load()
	if p == nil || p.st.Map != n.state.Load().Map {
		return false
	}
	b := n.board
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mine.settled != p.hash {
		return false
	}
	for _, i := range p.st.Map.Readable() {
		if i != p.self && b.by[p.st.Map.Nodes[i].Name].settled != p.hash {
			return false
		}
	}
	return true
}

// walkedAt is the placement by which a node last said it has gone through all it holds.
func (n *Node) walkedAt(node string) uint64 {
	n.board.mu.Lock()
	defer n.board.mu.Unlock()
	return n.board.by[node].walked
}

// announce tells the others where this node is, if that is news.
func (n *Node) announce() {
	n.board.review()
	n.board.wake()
}

// review finds out what this node has to say of itself.
func (b *board) review() {
	r := b.n.reconciler
	mine := stage{walked: r.walked.Load()}
	if over := r.over.Load(); over == r.hash() && !r.repairs.stale() {
		mine.settled = over
	}
	b.mu.Lock()
	news := b.mine != mine
	b.mine = mine
	b.mu.Unlock()
	if news {
		r.hear()
	}
}

func (b *board) wake() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// say is what this node says of itself.
func (b *board) say() *peer.SettledMessage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return &peer.SettledMessage{Node: b.n.Name(), Placement: b.n.reconciler.hash(), Walked: b.mine.walked, Settled: b.mine.settled}
}

// hear takes what a node says of itself.
func (b *board) hear(m *peer.SettledMessage) {
	b.mu.Lock()
	is := stage{m.Walked, m.Settled}
	news := b.by[m.Node] != is
	b.by[m.Node] = is
	b.mu.Unlock()
	if news {
		b.n.reconciler.hear()
	}
}

// serveSettled takes what another node says of itself.
func (n *Node) serveSettled(_ context.Context, c *peer.ServerCall) error {
	var m peer.SettledMessage
	if err := c.R.Decode(&m); err != nil {
		return err
	}
	if n.Map().Find(m.Node) >= 0 {
		n.board.hear(&m)
	}
	return c.W.Frame(n.board.say(), nil)
}

// pending gives the nodes that don't know what this one says, or haven't said that they are
// settled as this one is.
func (b *board) pending() (nodes []string) {
	p := b.n.reconciler.active.Load()
	if p == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, node := range p.others() {
		told, ok := b.told[node]
		if !ok || told != b.mine || b.by[node].settled != p.hash && b.mine.settled == p.hash {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// run is the board's goroutine; it ends with ctx, and what it began has ended by then.
func (b *board) run(ctx context.Context) {
	pause := settleFirst
	for ctx.Err() == nil {
		b.review()
		nodes := b.pending()
		var wg sync.WaitGroup
		for _, node := range nodes {
			wg.Go(func() { b.tell(ctx, node) })
		}
		wg.Wait()
		if len(nodes) == 0 {
			pause = settleMost
		}
		select {
		case <-ctx.Done():
		case <-b.news:
			pause = settleFirst
		case <-time.After(pause):
			pause = min(2*pause, settleMost)
		}
	}
}

// tell tells one node.
func (b *board) tell(ctx context.Context, node string) {
	p := b.n.reconciler.active.Load()
	if p == nil || p.addr(node) == "" {
		return
	}
	addr := p.addr(node)
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	say := b.say()
	m, err := b.n.calls.SettledAt(ctx, addr, say)
	if err != nil || m.Node != node {
		return // it is told again
	}
	b.mu.Lock()
	b.told[node] = stage{say.Walked, say.Settled}
	b.mu.Unlock()
	b.hear(&m)
	if m.Placement != say.Placement {
		// One of the two knows a newer map, and both shall.
		if _, err := b.n.exchange(ctx, addr, wire.TMapPush); err != nil && ctx.Err() == nil {
			b.n.log.Debug("exchange of state failed", "with", node, "err", err)
		}
	}
}
