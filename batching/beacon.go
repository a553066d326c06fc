package batching

import (
	"context"
	"sync/atomic"
	"time"
)

// beacon gives a DT signs of life while a sender waits for bytes that come from afar, so
// that its silence isn't taken for its loss. It begins with Slow and ends with the entry. A
// wait for this node's own disks gives none: one that hangs is for other nodes to make good.
type beacon struct {
	out   *flusher
	every time.Duration
	timer *time.Timer
	slow  atomic.Bool // the entry of now is one to wait for
}

// minBeacon bounds how often a DT can ask for signs.
const minBeacon = 5 * time.Millisecond

// newBeacon makes a beacon for a DT that waits for that long; nil when it asks for no signs.
func newBeacon(out *flusher, wait time.Duration) *beacon {
	if wait <= 0 {
		return nil
	}
	b := &beacon{out: out, every: max(wait/4, minBeacon)}
	b.timer = time.AfterFunc(b.every, b.fire)
	b.timer.Stop()
	return b
}

type beaconKey struct{}

// Slow is called by a Source, with the context of an Open, for an entry that isn't on a disk
// of the cluster: the wait for it, up to its last byte, is no sign of a lost sender.
func Slow(ctx context.Context) {
	if b, _ := ctx.Value(beaconKey{}).(*beacon); b != nil && !b.slow.Swap(true) {
		b.timer.Reset(b.every)
	}
}

// in gives the context with which entries are opened.
func (b *beacon) in(ctx context.Context) context.Context {
	if b == nil {
		return ctx
	}
	return context.WithValue(ctx, beaconKey{}, b)
}

// done ends the wait for an entry.
func (b *beacon) done() {
	if b != nil && b.slow.Swap(false) {
		b.timer.Stop()
	}
}

// fire is run by the timer. The flusher's lock keeps signs and entries apart, and none comes
// after its stop.
func (b *beacon) fire() {
	b.out.mu.Lock()
	defer b.out.mu.Unlock()
	if !b.slow.Load() || b.out.stopped || b.out.err != nil {
		return
	}
	if b.out.err = b.out.w.Frame(&aliveMessage{}, nil); b.out.err == nil {
		b.out.err = b.out.flush()
	}
	b.timer.Reset(b.every)
}
