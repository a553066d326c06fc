package gossip

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/hashicorp/memberlist"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// conn is memberlist's end of a stream; a call carries what goes through the other end of
// the pipe. The pipe gives it deadlines.
type conn struct {
	net.Conn
	remote nodeAddr
}

func (c conn) RemoteAddr() net.Addr { return c.remote }

// DialAddressTimeout opens a stream to a node.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	addr, err := t.lookUp(a.Name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.ctx, streamLife)
	late := time.AfterFunc(timeout, cancel)
	call, err := t.ep.Open(ctx, addr)
	if err == nil {
		if err = call.W.Frame(&message{From: t.self, Stream: true}, nil); err == nil {
			err = call.W.Flush()
		}
		if !late.Stop() && err == nil {
			err = errs.New(errs.Timeout, "gossip", fmt.Sprintf("no stream to %s within %v", a.Name, timeout))
		}
		if err != nil {
			call.Close()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil && t.closed {
		call.Close()
		err = errs.New(errs.Canceled, "gossip", "closed")
	}
	if err != nil {
		late.Stop()
		cancel()
		return nil, err
	}
	near, far := net.Pipe()
	t.wg.Go(func() { // ends with the stream's life, near's end, or Shutdown
		defer cancel()
		t.carry(ctx, cancel, call, far)
	})
	return conn{near, nodeAddr(a.Name)}, nil
}

// carry moves bytes between a call and the far end of a pipe until both directions are over.
func (t *transport) carry(ctx context.Context, cancel context.CancelFunc, call *peer.Call, far net.Conn) {
	defer call.Close()
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	back := make(chan struct{})
	go func() { // ends with the call, which ctx bounds; waited for below
		defer close(back)
		defer far.Close()
		_ = receiveData(func() (wire.Head, error) { h, _, err := call.Next(); return h, err }, call.R, far)
	}()
	if sendData(call.W, far) == nil && call.CloseSend() == nil {
		linger := time.AfterFunc(streamLinger, cancel)
		defer linger.Stop()
	} else {
		cancel()
	}
	<-back
}

// serveStream hands a stream to memberlist and carries its bytes.
func (t *transport) serveStream(ctx context.Context, c *peer.ServerCall, from string) error {
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	default:
		t.metrics.dropped.WithLabelValues("stream").Inc()
		return errs.New(errs.TooManyRequests, "gossip", fmt.Sprintf("%d streams are open", inboundStreams))
	}
	ctx, cancel := context.WithTimeout(ctx, streamLife)
	defer cancel()
	near, far := net.Pipe()
	defer far.Close()
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	defer context.AfterFunc(t.ctx, cancel)()
	wait := time.NewTimer(handover)
	defer wait.Stop()
	select {
	case t.streams <- conn{near, nodeAddr(from)}:
	case <-wait.C:
		t.metrics.dropped.WithLabelValues("stream").Inc()
		return errs.New(errs.TooManyRequests, "gossip", "streams aren't being taken")
	case <-ctx.Done():
		return errs.New(errs.Unavailable, "gossip", "the node is shutting down")
	}
	in := make(chan struct{})
	go func() { // ends with the caller's direction, which StopReading ends
		defer close(in)
		_ = receiveData(c.R.Next, c.R, far)
	}()
	err := sendData(c.W, far)
	c.StopReading()
	_ = far.Close()
	<-in
	return err
}

// sendData makes frames of what comes out of a pipe, until its other end is closed.
func sendData(w *wire.Writer, from net.Conn) error {
	buf := make([]byte, 16<<10)
	for total := 0; ; {
		n, err := from.Read(buf)
		if n > 0 {
			if total += n; total > maxStream {
				return errs.New(errs.TooLarge, "gossip", fmt.Sprintf("a stream of more than %d bytes", maxStream))
			}
			if err := w.Frame(&peer.Data{}, buf[:n]); err != nil {
				return err
			}
			if err := w.Flush(); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrClosedPipe {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// receiveData writes the payload of frames into a pipe, until the frames end.
func receiveData(next func() (wire.Head, error), r *wire.Reader, to net.Conn) error {
	for total := 0; ; {
		h, err := next()
		if err != nil {
			return err
		}
		if total += h.Payload; h.Type != wire.TData || total > maxStream {
			return errs.New(errs.Protocol, "gossip", fmt.Sprintf("message %d with %d bytes in a stream", h.Type, h.Payload))
		}
		b, err := r.Payload()
		if err != nil {
			return err
		}
		if _, err := to.Write(b); err != nil {
			return err
		}
	}
}
