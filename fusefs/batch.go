package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// state of a batch, as its status says it.
type state string

const (
	running  state = "running"
	finished state = "done" // every entry came or is a placeholder
	failed   state = "failed"
	canceled state = "canceled"
)

// batch is one manifest and what it brings. Its goroutine (run) alone writes spool
// and table; everyone else reads what has been published.
type batch struct {
	// dependencies
	batcher Batcher
	m       *metrics
	whole   *prefetched
	idle    func() // told when the batch may have become due for removal

	// constants
	id      string
	seq     uint64 // of this mount: tells batches of the same id apart
	wireID  string
	req     *batching.Request // normalized
	ttl     time.Duration
	created time.Time
	cancel  context.CancelFunc // stops run

	table table
	spool *spool

	mu       sync.Mutex
	state    state
	arrived  int   // rows published
	ok       int   // of them, without an error; once ended ok+err is n
	err      int   //
	bytes    int64 // of payload published
	code     errs.Code
	culprit  *int // the entry that ended it, when one did
	msg      string
	ended    time.Time
	used     time.Time // last opened or closed
	opens    int       // open files
	refs     int       // registry, run, open files: the spool closes with the last
	stopped  bool      // canceled by a command or a release
	released bool
	bound    *session      // the session whose end releases it
	changed  chan struct{} // closed at the next change; nil while nobody waits
	subs     []*session    // replaced, never changed in place
	layout   *tarLayout
}

// batchStatus is what the file "status" and the event "status" show.
type batchStatus struct {
	ID      string `json:"id"`
	State   state  `json:"state"`
	N       int    `json:"n"`
	Arrived int    `json:"arrived"`
	OK      int    `json:"ok"`
	Err     int    `json:"err"`
	Bytes   int64  `json:"bytes"`
	MS      int64  `json:"ms"`
	I       *int   `json:"i,omitempty"` // the entry that ended it
	Errno   string `json:"errno,omitempty"`
	Code    int    `json:"code,omitempty"`
	Msg     string `json:"msg,omitempty"`
}

func (b *batch) n() int { return len(b.req.In) }

// run fetches the batch. Owned by the registry, which waits for it; ends with the
// stream or when ctx is cancelled.
func (b *batch) run(ctx context.Context) {
	defer b.cancel()
	b.end(b.fetch(ctx))
	b.unref()
}

func (b *batch) fetch(ctx context.Context) error {
	r := *b.req
	r.ID, r.Mime, r.OutputFormat = b.wireID, "", batching.FormatFrames
	b.m.getbatch.Inc()
	entries, err := b.batcher.GetBatch(ctx, &r)
	if err != nil {
		return err
	}
	defer entries.Close()
	for i := 0; ; i++ {
		it, err := entries.Next()
		if errors.Is(err, io.EOF) {
			if i != b.n() {
				return errs.New(errs.Protocol, "getbatch", fmt.Sprintf("%d entries came, %d were asked for", i, b.n()))
			}
			return nil
		}
		if err != nil {
			return err
		}
		if it.Index != i || i >= b.n() {
			return errs.New(errs.Protocol, "getbatch", fmt.Sprintf("entry %d came in place of %d", it.Index, i))
		}
		if err := b.take(ctx, it); err != nil {
			return err
		}
	}
}

// take brings one item to the spool and publishes it.
func (b *batch) take(ctx context.Context, it *batching.Item) error {
	r := row{off: b.spool.off}
	err := it.Err
	if err == nil {
		r.size, err = it.WriteTo(b.spool)
		r.sum = it.Sum()
		switch {
		case b.spool.err != nil:
			return errs.Wrap(errs.CodeOf(b.spool.err), "spool", fmt.Errorf("the cache folder: %w", b.spool.err))
		case err == nil && r.size != it.Size:
			return errs.New(errs.Protocol, "getbatch", fmt.Sprintf("entry %d has %d bytes, %d were announced", it.Index, r.size, it.Size))
		case err != nil && (ctx.Err() != nil || !b.req.Coer || !errs.CodeOf(err).Soft()):
			return err
		case err != nil:
			// The entry broke off half way: its place is kept, its bytes are not.
			if err := b.spool.rewind(r.off); err != nil {
				return errs.Wrap(errs.CodeOf(err), "spool", err)
			}
		}
	}
	msg := ""
	if err != nil {
		r = row{off: r.off, code: errs.CodeOf(err)}
		r.errno = batchErrno(r.code)
		msg = err.Error()
		b.m.entryErrors.WithLabelValues(r.code.String()).Inc()
	}
	b.table.set(it.Index, r)
	b.publish(it.Index, r, msg)
	if e := &b.req.In[it.Index]; err == nil && e.Start == 0 && e.Length == 0 {
		b.whole.add(e, location{b, r.off, r.size, it.Version})
	}
	return nil
}

