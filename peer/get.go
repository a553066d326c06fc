package peer

import (
	"context"
	"io"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// Get opens an object, a member or a range of either. The reader gives exactly the
// bytes asked for, checked against the sender's checksum at its end, and must be
// closed. When the node that they come from goes away, the rest is read from another
// that has the same version. Its errors are *errs.Error.
func (c *Client) Get(ctx context.Context, bucket, object string, o GetOptions) (ObjectInfo, io.ReadCloser, error) {
	req := &ObjectRequest{Kind: wire.TGet, Bucket: bucket, Object: object, Member: o.ArchPath, Start: o.Start, Length: o.Length}
	if err := req.Check(); err != nil {
		return ObjectInfo{}, nil, err
	}
	r, err := c.objectRoute(ctx, bucket, object)
	if err != nil {
		return ObjectInfo{}, nil, err
	}
	info, body, err := c.getRoute(ctx, r, req)
	if errs.IsCode(err, errs.Unavailable) && ctx.Err() == nil {
		if again, moved := c.moved(ctx, bucket, object, r); moved {
			info, body, err = c.getRoute(ctx, again, req)
		}
	}
	if err != nil {
		return info, nil, named(err, req)
	}
	return info, body, nil
}

// GetAny is Get from the first of several nodes that answers, with the request as it is.
func (c *Client) GetAny(ctx context.Context, addrs []string, req *ObjectRequest) (ObjectInfo, io.ReadCloser, error) {
	info, body, err := c.getRoute(ctx, &route{addrs: c.trust(addrs)}, req)
	if err != nil {
		return info, nil, err
	}
	return info, body, nil
}

// getRoute opens an object at the first node of a route that answers.
func (c *Client) getRoute(ctx context.Context, r *route, req *ObjectRequest) (ObjectInfo, *resumingBody, error) {
	var f failures
	for {
		addr, more, ok := r.next()
		if !ok {
			return ObjectInfo{}, nil, f.err
		}
		info, body, ended, err := c.getAt(ctx, addr, more, req)
		if err == nil {
			return info, newResumingBody(ctx, c, r, req, info, body), nil
		}
		if !elsewhere(ctx, err) || ended && errs.IsCode(err, errs.Timeout) {
			return info, nil, err
		}
		if !ended {
			c.stale.Store(true)
		}
		if f.add(err, ended) {
			return info, nil, f.err
		}
	}
}

// GetAt opens an object as the node at addr has it.
func (c *Client) GetAt(ctx context.Context, addr string, req *ObjectRequest) (ObjectInfo, io.ReadCloser, error) {
	info, body, _, err := c.getAt(ctx, addr, false, req)
	if err != nil {
		return info, nil, err
	}
	return info, body, nil
}

// getAt makes the call at one node, as attempt does.
func (c *Client) getAt(ctx context.Context, addr string, watched bool, req *ObjectRequest) (info ObjectInfo, body *bodyReader, ended bool, err error) {
	for {
		open := c.e.Open
		if watched {
			open = c.e.OpenWatched
		}
		call, err := open(ctx, addr)
		if err != nil {
			return info, nil, false, err
		}
		info, err := call.get(req)
		if err == nil {
			return info, &bodyReader{src: call}, false, nil
		}
		again := ctx.Err() == nil && errs.CodeOf(err) == errs.Unavailable && call.Stale() && !call.Lost()
		ended := call.ended
		call.Close()
		if !again {
			return info, nil, ended, err
		}
	}
}

// get sends the request and reads the answer up to the first Data.
func (c *Call) get(req *ObjectRequest) (ObjectInfo, error) {
	err := c.W.Frame(req, nil)
	if err == nil {
		err = c.CloseSend()
	}
	if err != nil {
		return ObjectInfo{}, c.err("send", err)
	}
	switch _, _, err := c.Next(); {
	case err == io.EOF:
		return ObjectInfo{}, errs.New(errs.Protocol, "get", "an answer without the object's description")
	case err != nil:
		return ObjectInfo{}, err
	}
	var m ObjectMessage
	if err := c.R.Decode(&m); err != nil {
		return ObjectInfo{}, err
	}
	return ObjectInfo(m), nil
}
