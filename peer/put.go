package peer

import (
	"context"
	"io"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// PutOptions are what is known of a payload before it is sent.
type PutOptions struct {
	Size      int64             // bytes; −1 when not known
	Sum       *uint64           // its xxh3-64; an object that has it already ends the call at once
	IfAbsent  bool              // AlreadyExists when the object is there
	IfVersion uint64            // VersionMismatch when the object has another, NotFound when there is none; 0: any
	Attrs     map[string]string // kept with the object (names.CheckAttrs)
}

// Put stores an object: acknowledged means on disk. r is read once; when it fails,
// or the context ends, nothing of the object is visible.
func (c *Client) Put(ctx context.Context, bucket, object string, r io.Reader, o PutOptions) (ObjectInfo, error) {
	return c.put(ctx, newPutRequest(bucket, object, o), r)
}

// Append adds to an object's end, or makes it when it isn't there; a reader sees the
// object before or after, never in between. Sum and Size are those of what is added.
func (c *Client) Append(ctx context.Context, bucket, object string, r io.Reader, o PutOptions) (ObjectInfo, error) {
	req := newPutRequest(bucket, object, o)
	req.Append = true
	return c.put(ctx, req, r)
}

func newPutRequest(bucket, object string, o PutOptions) *PutRequest {
	req := &PutRequest{Bucket: bucket, Object: object, Sized: o.Size >= 0, Size: max(o.Size, 0), IfAbsent: o.IfAbsent, IfVersion: o.IfVersion, Attrs: o.Attrs}
	if o.Sum != nil {
		req.Sum, req.Summed = *o.Sum, true
	}
	return req
}

func (c *Client) put(ctx context.Context, req *PutRequest, r io.Reader) (ObjectInfo, error) {
	if err := req.Check(); err != nil {
		return ObjectInfo{}, err
	}
	ref := &ObjectRequest{Bucket: req.Bucket, Object: req.Object}
	addr, err := c.reachOwner(ctx, req.Bucket, req.Object)
	if err != nil {
		return ObjectInfo{}, named(err, ref)
	}
	// Sent again it must have the same effect, and the bytes must still be there.
	seeker, rewinds := r.(io.Seeker)
	rewinds = rewinds && !req.Append && !req.IfAbsent && req.IfVersion == 0
	for {
		info, stale, err := c.putAt(ctx, addr, req, r)
		if errs.IsCode(err, errs.Unavailable) {
			c.stale.Store(true)
		}
		if !stale || !rewinds || ctx.Err() != nil {
			return info, named(err, ref)
		}
		if _, err := seeker.Seek(0, io.SeekStart); err != nil {
			return info, errs.Wrap(errs.CodeOf(err), "rewind", err)
		}
	}
}

// PutAt sends a PUT to the node at addr, once.
func (c *Client) PutAt(ctx context.Context, addr string, req *PutRequest, r io.Reader) (ObjectInfo, error) {
	info, _, err := c.putAt(ctx, addr, req, r)
	return info, err
}

// putAt also tells whether the call hit a connection that had died in the pool.
func (c *Client) putAt(ctx context.Context, addr string, req *PutRequest, r io.Reader) (_ ObjectInfo, stale bool, err error) {
	call, err := c.e.Open(ctx, addr)
	if err != nil {
		return ObjectInfo{}, false, err
	}
	defer func() {
		stale = errs.CodeOf(err) == errs.Unavailable && call.Stale()
		call.Close()
	}()
	if err := c.sendPut(call, req, r); err != nil {
		if _, ok := err.(*sendError); !ok {
			return ObjectInfo{}, false, err // the source failed; closing the call makes the node forget it
		}
		// The node stopped taking data: its trailer says why.
	}
	var info ObjectMessage
	for {
		h, _, err := call.Next()
		if err == io.EOF {
			return ObjectInfo(info), false, nil
		}
		if err == nil && h.Type == wire.TObject {
			err = call.R.Decode(&info)
		}
		if err != nil {
			return ObjectInfo{}, false, err
		}
	}
}

func (c *Client) sendPut(call *Call, req *PutRequest, r io.Reader) error {
	if err := call.W.Frame(req, nil); err != nil {
		return &sendError{err}
	}
	n, sum, err := SendBody(call.W, r)
	if err != nil {
		return err
	}
	if err := call.W.Frame(&wire.End{Bytes: uint64(n), Sum: sum}, nil); err != nil {
		return &sendError{err}
	}
	if err := call.CloseSend(); err != nil {
		return &sendError{err}
	}
	return nil
}
