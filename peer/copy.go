package peer

import (
	"context"

	"sheaf/peer/wire"
)

// CopyOptions are conditions on the object that is written.
type CopyOptions struct {
	IfAbsent  bool
	IfVersion uint64 // 0: any
}

// Copy writes an object under another name. NotFound when there is none of the first.
func (c *Client) Copy(ctx context.Context, from, to ObjectName, o CopyOptions) (ObjectInfo, error) {
	return c.copy(ctx, &CopyRequest{Kind: wire.TCopy, From: from, To: to, IfAbsent: o.IfAbsent, IfVersion: o.IfVersion})
}

// Rename is Copy followed by the deletion of the first name, unless that was written
// to meanwhile: then VersionMismatch, and both are there.
func (c *Client) Rename(ctx context.Context, from, to ObjectName, o CopyOptions) (ObjectInfo, error) {
	return c.copy(ctx, &CopyRequest{Kind: wire.TRename, From: from, To: to, IfAbsent: o.IfAbsent, IfVersion: o.IfVersion})
}

func (c *Client) copy(ctx context.Context, req *CopyRequest) (ObjectInfo, error) {
	if err := req.Check(); err != nil {
		return ObjectInfo{}, err
	}
	to := &ObjectRequest{Bucket: req.To.Bucket, Object: req.To.Object}
	addr, err := c.reachOwner(ctx, to.Bucket, to.Object)
	if err != nil {
		return ObjectInfo{}, named(err, to)
	}
	info, err := c.CopyAt(ctx, addr, req)
	return info, named(err, to)
}

// CopyAt asks the node at addr for a copy or rename, once.
func (c *Client) CopyAt(ctx context.Context, addr string, req *CopyRequest) (ObjectInfo, error) {
	var info ObjectMessage
	got := false
	_, err := c.once(ctx, addr, req, func(call *Call, h wire.Head) error { got = true; return call.R.Decode(&info) })
	return ObjectInfo(info), answered("copy", got, err)
}
