package server

import (
	"context"
	"fmt"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// serveLeave begins this node's departure, or notes another one's that can't do it itself.
func (n *Node) serveLeave(ctx context.Context, c *peer.ServerCall) error {
	var msg peer.LeaveRequest
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	if msg.Node != "" && msg.Node != n.Name() {
		return n.dismiss(ctx, &msg)
	}
	m := n.Map()
	if i := m.Find(n.Name()); i >= 0 && m.Nodes[i].State == peer.Left {
		return nil
	}
	if err := n.mayLeave(msg.Force); err != nil {
		return err
	}
	if msg.Force {
		return n.left(ctx)
	}
	n.log.Info("leaving the cluster: giving objects to the others")
	if _, err := n.want(peer.Leaving); err != nil {
		return err
	}
	n.push(ctx)
	return nil
}

// mayLeave refuses when the nodes that stay are too few for what the buckets ask for.
func (n *Node) mayLeave(force bool) error {
	st := n.state.Load()
	stay := 0
	for _, node := range st.Map.Nodes {
		if node.State == peer.Up && node.Name != st.Name {
			stay++
		}
	}
	refuse := func(format string, a ...any) error {
		return errs.New(errs.InvalidArgument, "leave", fmt.Sprintf(format, a...))
	}
	if stay == 0 {
		return refuse("no other node of the cluster is up")
	}
	for _, b := range st.sortedBuckets(false) {
		if b.Copies > stay && !force {
			return refuse("bucket %q has %d copies, and %d nodes would stay: give it fewer copies, or add a node first", b.Name, b.Copies, stay)
		}
	}
	return nil
}

// dismiss makes a node that is dead one that has left.
func (n *Node) dismiss(ctx context.Context, msg *peer.LeaveRequest) error {
	m := n.Map()
	i := m.Find(msg.Node)
	if i < 0 {
		return errs.New(errs.NotFound, "leave", fmt.Sprintf("the cluster map has no node %q", msg.Node))
	}
	node := m.Nodes[i]
	switch {
	case node.State == peer.Left:
		return nil
	case !msg.Force:
		return n.calls.At(ctx, node.Addr, &peer.LeaveRequest{}, func(*peer.Call, wire.Head) error { return nil })
	case node.State != peer.Down:
		return errs.New(errs.InvalidArgument, "leave", fmt.Sprintf("node %q is %s, not down: ask it to leave, or stop it first", node.Name, node.State))
	}
	_, err := n.change(func(st *state) (*state, bool) {
		have := st.Map.Nodes[st.Map.Find(node.Name)] // a record never goes
		if have.State != peer.Down {
			return st, false // it is back
		}
		have.State, have.Epoch = peer.Left, have.Epoch+1
		return st.with(have), true
	})
	if err != nil {
		return err
	}
	n.push(ctx)
	return nil
}

// want changes what this node is while it is alive.
func (n *Node) want(s peer.NodeState) (bool, error) {
	return n.change(func(st *state) (*state, bool) {
		have := st.Map.Nodes[st.Map.Find(st.Name)] // enterMap came before
		if have.State == peer.Left || st.Want >= s {
			return st, false
		}
		have.State, have.Epoch = s, have.Epoch+1
		out := st.with(have)
		out.Want = s
		return out, true
	})
}

// left ends this node's departure: it holds nothing any more that others don't have. It
// answers no calls for objects from now on.
func (n *Node) left(ctx context.Context) error {
	if _, err := n.want(peer.Left); err != nil {
		return err
	}
	n.log.Info("this node has left the cluster")
	n.push(ctx)
	n.live.leave()
	return nil
}
