package server

import (
	"context"
	"io"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// copyRequest reads a request for a copy or rename and passes it on to the owner of the name
// that decides about it: of the new one for a copy, of the first one for a rename. on is nil
// when this node answers, and info is what the other node said else.
func (n *Node) copyRequest(ctx context.Context, c *peer.ServerCall, kind wire.Type) (req *peer.CopyRequest, info peer.ObjectInfo, passed bool, err error) {
	req = &peer.CopyRequest{Kind: kind}
	if err := c.R.Decode(req); err != nil {
		return nil, info, false, err
	}
	if err := req.Check(); err != nil {
		return nil, info, false, err
	}
	from := peer.Reader
	if kind == wire.TRename {
		from = peer.Writer
	}
	if err := c.Allow(req.From.Bucket, from); err != nil {
		return nil, info, false, err
	}
	if err := c.Allow(req.To.Bucket, peer.Writer); err != nil {
		return nil, info, false, err
	}
	for _, b := range []string{req.From.Bucket, req.To.Bucket} {
		if err := n.needBucket(b); err != nil {
			return nil, info, false, err
		}
	}
	decides := req.To
	if kind == wire.TRename {
		decides = req.From
	}
	addr, err := n.owner(ctx, decides.Bucket, decides.Object, req.Forwarded)
	if err != nil || addr == "" {
		return req, info, false, err
	}
	on := *req
	on.Forwarded = true
	info, err = n.calls.CopyAt(ctx, addr, &on)
	return req, info, true, err
}

func (n *Node) serveCopy(ctx context.Context, c *peer.ServerCall) error {
	req, info, passed, err := n.copyRequest(ctx, c, wire.TCopy)
	if err == nil && !passed {
		info, err = n.copy(ctx, req, true)
	}
	if err != nil {
		return err
	}
	return c.W.Frame((*peer.ObjectMessage)(&info), nil)
}

// copy writes an object under another name. same: an object of that name with the same
// bytes will do.
func (n *Node) copy(ctx context.Context, req *peer.CopyRequest, same bool) (peer.ObjectInfo, error) {
	s, err := n.search(req.From.Bucket, req.From.Object, false)
	if err != nil {
		return peer.ObjectInfo{}, err
	}
	from, body, err := s.stream(ctx)
	if err != nil {
		return peer.ObjectInfo{}, err
	}
	defer body.Close()
	if req.From == req.To {
		switch {
		case req.IfAbsent:
			return from, s.r.fail(errs.AlreadyExists, "an object can't be absent and be copied to itself", "")
		case req.IfVersion != 0 && req.IfVersion != from.Version:
			return from, s.r.check(store.Condition{Version: req.IfVersion}, answers{{VersionInfo: peer.VersionInfo{Version: from.Version}}})
		}
		return from, nil
	}
	put := &peer.PutRequest{Bucket: req.To.Bucket, Object: req.To.Object, Size: from.Size, Sized: true, Attrs: untagged(from.Attrs),
		IfAbsent: req.IfAbsent, IfVersion: req.IfVersion}
	if same && from.Checksum != 0 { // it isn't known of what comes from a backend
		put.Sum, put.Summed = from.Checksum, true
	}
	info, err := n.put(ctx, put, body)
	if err == nil {
		// The version that was copied is the one that a rename may take away.
		req.IfVersion = from.Version
	}
	return info, err
}

// serveRename gives an object another name. The owner of the first name coordinates: while
// it copies, no other rename and no deletion of that name can come between. Then the first
// name gets a tombstone, unless it was written to meanwhile.
func (n *Node) serveRename(ctx context.Context, c *peer.ServerCall) error {
	req, info, passed, err := n.copyRequest(ctx, c, wire.TRename)
	if err == nil && !passed {
		info, err = n.rename(ctx, req)
	}
	if err != nil {
		return err
	}
	return c.W.Frame((*peer.ObjectMessage)(&info), nil)
}

func (n *Node) rename(ctx context.Context, req *peer.CopyRequest) (peer.ObjectInfo, error) {
	unlock, err := n.removals.lock(ctx, req.From.Bucket, req.From.Object)
	if err != nil {
		return peer.ObjectInfo{}, err
	}
	defer unlock()
	if req.From == req.To {
		return n.copy(ctx, req, false)
	}
	// Whoever renames has the removal lock of one name and asks for write locks only; whoever
	// has a write lock asks for no other. So nobody waits in a circle.
	info, err := n.copy(ctx, req, false)
	if err != nil {
		return info, err
	}
	switch err := n.delete(ctx, req.From.Bucket, req.From.Object, req.IfVersion); errs.CodeOf(err) {
	case errs.OK:
		return info, nil
	case errs.NotFound:
		// Only another coordinator can have done that. To take the new name back could lose
		// the last copy.
		return info, &errs.Error{Code: errs.Unavailable, Op: "rename", Bucket: req.From.Bucket, Object: req.From.Object,
			Msg: "the outcome isn't known: the first name was deleted while the cluster map changed", Err: err}
	default:
		return info, err
	}
}

// stream opens the whole object as one stream of bytes, which falls over to another copy
// where it has to. It must be closed.
func (s *search) stream(ctx context.Context) (peer.ObjectInfo, io.ReadCloser, error) {
	e := &batching.Entry{Bucket: s.r.bucket, ObjName: s.r.object}
	var info peer.ObjectInfo
	p, err := s.open(ctx, e, func(i peer.ObjectInfo) { info = i })
	if err != nil {
		return info, nil, err
	}
	version := p.Version
	first := true
	src := sourceFunc(func(ctx context.Context, e *batching.Entry) (batching.Payload, error) {
		if first {
			first = false
			return p, nil
		}
		return batching.Payload{}, s.r.fail(errs.Internal, "opened twice", "")
	})
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends when the reader is closed or all is read
		defer close(done)
		_ = w.CloseWithError(batching.Feed(ctx, src, e, func(first, last bool, p *batching.Payload, data []byte, _ uint64) error {
			if p.Version != version {
				return s.r.fail(errs.VersionMismatch, "the object was replaced while it was read", "")
			}
			_, err := w.Write(data)
			return err
		}))
	}()
	return info, &pipeBody{PipeReader: r, cancel: cancel, done: done}, nil
}

// pipeBody is the reading end of a stream whose goroutine ends with it.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{}
}

// Close ends the stream and waits for its goroutine.
func (b *pipeBody) Close() error {
	b.cancel()
	_ = b.PipeReader.Close() // never fails
	<-b.done
	return nil
}
