package peer

import (
	"context"
	"fmt"
	"io"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// ReplicateCall brings a node many objects and tombstones on one stream: Send each,
// CloseSend after the last, and read one answer for each, in their order, with Next.
// The answers must be read by a goroutine of their own while objects are sent: a
// receiver whose answers nobody takes stops taking objects.
type ReplicateCall struct {
	call *Call
}

// ReplicateAt begins a ReplicateCall at the node at addr.
func (c *Client) ReplicateAt(ctx context.Context, addr string) (*ReplicateCall, error) {
	call, err := c.e.Open(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &ReplicateCall{call: call}, nil
}

// Send sends one object, whose bytes come from body; nil for a tombstone. When body
// fails the receiver forgets the object and answers with the failure; an error of
// Send itself is one of the stream, after which no other object can be sent.
func (r *ReplicateCall) Send(req *ReplicateRequest, body io.Reader) error {
	if err := req.Check(); err != nil {
		return err
	}
	if err := r.call.W.Frame(req, nil); err != nil {
		return r.call.err("replicate", err)
	}
	var end wire.End
	if body != nil {
		n, sum, err := SendBody(r.call.W, body)
		if _, broken := err.(*sendError); broken {
			return r.call.err("replicate", err)
		}
		end.SetErr(err, "")
		end.Bytes, end.Sum = uint64(n), sum
	}
	if err := r.call.W.Frame(&end, nil); err != nil {
		return r.call.err("replicate", err)
	}
	return nil
}

// Flush hands over what was sent; objects are kept together until enough bytes are
// there.
func (r *ReplicateCall) Flush() error { return r.call.err("replicate", r.call.W.Flush()) }

// CloseSend says that no further object comes.
func (r *ReplicateCall) CloseSend() error { return r.call.CloseSend() }

// Next gives the answer to the next object: its error is the message's Err. io.EOF
// after the last; any other error is the call's.
func (r *ReplicateCall) Next() (*ReplicatedMessage, error) {
	h, _, err := r.call.Next()
	if err != nil {
		return nil, err
	}
	if h.Type != wire.TReplicated {
		return nil, errs.New(errs.Protocol, "replicate", fmt.Sprintf("message %d among the answers", h.Type))
	}
	m := &ReplicatedMessage{}
	return m, r.call.R.Decode(m)
}

// Close ends the call.
func (r *ReplicateCall) Close() { r.call.Close() }

// ReplicaReader is the receiver's side of a ReplicateCall.
type ReplicaReader struct {
	c    *ServerCall
	body *bodyReader // of the object before
	any  bool
}

// NewReplicaReader reads the objects of a TReplicate call.
func NewReplicaReader(c *ServerCall) *ReplicaReader { return &ReplicaReader{c: c} }

// Next gives the next object with its bytes, which are checked against the sender's
// checksum at their end and of which what wasn't read is skipped; io.EOF after the
// last. A tombstone has no bytes.
func (r *ReplicaReader) Next() (*ReplicateRequest, io.Reader, error) {
	if r.any {
		if err := r.skip(); err != nil {
			return nil, nil, err
		}
		h, err := r.c.R.Next()
		if err == io.EOF {
			return nil, nil, io.EOF
		}
		if err != nil {
			return nil, nil, errs.Wrap(errs.Unavailable, "replicate", err)
		}
		if h.Type != wire.TReplicate {
			return nil, nil, errs.New(errs.Protocol, "replicate", fmt.Sprintf("message %d among the objects", h.Type))
		}
	}
	r.any = true
	req := &ReplicateRequest{}
	if err := r.c.R.Decode(req); err != nil {
		return nil, nil, err
	}
	if err := req.Check(); err != nil {
		return nil, nil, err
	}
	r.body = &bodyReader{src: inbound{r.c.R}}
	return req, r.body, nil
}

// skip passes over what is left of an object, up to its End.
func (r *ReplicaReader) skip() error {
	for r.body.err == nil {
		r.body.part = nil
		r.body.err = r.body.next()
	}
	if r.body.ended {
		return nil // with or without success: the stream goes on
	}
	return r.body.err
}

// Answer answers for the next object that has no answer yet. Answers go out when enough of
// them are there, or with Flush.
func (r *ReplicaReader) Answer(placement, version uint64, err error) error {
	m := &ReplicatedMessage{Version: version, Placement: placement}
	m.SetErr(err, "")
	return r.c.W.Frame(m, nil)
}

// Flush sends the answers that wait.
func (r *ReplicaReader) Flush() error { return r.c.W.Flush() }
