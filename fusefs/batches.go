package fusefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// batches are those a mount holds. A batch lives here from its submission until it
// is released; after that its open files alone keep its payload.
type batches struct {
	// dependencies
	ctx     context.Context // the mount's
	batcher Batcher
	spools  *spoolDir
	m       *metrics
	log     *slog.Logger
	whole   *prefetched

	// constants
	limit   int
	ttl     time.Duration
	mountID string
	kick    chan struct{} // wakes the sweeper; one signal waiting is enough

	work sync.WaitGroup // run of every batch, and the sweeper

	mu       sync.Mutex
	closed   bool
	live     map[string]*batch
	making   map[string]bool // ids taken by batches whose spool is being made
	seq      uint64
	auto     uint64        // last number tried for an id
	freed    chan struct{} // closed when a place comes free; nil while nobody waits
	sessions map[*session]bool
}

func newBatches(ctx context.Context, batcher Batcher, spools *spoolDir, m *metrics, o Options, mountID string) *batches {
	r := &batches{
		ctx: ctx, batcher: batcher, spools: spools, m: m, log: o.Logger, whole: newPrefetched(),
		limit: o.MaxBatches, ttl: o.BatchTTL, mountID: mountID, kick: make(chan struct{}, 1),
		live: map[string]*batch{}, making: map[string]bool{}, sessions: map[*session]bool{},
	}
	// Owned by the registry: ends with the mount's context, awaited by close.
	r.work.Go(r.sweep)
	return r
}

// submission is a manifest on its way to become a batch.
type submission struct {
	req      *batching.Request // normalized
	ttl      time.Duration     // 0: the mount's
	bind     bool
	session  *session
	nonblock bool // refuse with TooManyRequests instead of waiting for a place
}

// submit begins a batch. It waits for a place, as long as ctx lasts.
func (r *batches) submit(ctx context.Context, s submission) error {
	b := &batch{
		batcher: r.batcher, m: r.m, whole: r.whole, idle: r.wakeSweeper,
		req: s.req, ttl: s.ttl, created: time.Now(), state: running, refs: 2,
		table: newTable(len(s.req.In)),
	}
	if b.ttl == 0 {
		b.ttl = r.ttl
	}
	if s.bind {
		b.bound = s.session
	}
	if err := r.reserve(ctx, b, s.nonblock); err != nil {
		return err
	}
	var err error
	b.spool, err = r.spools.create(b.seq)
	r.mu.Lock()
	delete(r.making, b.id)
	if err == nil && r.closed {
		err = errs.New(errs.Unavailable, "batch", "the mount is ending")
	}
	if err != nil {
		r.signalFreed()
		r.mu.Unlock()
		if b.spool != nil {
			_, _ = b.spool.unlink(), b.spool.close()
		}
		return err
	}
	runCtx, cancel := context.WithCancel(r.ctx)
	b.cancel = cancel
	r.live[b.id] = b
	r.m.submitted.Inc()
	r.m.live.Inc()
	s.session.pushAccepted(b)
	b.subscribe(s.session)
	// Owned by the registry: ends with the stream, a cancellation, or the mount.
	r.work.Go(func() { b.run(runCtx) })
	r.mu.Unlock()
	return nil
}

// reserve gives b its id and a place.
func (r *batches) reserve(ctx context.Context, b *batch, nonblock bool) error {
	for {
		r.mu.Lock()
		id := b.req.ID
		switch {
		case r.closed:
			r.mu.Unlock()
			return errs.New(errs.Unavailable, "batch", "the mount is ending")
		case id != "" && (r.live[id] != nil || r.making[id]):
			r.mu.Unlock()
			return errs.New(errs.AlreadyExists, "batch", fmt.Sprintf("id %q is in use", id))
		case len(r.live)+len(r.making) < r.limit:
			for id == "" {
				r.auto++
				if c := "b" + strconv.FormatUint(r.auto, 10); r.live[c] == nil && !r.making[c] {
					id = c
				}
			}
			r.seq++
			b.id, b.seq = id, r.seq
			b.wireID = "mnt-" + r.mountID + "-" + strconv.FormatUint(b.seq, 10)
			r.making[id] = true
			r.mu.Unlock()
			return nil
		case nonblock:
			r.mu.Unlock()
			return errs.New(errs.TooManyRequests, "batch", fmt.Sprintf("%d batches are held, the limit", r.limit))
		}
		if r.freed == nil {
			r.freed = make(chan struct{})
		}
		ch := r.freed
		r.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return errs.Wrap(errs.Canceled, "batch", ctx.Err())
		}
	}
}

// signalFreed wakes those who wait for a place. r.mu is held.
func (r *batches) signalFreed() {
	if r.freed != nil {
		close(r.freed)
		r.freed = nil
	}
}

func (r *batches) get(id string) *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[id]
}

// list gives the live batches by id.
func (r *batches) list() []*batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*batch, 0, len(r.live))
	for _, b := range r.live {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b *batch) int { return strings.Compare(a.id, b.id) })
	return all
}

// release cancels b if need be and forgets it; open files stay readable.
func (r *batches) release(b *batch) {
	r.mu.Lock()
	if r.live[b.id] != b {
		r.mu.Unlock()
		return
	}
	delete(r.live, b.id)
	r.signalFreed()
	r.mu.Unlock()
	r.m.live.Dec()
	b.mu.Lock()
	b.released = true
	b.mu.Unlock()
	r.whole.drop(b)
	b.stop()
	if err := b.spool.unlink(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("a spool file can't be removed", "batch", b.id, "err", err)
	}
	b.unref()
}

// leave ends a session: its subscriptions, and the batches bound to it.
func (r *batches) leave(s *session) {
	r.mu.Lock()
	delete(r.sessions, s)
	r.mu.Unlock()
	for _, b := range r.list() {
		b.mu.Lock()
		bound := b.bound == s
		b.mu.Unlock()
		b.unsubscribe(s)
		if bound {
			r.release(b)
		}
	}
}

func (r *batches) enter(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sessions[s] = true
}

func (r *batches) wakeSweeper() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// sweep removes the batches whose time has passed. It sleeps until the next one is
// due, or something became due earlier.
func (r *batches) sweep() {
	for {
		var next time.Time
		now := time.Now()
		for _, b := range r.list() {
			at, ok := b.due()
			switch {
			case !ok:
			case !at.After(now):
				r.log.Debug("a batch's time to live has passed", "batch", b.id)
				r.release(b)
			case next.IsZero() || at.Before(next):
				next = at
			}
		}
		var due <-chan time.Time
		var t *time.Timer
		if !next.IsZero() {
			t = time.NewTimer(time.Until(next))
			due = t.C
		}
		select {
		case <-due:
		case <-r.kick:
		case <-r.ctx.Done():
			return
		}
		if t != nil {
			t.Stop()
		}
	}
}

// fill says what the registry knows of the mount's status.
func (r *batches) fill(s *Status) {
	all := r.list()
	s.Batches = len(all)
	for _, b := range all {
		p := b.progress()
		s.SpoolBytes += p.bytes
		if !p.over {
			s.Running++
		}
	}
	r.mu.Lock()
	s.Sessions = len(r.sessions)
	r.mu.Unlock()
}

// close releases everything and waits for every goroutine. No request of the kernel
// runs any more.
func (r *batches) close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, b := range r.list() {
		r.release(b)
	}
	r.work.Wait()
}
