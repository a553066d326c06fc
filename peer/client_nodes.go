package peer

import (
	"context"

	"sheaf/peer/wire"
)

// Status asks the node at addr about itself.
func (c *Client) Status(ctx context.Context, addr string) (NodeStatus, error) {
	var s NodeStatus
	err := c.At(ctx, addr, &Ask{Kind: wire.TStatus}, func(call *Call, h wire.Head) error { return call.R.Decode(&s) })
	return s, err
}

// Leave asks the node at addr to give its objects to the others and leave the cluster.
// It returns when the node has begun; Status tells how far it is.
func (c *Client) Leave(ctx context.Context, addr string) error {
	return c.At(ctx, addr, &Ask{Kind: wire.TLeave}, discardAt)
}

// ForceLeave tells the node at addr that a node has left the cluster for good: that one
// isn't asked, and what only it holds is lost. node may be the one at addr itself.
func (c *Client) ForceLeave(ctx context.Context, addr, node string) error {
	return c.At(ctx, addr, &LeaveRequest{Node: node, Force: true}, func(*Call, wire.Head) error { return nil })
}

// Rebalance asks the node at addr to look through all that it holds now, and bring it
// to where the map says.
func (c *Client) Rebalance(ctx context.Context, addr string) error {
	return c.At(ctx, addr, &Ask{Kind: wire.TRebalance}, discardAt)
}

// Mountpaths lists the mountpaths of the node at addr.
func (c *Client) Mountpaths(ctx context.Context, addr string) ([]MountpathStatus, error) {
	var m MountpathsMessage
	err := c.At(ctx, addr, &Ask{Kind: wire.TMountpathList}, func(call *Call, h wire.Head) error { return call.R.Decode(&m) })
	return m.Mountpaths, err
}

// SetMountpath enables or disables a mountpath of the node at addr. Enabling probes
// the disk.
func (c *Client) SetMountpath(ctx context.Context, addr, dir string, enabled bool) error {
	return c.At(ctx, addr, &MountpathSetRequest{Dir: dir, Enabled: enabled}, discardAt)
}
