package server

import (
	"context"
	"fmt"
	"io"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// measured counts a call and its time by its outcome.
func (n *Node) measured(op string, h peer.HandlerFunc) peer.HandlerFunc {
	return func(ctx context.Context, c *peer.ServerCall) error {
		start := time.Now()
		err := n.ready(ctx)
		if err == nil {
			err = h(ctx, c)
		}
		if err != nil && ctx.Err() != nil {
			err = errs.Wrap(errs.Canceled, op, err) // the caller went away: whatever failed, that is why
		}
		n.metrics.called(op, start, err)
		if code := errs.CodeOf(err); code == errs.Internal || code == errs.ChecksumMismatch || code == errs.NoSpace {
			n.log.Error("call failed", "op", op, "from", c.Name, "err", err)
		}
		return err
	}
}

// elsewhere gives the owner's address when an object isn't this node's, "" when it is
// or when the call has been passed on already.
func (n *Node) elsewhere(bucket, object string, forwarded bool) string {
	if forwarded {
		return ""
	}
	m := n.Map()
	i := m.Owner(peer.HashObject(bucket, object))
	if i < 0 || m.Nodes[i].Name == n.Name() {
		return ""
	}
	return m.Nodes[i].Addr
}

// needs is the right to its bucket that an object call takes.
func needs(kind wire.Type) peer.Role {
	switch kind {
	case wire.TGet, wire.THead, wire.TMembers:
		return peer.Reader
	}
	return peer.Writer
}

// request reads an object call and settles who answers it.
func (n *Node) request(c *peer.ServerCall, kind wire.Type) (req *peer.ObjectRequest, owner string, err error) {
	req = &peer.ObjectRequest{Kind: kind}
	if err := c.R.Decode(req); err != nil {
		return nil, "", err
	}
	if err := req.Check(); err != nil {
		return nil, "", err
	}
	if err := c.Allow(req.Bucket, needs(kind)); err != nil {
		return nil, "", err
	}
	if owner = n.elsewhere(req.Bucket, req.Object, req.Forwarded); owner == "" {
		return req, "", n.needBucket(req.Bucket)
	}
	req.Forwarded = true
	return req, owner, nil
}

func (n *Node) servePut(ctx context.Context, c *peer.ServerCall) error {
	var req peer.PutRequest
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := c.Allow(req.Bucket, peer.Writer); err != nil {
		return err
	}
	body := peer.ReceiveBody(c.R)
	var info peer.ObjectInfo
	if owner := n.elsewhere(req.Bucket, req.Object, req.Forwarded); owner != "" {
		req.Forwarded = true
		var err error
		if info, err = n.calls.PutAt(ctx, owner, &req, body); err != nil {
			return err
		}
	} else {
		if err := n.needBucket(req.Bucket); err != nil {
			return err
		}
		o := store.PutOptions{Size: -1}
		if req.Sized {
			o.Size = req.Size
		}
		if req.Summed {
			o.Checksum = &req.Sum
		}
		got, err := n.store.Put(ctx, req.Bucket, req.Object, body, o)
		if err != nil {
			return err
		}
		n.metrics.written.Add(float64(got.Size))
		info = objectInfo(got)
	}
	return c.W.Frame((*peer.ObjectMessage)(&info), nil)
}

func (n *Node) serveGet(ctx context.Context, c *peer.ServerCall) error {
	req, owner, err := n.request(c, wire.TGet)
	if err != nil {
		return err
	}
	if owner != "" {
		info, body, err := n.calls.GetAt(ctx, owner, req)
		if err != nil {
			return err
		}
		defer body.Close()
		if err := c.W.Frame((*peer.ObjectMessage)(&info), nil); err != nil {
			return err
		}
		return n.sendBody(c, body, -1, 0, false)
	}
	e := &batching.Entry{Bucket: req.Bucket, ObjName: req.Object, ArchPath: req.Member, Start: req.Start, Length: req.Length}
	if err := checkRange(e); err != nil {
		return err
	}
	info, p, err := n.openEntry(ctx, e)
	if err != nil {
		return err
	}
	defer p.Close()
	if err := c.W.Frame((*peer.ObjectMessage)(&info), nil); err != nil {
		return err
	}
	n.metrics.read.Add(float64(p.Size))
	return n.sendBody(c, io.NewSectionReader(p.R, p.Off, p.Size), p.Size, p.Sum, p.Summed)
}

// checkRange refuses what no object could satisfy.
func checkRange(e *batching.Entry) error {
	if e.Start < 0 || e.Length < -1 || e.Start > 0 && e.Length == 0 {
		return &errs.Error{Code: errs.InvalidArgument, Op: "get", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
			Msg: fmt.Sprintf("start %d length %d: both 0 mean the whole, length −1 to the end, a start needs a length", e.Start, e.Length)}
	}
	return nil
}

// sendBody sends size bytes of r (−1: to its end), with what the trailer says of them.
func (n *Node) sendBody(c *peer.ServerCall, r io.Reader, size int64, want uint64, check bool) error {
	sent, sum, err := peer.SendBody(c.W, r)
	switch {
	case err != nil:
		return err
	case size >= 0 && sent != size:
		return errs.New(errs.ChecksumMismatch, "get", fmt.Sprintf("%d of %d bytes are on disk", sent, size))
	case check && sum != want:
		return errs.New(errs.ChecksumMismatch, "get", "the bytes on disk aren't those that were stored")
	}
	c.End.Bytes, c.End.Sum = uint64(sent), sum
	return nil
}

func (n *Node) serveHead(ctx context.Context, c *peer.ServerCall) error {
	req, owner, err := n.request(c, wire.THead)
	if err != nil {
		return err
	}
	if owner != "" {
		return n.relay(ctx, c, owner, req)
	}
	var info peer.ObjectInfo
	if req.Member == "" {
		got, err := n.store.Stat(req.Bucket, req.Object)
		if err != nil {
			return err
		}
		info = objectInfo(got)
	} else {
		var p batching.Payload
		if info, p, err = n.openEntry(ctx, &batching.Entry{Bucket: req.Bucket, ObjName: req.Object, ArchPath: req.Member}); err != nil {
			return err
		}
		p.Close()
	}
	return c.W.Frame((*peer.ObjectMessage)(&info), nil)
}

func (n *Node) serveDelete(ctx context.Context, c *peer.ServerCall) error {
	req, owner, err := n.request(c, wire.TDelete)
	if err != nil {
		return err
	}
	if owner != "" {
		return n.relay(ctx, c, owner, req)
	}
	if !names.IsShard(req.Object) {
		_, err = n.store.Delete(req.Bucket, req.Object, 0, store.Condition{})
		return err
	}
	defer n.shards.drop(req.Bucket, req.Object)
	_, err = n.store.Delete(req.Bucket, req.Object, 0, store.Condition{})
	return err
}

func (n *Node) serveMembers(ctx context.Context, c *peer.ServerCall) error {
	req, owner, err := n.request(c, wire.TMembers)
	if err != nil {
		return err
	}
	if owner != "" {
		return n.relay(ctx, c, owner, req)
	}
	obj, x, err := n.shards.open(ctx, req.Bucket, req.Object)
	if err != nil {
		return err
	}
	defer obj.Close()
	info := objectInfo(obj.Info())
	if err := c.W.Frame((*peer.ObjectMessage)(&info), nil); err != nil {
		return err
	}
	t := peer.NewTableWriter(c.W)
	for m := range x.All() {
		if err := t.Add(peer.MemberInfo{Name: m.Name, Size: m.Size, ModTime: m.ModTime}); err != nil {
			return err
		}
	}
	return t.Flush()
}

// relay passes a call to the owner and its frames, which have no payload, back.
func (n *Node) relay(ctx context.Context, c *peer.ServerCall, owner string, req *peer.ObjectRequest) error {
	return n.calls.At(ctx, owner, req, func(call *peer.Call, h wire.Head) error {
		var m wire.Message
		switch h.Type {
		case wire.TObject:
			m = new(peer.ObjectMessage)
		case wire.TTable:
			m = new(peer.TableMessage)
		default:
			return errs.New(errs.Protocol, "relay", fmt.Sprintf("message %d isn't an answer to %d", h.Type, req.Kind))
		}
		if err := call.R.Decode(m); err != nil {
			return err
		}
		return c.W.Frame(m, nil)
	})
}
