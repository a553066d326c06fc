package peer

import (
	"context"
	"io"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// Get opens an object, a member or a range of either. The reader gives exactly the
// bytes asked for, checked against the sender's checksum at its end, and must be
// closed. Its errors are *errs.Error.
func (c *Client) Get(ctx context.Context, bucket, object string, o GetOptions) (ObjectInfo, io.ReadCloser, error) {
	req := &ObjectRequest{Kind: wire.TGet, Bucket: bucket, Object: object, Member: o.ArchPath, Start: o.Start, Length: o.Length}
	if err := req.Check(); err != nil {
		return ObjectInfo{}, nil, err
	}
	for {
		addr, err := c.owner(bucket, object)
		if err != nil {
			return ObjectInfo{}, nil, err
		}
		info, body, again, err := c.getAt(ctx, addr, req)
		if err == nil {
			return info, body, nil
		}
		if again {
			continue
		}
		if errs.CodeOf(err) == errs.Unavailable && ctx.Err() == nil && c.Refresh(ctx) == nil {
			if now, e := c.owner(bucket, object); e == nil && now != addr {
				continue
			}
		}
		return info, nil, named(err, req)
	}
}

// GetAt opens an object as the node at addr has it.
func (c *Client) GetAt(ctx context.Context, addr string, req *ObjectRequest) (ObjectInfo, io.ReadCloser, error) {
	for {
		info, body, again, err := c.getAt(ctx, addr, req)
		if err == nil || !again {
			return info, body, err
		}
	}
}

func (c *Client) getAt(ctx context.Context, addr string, req *ObjectRequest) (info ObjectInfo, body io.ReadCloser, again bool, err error) {
	call, err := c.e.Open(ctx, addr)
	if err != nil {
		return info, nil, false, err
	}
	defer func() {
		if err != nil {
			again = ctx.Err() == nil && errs.CodeOf(err) == errs.Unavailable && call.Stale()
			call.Close()
		}
	}()
	if err = call.W.Frame(req, nil); err == nil {
		err = call.CloseSend()
	}
	if err != nil {
		return info, nil, false, call.err("send", err)
	}
	_, _, err = call.Next()
	if err == io.EOF {
		err = errs.New(errs.Protocol, "get", "an answer without the object's description")
	}
	if err != nil {
		return info, nil, false, err
	}
	var m ObjectMessage
	if err = call.R.Decode(&m); err != nil {
		return info, nil, false, err
	}
	return ObjectInfo(m), &bodyReader{src: call}, false, nil
}
