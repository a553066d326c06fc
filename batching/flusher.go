package batching

import (
	"sync"
	"time"

	"sheaf/peer/wire"
)

// lull is how long finished entries may wait for more to share a write with.
const lull = time.Millisecond

// flusher gathers entries into few writes and never keeps one for longer than a lull,
// even while whoever fills it waits for a disk or another node. The first entry goes
// out at once: somebody waits for it.
type flusher struct {
	mu      sync.Mutex
	w       *wire.Writer
	drain   func() error // guarded: moves what the owner has gathered into w; may be nil
	timer   *time.Timer
	begun   bool  // guarded: the first entry has gone out
	armed   bool  // guarded: the timer will fire
	stopped bool  // guarded: the owner uses w by itself now
	err     error // guarded: of a write by the timer
}

// newFlusher makes a flusher on w, which nobody else uses until stop. What is in w
// already goes out with the first entry, or after a lull.
func newFlusher(w *wire.Writer, drain func() error) *flusher {
	l := &flusher{w: w, drain: drain, armed: true}
	l.timer = time.AfterFunc(lull, l.fire)
	return l
}

// write lets f add to the writer. ready tells that what is there now is of use to the
// receiver: the end of an entry.
func (l *flusher) write(ready bool, f func(*wire.Writer) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return l.err
	}
	if err := f(l.w); err != nil {
		return err
	}
	if !ready {
		return nil
	}
	if !l.begun {
		l.begun = true
		return l.flush()
	}
	if !l.armed {
		l.armed = true
		l.timer.Reset(lull)
	}
	return nil
}

// fire is run by the timer.
func (l *flusher) fire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed = false
	if !l.stopped && l.err == nil {
		l.err = l.flush()
	}
}

// flush writes everything out; mu is held.
func (l *flusher) flush() error {
	if l.drain != nil {
		if err := l.drain(); err != nil {
			return err
		}
	}
	return l.w.Flush()
}

// stop ends the flusher's use of the writer, which keeps what wasn't flushed.
func (l *flusher) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.timer.Stop()
}
