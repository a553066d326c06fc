package peer

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"sheaf/internal/errs"
)

// waits are those of calls that could be made at another node as well. None of them
// ends a call to a node that is slow but there.
type waits struct {
	open    time.Duration // for a connection
	silent  time.Duration // for bytes; then the node is asked for a sign of life
	sign    time.Duration // for that sign
	suspect time.Duration // a node that gave none is asked last for so long
	trusted time.Duration // a node that has just answered is taken to be there for so long
}

func defaultWaits() waits {
	return waits{open: 2 * time.Second, silent: 2 * time.Second, sign: 3 * time.Second, suspect: 10 * time.Second, trusted: time.Second}
}

// vigil watches over a call's reads: when none makes progress for long, the peer
// is asked for a sign of life, and without one the call is ended long before its
// connection is known to be dead. It is for calls that can be made elsewhere.
type vigil struct {
	sign func(ctx context.Context) error // asks for the sign
	end  func()                          // ends the call
	w    waits

	mu    sync.Mutex
	timer *time.Timer // guarded by mu
	reads int         // guarded by mu: grows when a read begins and when it ends; odd: one is under way
	gone  bool        // guarded by mu: the peer gave no sign
	over  bool        // guarded by mu: nobody watches any more
}

func newVigil(w waits, sign func(context.Context) error, end func()) *vigil {
	v := &vigil{sign: sign, end: end, w: w}
	v.timer = time.AfterFunc(w.silent, v.ask)
	v.timer.Stop()
	return v
}

// begin and done bracket a read.
func (v *vigil) begin() {
	v.mu.Lock()
	v.reads++
	if !v.over {
		v.timer.Reset(v.w.silent)
	}
	v.mu.Unlock()
}

func (v *vigil) done() {
	v.mu.Lock()
	v.reads++
	v.timer.Stop()
	v.mu.Unlock()
}

// ask runs when a read has waited for long, in the timer's goroutine, which ends
// when the sign has come or hasn't.
func (v *vigil) ask() {
	v.mu.Lock()
	read := v.reads
	v.mu.Unlock()
	if read%2 == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), v.w.sign)
	err := v.sign(ctx)
	cancel()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reads != read {
		return
	}
	if err == nil {
		v.timer.Reset(v.w.silent)
		return
	}
	v.gone = true
	v.end()
}

// stop ends the vigil, not between begin and done.
func (v *vigil) stop() {
	v.mu.Lock()
	v.over = true
	v.mu.Unlock()
}

// lost tells whether the vigil has ended the call.
func (v *vigil) lost() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.gone
}

// watchedReader is a stream under a vigil.
type watchedReader struct {
	r io.Reader
	v *vigil
}

// Read implements io.Reader.
func (w watchedReader) Read(p []byte) (int, error) {
	w.v.begin()
	defer w.v.done()
	return w.r.Read(p)
}

// Ping asks the endpoint at addr for a sign of life, on a pooled connection if there
// is one. A peer that answers with an error is there.
func (e *Endpoint) Ping(ctx context.Context, addr string) error {
	call, err := e.Open(ctx, addr)
	if err == nil {
		mine := e.myHello()
		_, err = call.Do(&mine, discard)
		if call.answered {
			err = nil
		}
		call.Close()
	}
	if errs.IsCode(err, errs.TooManyRequests) {
		return nil // many calls to it are under way, which is no sign of its death
	}
	return err
}

// OpenWatched is Open for a call that could be made at another node as well: one that
// is gone is given up within seconds, with Unavailable, and a slow one is waited for.
func (e *Endpoint) OpenWatched(ctx context.Context, addr string) (*Call, error) {
	short, cancel := context.WithTimeout(ctx, e.waits.open)
	defer cancel()
	o, err := e.connect(short, addr)
	if err != nil {
		if short.Err() != nil && ctx.Err() == nil {
			e.pool.suspect(addr)
			err = silent(addr, "no connection within %v", e.waits.open)
		}
		return nil, err
	}
	call := o.start(ctx)
	call.vigil = newVigil(e.waits, func(ctx context.Context) error {
		err := e.Ping(ctx, addr)
		if err != nil {
			e.pool.suspect(addr)
		}
		return err
	}, call.cut)
	call.R.Reset(watchedReader{call.stream, call.vigil})
	return call, nil
}

func silent(addr, format string, a ...any) error {
	return &errs.Error{Code: errs.Unavailable, Op: "call", Node: addr, Msg: fmt.Sprintf(format, a...)}
}
