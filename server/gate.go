package server

import (
	"context"
	"sync"
)

// gate sorts operations into turns: what began before a turn has ended when the turn is
// over. Commits and removals pass through it, and a change of placement turns it. So none
// that went by an older placement happens after this node has said that it goes by the
// newer. The zero gate is ready.
type gate struct {
	mu    sync.Mutex
	turns []*turn // guarded by mu: the last is the current one
}

// turn is the operations that began between two turns of the gate.
type turn struct {
	n     int
	empty chan struct{} // closed when n is 0 and the turn isn't the current one
}

// enter begins an operation; leave ends it. Read what the operation goes by after enter.
func (g *gate) enter() (leave func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.turns) == 0 {
		g.turns = append(g.turns, &turn{empty: make(chan struct{})})
	}
	t := g.turns[len(g.turns)-1]
	t.n++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if t.n--; t.n == 0 && t != g.turns[len(g.turns)-1] {
			close(t.empty)
		}
	}
}

// pass waits until all operations that began before it have ended, or ctx ends.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	var open []*turn
	for _, t := range g.turns {
		select {
		case <-t.empty:
		default:
			open = append(open, t)
		}
	}
	wait := open
	if k := len(open); k > 0 && open[k-1].n == 0 {
		wait = open[:k-1] // the current turn, with nothing in it: it goes on as the new one
	} else {
		open = append(open, &turn{empty: make(chan struct{})})
	}
	g.turns = open
	g.mu.Unlock()
	for _, t := range wait {
		select {
		case <-t.empty:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
