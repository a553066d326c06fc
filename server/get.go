package server

import (
	"context"
	"fmt"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// read reads a request to read an object and begins the search for a copy.
func (n *Node) read(c *peer.ServerCall, kind wire.Type) (*peer.ObjectRequest, *search, error) {
	req := &peer.ObjectRequest{Kind: kind}
	if err := c.R.Decode(req); err != nil {
		return nil, nil, err
	}
	if err := req.Check(); err != nil {
		return nil, nil, err
	}
	if err := c.Allow(req.Bucket, peer.Reader); err != nil {
		return nil, nil, err
	}
	s, err := n.search(req.Bucket, req.Object, req.Forwarded)
	return req, s, err
}

// onward is the request as it goes to a node that is to look on its own disks.
func onward(req *peer.ObjectRequest) *peer.ObjectRequest {
	on := *req
	on.Forwarded = true
	return &on
}

func (n *Node) serveGet(ctx context.Context, c *peer.ServerCall) error {
	req, s, err := n.read(c, wire.TGet)
	if err != nil {
		return err
	}
	e := &batching.Entry{Bucket: req.Bucket, ObjName: req.Object, ArchPath: req.Member, Start: req.Start, Length: req.Length}
	if err := checkRange(e); err != nil {
		return err
	}
	var info peer.ObjectInfo
	src := sourceFunc(func(ctx context.Context, e *batching.Entry) (batching.Payload, error) {
		return s.open(ctx, e, func(i peer.ObjectInfo) { info = i })
	})
	return batching.Feed(ctx, src, e, func(first, last bool, p *batching.Payload, data []byte, sum uint64) error {
		if first {
			if err := c.W.Frame((*peer.ObjectMessage)(&info), nil); err != nil {
				return err
			}
		}
		if len(data) > 0 {
			if err := c.W.Frame(&peer.Data{}, data); err != nil {
				return err
			}
			n.metrics.read.Add(float64(len(data)))
		}
		if last {
			c.End.Bytes, c.End.Sum = uint64(p.Size), sum
		}
		return nil
	})
}

// checkRange refuses what no object could satisfy.
func checkRange(e *batching.Entry) error {
	if e.Start < 0 || e.Length < -1 || e.Start > 0 && e.Length == 0 {
		return &errs.Error{Code: errs.InvalidArgument, Op: "get", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
			Msg: fmt.Sprintf("start %d length %d: both 0 mean the whole, length −1 to the end, a start needs a length", e.Start, e.Length)}
	}
	return nil
}

func (n *Node) serveHead(ctx context.Context, c *peer.ServerCall) error {
	req, s, err := n.read(c, wire.THead)
	if err != nil {
		return err
	}
	return s.each(ctx, func() error {
		info, err := n.head(ctx, s.r, req)
		if err != nil {
			return err
		}
		return c.W.Frame((*peer.ObjectMessage)(&info), nil)
	}, func(_ int, addr string) error { return n.relay(ctx, c, addr, onward(req)) })
}

// head describes an object or member that lies here.
func (n *Node) head(ctx context.Context, r *route, req *peer.ObjectRequest) (peer.ObjectInfo, error) {
	if r.rec.Backend != "" {
		return n.headRemote(ctx, r, req)
	}
	if req.Member == "" {
		info, err := n.store.Stat(req.Bucket, req.Object)
		return objectInfo(info), err
	}
	info, p, err := n.openEntry(ctx, &batching.Entry{Bucket: req.Bucket, ObjName: req.Object, ArchPath: req.Member})
	p.Close()
	return info, err
}

func (n *Node) serveMembers(ctx context.Context, c *peer.ServerCall) error {
	req, s, err := n.read(c, wire.TMembers)
	if err != nil {
		return err
	}
	return s.each(ctx, func() error { return n.members(ctx, c, s.r, req) },
		func(_ int, addr string) error { return n.relay(ctx, c, addr, onward(req)) })
}

// members lists the members of a shard that lies here.
func (n *Node) members(ctx context.Context, c *peer.ServerCall, r *route, req *peer.ObjectRequest) error {
	if r.rec.Backend != "" {
		if err := n.needKept(ctx, r); err != nil {
			return err
		}
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
