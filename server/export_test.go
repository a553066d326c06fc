package server

import (
	"context"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
	"time"
)

// Store is where a node keeps its objects.
func (n *Node) Store() *store.Store { return n.store }

// Unsettle makes a node believe, or not, that objects may lie anywhere.
func (n *Node) Unsettle(on bool) { n.faults.unsettled.Store(on) }

// FailCommits has f decide about the commits of other nodes' writes.
func (n *Node) FailCommits(f func(bucket, object string) error) { n.faults.commit.Store(&f) }

// Calls gives the calls that a node answers, with the role each needs.
func (n *Node) Calls() map[wire.Type]peer.Role { return n.ep.Calls() }

// ForgetTombstones lets go of the deletions before now, if that may be.
func (n *Node) ForgetTombstones(ctx context.Context) {
	n.reconciler.forgetTombstones(ctx, uint64(time.Now().UnixNano()))
}
