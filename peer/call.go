package peer

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/quic-go/quic-go"

	"sheaf/peer/wire"
)

// Call is a call being made: one stream. Write the request with W, flush it, read
// the answers with R up to the End, and Close. It is not safe for concurrent use,
// but the two directions may be used by one goroutine each.
type Call struct {
	R *wire.Reader
	W *wire.Writer

	ctx      context.Context // of this call alone; gives read errors their reason
	addr     string
	stream   *quic.Stream
	vigil    *vigil // nil for most
	unwatch  func() bool
	release  func(answered bool)
	answered bool
	ended    bool
	reused   bool
}

// opened is a stream on a pooled connection, not yet a call.
type opened struct {
	e      *Endpoint
	addr   string
	conn   *conn
	stream *quic.Stream
	reused bool
}

// start makes it a call whose stream is reset when ctx is cancelled.
func (o *opened) start(ctx context.Context) *Call {
	call := newCall(ctx, o.addr, o.stream, func(answered bool) { o.e.pool.put(o.conn, answered) })
	call.reused = o.reused
	return call
}

// Open begins a call to the endpoint at addr. Cancelling ctx resets the stream.
func (e *Endpoint) Open(ctx context.Context, addr string) (*Call, error) {
	o, err := e.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	return o.start(ctx), nil
}

// connect opens a stream; ctx is for this alone.
func (e *Endpoint) connect(ctx context.Context, addr string) (*opened, error) {
	if err := ctx.Err(); err != nil {
		return nil, dialErr("call", addr, err)
	}
	for {
		o, again, err := e.tryConnect(ctx, addr)
		if err == nil || !again {
			return o, err
		}
	}
}

// tryConnect makes one attempt; again tells that a pooled connection turned out to be dead.
func (e *Endpoint) tryConnect(ctx context.Context, addr string) (_ *opened, again bool, err error) {
	c, reused, err := e.pool.get(ctx, addr)
	if err != nil {
		return nil, false, err
	}
	s, err := c.qc.OpenStreamSync(ctx)
	if err != nil {
		e.pool.put(c, false)
		return nil, reused && ctx.Err() == nil && c.qc.Context().Err() != nil, dialErr("call", addr, err)
	}
	return &opened{e: e, addr: addr, conn: c, stream: s, reused: reused}, false, nil
}

func newCall(ctx context.Context, addr string, s *quic.Stream, release func(bool)) *Call {
	c := &Call{R: readers.Get().(*wire.Reader), W: writers.Get().(*wire.Writer), ctx: ctx, addr: addr, stream: s, release: release}
	c.R.Reset(s)
	c.W.Reset(s)
	c.unwatch = context.AfterFunc(ctx, c.cut)
	return c
}

// cut resets the stream in both directions.
func (c *Call) cut() {
	c.stream.CancelRead(codeCanceled)
	c.stream.CancelWrite(codeCanceled)
}

// CloseSend tells the other side that the request is whole, flushing it. A callee that
// takes no more of it, perhaps because it has answered already, isn't an error: its
// answer says what is the matter.
func (c *Call) CloseSend() error {
	if err := c.W.Flush(); err != nil {
		var se *quic.StreamError
		if errors.As(err, &se) && se.Remote && se.ErrorCode == codeRefused {
			return nil
		}
		return c.err("send", err)
	}
	_ = c.stream.Close() // fails only on a stream that was reset, which reading tells better
	return nil
}

// Next reads the next frame's header. At the End it returns io.EOF with the trailer
// when that reports success, else the error it reports; a stream that stops without
// one is Unavailable.
func (c *Call) Next() (wire.Head, *wire.End, error) {
	h, err := c.R.Next()
	if err != nil {
		return h, nil, c.err("receive", cutShort(err))
	}
	c.answered = true
	if h.Type != wire.TEnd {
		return h, nil, nil
	}
	var end wire.End
	if err := c.R.Decode(&end); err != nil {
		return h, nil, c.err("receive", err)
	}
	c.ended = true
	if err := end.Err(); err != nil {
		return h, &end, err
	}
	return h, &end, io.EOF
}

// Payload reads the current frame's payload as a view, with the call's error mapping.
func (c *Call) Payload() ([]byte, error) {
	b, err := c.R.Payload()
	if err != nil {
		return nil, c.err("receive", err)
	}
	return b, nil
}

// Do sends req as the whole request and hands every frame of the answer to on,
// until the End, which it returns.
func (c *Call) Do(req wire.Message, on func(h wire.Head) error) (*wire.End, error) {
	if err := c.W.Frame(req, nil); err != nil {
		return nil, c.err("send", err)
	}
	if err := c.CloseSend(); err != nil {
		return nil, err
	}
	for {
		h, end, err := c.Next()
		if err == io.EOF {
			return end, nil
		}
		if err != nil {
			return end, err
		}
		if err := on(h); err != nil {
			return nil, c.err("receive", err)
		}
	}
}

// SetReadDeadline bounds the wait for the next frame; the zero time lifts it.
func (c *Call) SetReadDeadline(t time.Time) { _ = c.stream.SetReadDeadline(t) }

// Close ends the call, resetting the stream if it isn't over, and gives its
// connection back. It may be called more than once.
func (c *Call) Close() {
	if c.unwatch == nil {
		return
	}
	c.unwatch()
	c.unwatch = nil
	if !c.ended {
		c.stream.CancelRead(codeCanceled)
	}
	// After CloseSend this does nothing.
	c.stream.CancelWrite(codeCanceled)
	c.R.Reset(nil)
	c.W.Reset(nil)
	readers.Put(c.R)
	writers.Put(c.W)
	c.R, c.W = nil, nil
	if c.release != nil {
		c.release(c.answered)
	}
}

// Stale tells whether a failed call may have hit a connection that died while it
// lay in the pool: nothing came back, and it wasn't fresh. Such a call can be
// made again if it changes nothing.
func (c *Call) Stale() bool { return c.reused && !c.answered }

// Lost tells whether the call was given up because its peer gave no sign of life.
func (c *Call) Lost() bool { return c.vigil != nil && c.vigil.lost() }

// Trust ends the watch over a call that OpenWatched opened: it can't be made elsewhere
// any more. It isn't for use while a read is under way.
func (c *Call) Trust() {
	if c.vigil != nil {
		c.vigil.stop()
	}
}

// err gives a stream's error its code and the peer's address.
func (c *Call) err(op string, err error) error {
	if err == nil {
		return nil
	}
	if ce := c.ctx.Err(); ce != nil {
		err = ce
	} else if c.Lost() {
		return silent(c.addr, "no sign of life within %v", c.vigil.w.silent+c.vigil.w.sign)
	}
	return dialErr(op, c.addr, err)
}

func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
