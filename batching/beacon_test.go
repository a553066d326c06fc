package batching

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// signs waits until a DT has seen n more signs of life than it had.
func (c *fakeCluster) signs(ctx context.Context, dt, n int) {
	alive := c.nodes[dt].m.alive
	until := count(c.t, alive) + float64(n)
	for count(c.t, alive) < until && ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
}

// afarReader waits for signs of life before the bytes at an offset.
type afarReader struct {
	io.ReaderAt
	at   int64
	wait func()
}

func (r afarReader) ReadAt(p []byte, off int64) (int, error) {
	if off == r.at {
		r.wait()
	}
	return r.ReaderAt.ReadAt(p, off)
}

// An entry that comes from afar may take longer than the sender timeout, to begin and
// within: its sender isn't lost.
func TestSlowEntry(t *testing.T) {
	for what, streaming := range map[string]bool{"streaming": true, "metadata first": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // it waits longer than a sender timeout that a slow machine doesn't miss
			c := newFakeCluster(t, fakeOptions{adjust: func(o *NodeOptions) { o.SenderTimeout = 5 * time.Second }})
			before := c.put(c.ownedBy(1, "before"), []byte("before"))
			data := bytesOf(1, 3*wire.ChunkSize+9)
			cold := c.put(c.ownedBy(1, "cold"), data)
			after := c.put(c.ownedBy(1, "after"), []byte("after"))
			waited := false
			c.sources[1].far = func(ctx context.Context, e *Entry) {
				if e.ObjName == cold.ObjName && !waited {
					waited = true
					c.signs(ctx, 0, 5) // five quarters of the timeout
				}
			}
			c.sources[1].read = func(ctx context.Context, r io.ReaderAt) io.ReaderAt {
				return afarReader{r, 2 * wire.ChunkSize, func() { c.signs(ctx, 0, 1) }}
			}
			r := c.run(&Request{ID: c.dtFor(0), In: []Entry{before, cold, after}, Strm: &streaming})
			if r.err != nil || len(r.data) != 3 || string(r.data[0]) != "before" || !bytes.Equal(r.data[1], data) || string(r.data[2]) != "after" {
				t.Fatalf("%d entries: %v", len(r.data), r.err)
			}
			m := c.nodes[0].m
			if n := count(t, m.alive); n < 6 {
				t.Errorf("%v signs of life", n)
			}
			if count(t, m.lostSenders) != 0 || count(t, m.recovered) != 0 {
				t.Error("the entries were planned anew")
			}
			c.idle()
		})
	}
}

// Signs of life don't keep a batch for ever.
func TestSlowEntryIsGivenUp(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{adjust: func(o *NodeOptions) { o.SenderTimeout, o.SlowTimeout = 4*time.Second, time.Millisecond }})
	e := c.put(c.ownedBy(1, "cold"), []byte("cold"))
	c.sources[1].far = func(ctx context.Context, _ *Entry) { <-ctx.Done() }
	r := c.run(&Request{ID: c.dtFor(0), In: []Entry{e}, Coer: true})
	if r.err != nil || !errs.IsCode(r.errors[0], errs.SenderTimeout) || !strings.Contains(r.errors[0].Error(), "signs of life") {
		t.Errorf("%v %v", r.errors, r.err)
	}
	c.idle() // the sender was told to stop
}

// A sender that stops after its signs of life is given up like any other that is silent.
func TestSilentAfterSigns(t *testing.T) {
	asked := make(chan time.Duration, 1)
	c := newFakeCluster(t, fakeOptions{
		adjust: func(o *NodeOptions) { o.SenderTimeout = time.Second },
		serve: func(i int, ep *peer.Endpoint) {
			if i != 1 {
				return
			}
			ep.Handle(wire.TSend, peer.NodeRole, func(ctx context.Context, call *peer.ServerCall) error {
				msg := batchMessage{Kind: wire.TSend}
				if err := call.R.Decode(&msg); err != nil {
					return err
				}
				asked <- msg.Wait
				if _, _, err := readEntries(call.R, &msg); err != nil {
					return err
				}
				for range 3 {
					if err := call.W.Frame(&aliveMessage{}, nil); err != nil {
						return err
					}
				}
				if err := call.W.Flush(); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}})
	e := c.putAll(c.ownedBy(1, "o"), []byte("copy"), 3)
	r := c.run(&Request{ID: c.dtFor(0), In: []Entry{e}})
	if r.err != nil || string(r.data[0]) != "copy" {
		t.Errorf("%q %v", r.data, r.err)
	}
	if w := <-asked; w != time.Second {
		t.Errorf("the DT says that it waits for %v", w)
	}
	m := c.nodes[0].m
	if count(t, m.lostSenders) == 0 || count(t, m.recovered) != 1 {
		t.Error("nothing was planned anew")
	}
}
