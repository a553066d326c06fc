package server

import (
	"context"

	"golang.org/x/sync/semaphore"

	"sheaf/peer"
)

// background makes what keeps objects where they belong, and sound, when nobody asks for
// them. It runs only from startBackground on.
func (n *Node) background() {
	n.replicas = semaphore.NewWeighted(replicaMemory)
	n.progress = loadProgress(n.o.Dirs, n.log)
	n.reconciler = newReconciler(n)
	n.board = newBoard(n)
	n.scrubber = newScrubber(n)
	n.metrics.backgroundMetrics.watch(n.registry, n)
	changed, lost := n.lookAtDisks()
	n.progress.set(func(s *savedProgress) { s.Clean, s.Disks = false, disks(n.store.Mountpaths()) })
	if changed || lost {
		n.resilverer.changed(lost)
	}
}

// startBackground sets it going; everything ends with n.ctx and is waited for by Close.
func (n *Node) startBackground() {
	n.wg.Go(func() { n.reconciler.run(n.ctx) })
	n.wg.Go(func() { n.reconciler.repairs.run(n.ctx) })
	n.wg.Go(func() { n.board.run(n.ctx) })
	n.wg.Go(func() { n.resilverer.run(n.ctx) })
	if n.o.ScrubEvery > 0 {
		n.wg.Go(func() { n.scrubber.run(n.ctx) })
	}
}

// fillStatus adds to a node's status how its background work goes.
func (n *Node) fillStatus(s *peer.NodeStatus) {
	p := newPlacement(n.state.Load())
	s.State, s.MapHash, s.Settled = p.nodeState(), p.st.Map.Hash(), n.settled()
	s.Reconcile, s.Scrub, s.Resilver = n.reconciler.status(), n.scrubber.get(), n.resilverer.get()
	s.Mountpaths = n.mountpaths()
	for _, m := range s.Mountpaths {
		s.Objects += m.Objects
	}
}

func (n *Node) serveRebalance(_ context.Context, c *peer.ServerCall) error {
	n.log.Info("rebalance asked for", "by", c.Name)
	n.reconciler.restart()
	return nil
}

// noteEnd notes that this process ends in order: all that it acknowledged is on disk, and no
// name waits to be repaired.
func (n *Node) noteEnd() {
	if n.progress != nil && n.reconciler.repairs.waiting() == 0 {
		n.progress.set(func(s *savedProgress) { s.Clean = true })
	}
}