func (b *batch) publish(i int, r row, msg string) {
	b.m.entries.Inc()
	b.m.bytes.Add(float64(r.size))
	b.m.spool.Add(float64(r.size))
	b.mu.Lock()
	b.arrived++
	b.bytes += r.size
	if r.code == errs.OK {
		b.ok++
	} else {
		b.err++
	}
	subs := b.wake()
	b.mu.Unlock()
	for _, s := range subs {
		if r.code != errs.OK {
			s.pushEntryError(b.id, i, r, msg)
		}
		s.pushReady(b.id, i)
	}
}

// wake wakes all that wait and gives those that want events. b.mu is held.
func (b *batch) wake() []*session {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.subs
}

// end is the last change of a batch: rows that never came carry the failure.
func (b *batch) end(err error) {
	b.mu.Lock()
	stopped, arrived, bytes := b.stopped, b.arrived, b.bytes
	b.mu.Unlock()
	code := errs.CodeOf(err)
	if err != nil {
		if stopped {
			code, err = errs.Canceled, errs.New(errs.Canceled, "getbatch", "the batch was cancelled")
		}
		for i := arrived; i < b.n(); i++ {
			b.table.set(i, row{off: bytes, code: code, errno: batchErrno(code)})
		}
		_ = b.spool.rewind(bytes) // bytes of an entry that didn't come whole; nobody sees them
	}
	b.mu.Lock()
	b.state = finished
	if err != nil {
		b.state, b.code, b.msg = failed, code, err.Error()
		b.err = b.n() - b.ok
		if e := errs.Flatten(err).Entry; e > 0 {
			e--
			b.culprit = &e
		}
		if code == errs.Canceled {
			b.state = canceled
		}
	}
	b.ended = time.Now()
	subs := b.wake()
	st := b.statusLocked()
	b.subs = nil
	b.mu.Unlock()
	for _, s := range subs {
		s.pushDone(b, st)
	}
	b.idle()
}

func (b *batch) status() batchStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.statusLocked()
}

func (b *batch) statusLocked() batchStatus {
	until := b.ended
	if b.state == running {
		until = time.Now()
	}
	st := batchStatus{
		ID: b.id, State: b.state, N: b.n(), Arrived: b.arrived, OK: b.ok, Err: b.err,
		Bytes: b.bytes, MS: until.Sub(b.created).Milliseconds(), Msg: b.msg,
	}
	if b.code != errs.OK {
		st.Errno, st.Code, st.I = errnoName(batchErrno(b.code)), int(b.code), b.culprit
	}
	return st
}

// progress is how far a batch has come; once over it never changes again.
type progress struct {
	arrived int // published rows, or all when over
	rows    int // rows that arrived before the end
	bytes   int64
	over    bool
	errno   syscall.Errno // of a batch that failed
}

func (b *batch) progressLocked() progress {
	p := progress{arrived: b.arrived, rows: b.arrived, bytes: b.bytes, over: b.state != running}
	if p.over {
		p.arrived = b.n()
	}
	if b.code != errs.OK {
		p.errno = batchErrno(b.code)
	}
	return p
}

func (b *batch) progress() progress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.progressLocked()
}

// wait returns the first progress that enough accepts or that is final; an error
// is ctx's.
func (b *batch) wait(ctx context.Context, enough func(progress) bool) (progress, error) {
	for {
		b.mu.Lock()
		p := b.progressLocked()
		if p.over || enough(p) {
			b.mu.Unlock()
			return p, nil
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		ch := b.changed
		b.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return p, ctx.Err()
		}
	}
}

// subscribe makes s get the batch's events until it ends; false when it has.
func (b *batch) subscribe(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != running {
		return false
	}
	subs := make([]*session, 0, len(b.subs)+1)
	for _, o := range b.subs {
		if o != s {
			subs = append(subs, o)
		}
	}
	b.subs = append(subs, s)
	return true
}

func (b *batch) unsubscribe(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var subs []*session
	for _, o := range b.subs {
		if o != s {
			subs = append(subs, o)
		}
	}
	b.subs = subs
	if b.bound == s {
		b.bound = nil
	}
}

// stop cancels a running batch.
func (b *batch) stop() {
	b.mu.Lock()
	b.stopped = true
	b.mu.Unlock()
	b.cancel()
}

// open takes a reference for a file; false when the batch is gone altogether.
func (b *batch) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refs == 0 {
		return false
	}
	b.refs++
	b.opens++
	b.used = time.Now()
	return true
}

// close gives back what open took.
func (b *batch) close() {
	b.mu.Lock()
	b.opens--
	b.used = time.Now()
	b.mu.Unlock()
	b.unref()
	b.idle()
}

func (b *batch) unref() {
	b.mu.Lock()
	b.refs--
	last := b.refs == 0
	bytes := b.bytes
	b.mu.Unlock()
	if last {
		_ = b.spool.close() // read-only by now: there is nothing to lose
		b.m.spool.Sub(float64(bytes))
	}
}

// due tells when the batch's time to live passes; ok is false while it can't.
func (b *batch) due() (at time.Time, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == running || b.opens > 0 || b.released {
		return time.Time{}, false
	}
	at = b.ended
	if b.used.After(at) {
		at = b.used
	}
	return at.Add(b.ttl), true
}
