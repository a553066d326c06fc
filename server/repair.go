package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
)

const (
	repairsMost  = 100_000 // names; when there are more a pass finds them
	repairsOnce  = 8       // names under way
	repairFirst  = 100 * time.Millisecond
	repairMost   = 30 * time.Second
	repairsStale = 5 * time.Second // a name that waits for longer makes the node unsettled
)

// repairs is the queue of names whose copies disagree or are bad, found outside a pass: a
// commit that reached only some holders, a write that went by an older placement, a copy
// whose bytes fail their checksum. Each is brought in order by itself, again and again until
// it is. One goroutine owns it.
type repairs struct {
	r    *reconciler
	news chan struct{} // holds one

	mu     sync.Mutex
	queue  map[passName]*repair // guarded by mu
	rotten map[passName]string  // guarded by mu: copies that are bad, and no other node has one
}

// repair is one name of the queue.
type repair struct {
	since time.Time
	next  time.Time
	pause time.Duration
	check bool // the bytes of the own copy are suspect
	again bool // it was named anew while it was under way
	busy  bool
}

func newRepairs(r *reconciler) *repairs {
	return &repairs{r: r, news: make(chan struct{}, 1), queue: map[passName]*repair{}, rotten: map[passName]string{}}
}

// repairSoon has the copies of an object compared and brought in order in the background.
func (n *Node) repairSoon(bucket, object string) { n.reconciler.repairs.add(bucket, object, false) }

// copyIsBad is repairSoon for an object whose copy on this node failed its checksum.
func (n *Node) copyIsBad(bucket, object string) { n.reconciler.repairs.add(bucket, object, true) }

// suspect tells whether this node's copy of an object is known to be bad, or to have been
// bad when it was last read.
func (n *Node) suspect(bucket, object string) bool {
	q, k := n.reconciler.repairs, passName{bucket, object}
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.queue[k]
	_, rotten := q.rotten[k]
	return rotten || e != nil && e.check
}

// add puts a name into the queue; check tells that the bytes of this node's copy are suspect.
func (q *repairs) add(bucket, object string, check bool) {
	k := passName{bucket, object}
	q.mu.Lock()
	e := q.queue[k]
	full := e == nil && len(q.queue) >= repairsMost
	switch {
	case full:
	case e == nil:
		now := time.Now()
		q.queue[k] = &repair{since: now, next: now, pause: repairFirst, check: check}
	default:
		e.check = e.check || check
		e.again = e.busy
	}
	q.mu.Unlock()
	if full {
		q.r.restart()
	}
	q.wake()
}

func (q *repairs) wake() {
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// waiting is the number of names in the queue.
func (q *repairs) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queue)
}

// stale tells whether a name waits for long.
func (q *repairs) stale() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.queue {
		if time.Since(e.since) > repairsStale {
			return true
		}
	}
	return false
}

// lost is the number of objects whose only copy is bad.
func (q *repairs) lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.rotten)
}

// run is the queue's goroutine; it ends with ctx, and what it began has ended by then.
func (q *repairs) run(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(repairsOnce)
	defer func() { _ = g.Wait() }() // its functions give no errors
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.news:
		case <-timer.C:
		}
		due, next := q.due(time.Now())
		for _, k := range due {
			g.Go(func() error {
				q.do(ctx, k)
				return nil
			})
		}
		timer.Reset(next)
	}
}

// due takes the names whose time has come, and tells when to look again.
func (q *repairs) due(now time.Time) (due []passName, next time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	next = repairMost
	for k, e := range q.queue {
		switch {
		case e.busy:
		case e.next.After(now):
			next = min(next, e.next.Sub(now))
		case len(due) < 4*repairsOnce:
			e.busy = true
			due = append(due, k)
		default:
			next = 0
		}
	}
	return due, max(next, time.Millisecond)
}

// do repairs one name and puts it back when that failed.
func (q *repairs) do(ctx context.Context, k passName) {
	q.mu.Lock()
	check := q.queue[k].check
	q.mu.Unlock()
	err := q.one(ctx, k, check)
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.queue[k]
	e.busy = false
	switch {
	case err == nil && !e.again:
		delete(q.queue, k)
		q.r.n.metrics.repaired.Inc()
	case err == nil:
		e.again, e.next = false, time.Now()
		q.wake()
	default:
		if ctx.Err() == nil {
			q.r.log.Info("repair: tried again later", "bucket", k.bucket, "object", k.name, "err", err)
		}
		q.r.n.metrics.repairsFailed.Inc()
		e.again, e.next = false, time.Now().Add(e.pause)
		e.pause = min(2*e.pause, repairMost)
	}
}

// one brings all copies of a name to the newest record, this node's first.
func (q *repairs) one(ctx context.Context, k passName, check bool) error {
	n, p := q.r.n, q.r.active.Load()
	if p == nil || !p.nodeState().Readable() {
		return errs.New(errs.Unavailable, "repair", "this node isn't ready")
	}
	if _, ok := p.st.bucket(k.bucket); !ok {
		return nil
	}
	mine, err := n.store.Lookup(k.bucket, k.name)
	bad := errs.IsCode(err, errs.ChecksumMismatch) // not even its description can be read
	switch {
	case bad, err == nil, errs.IsCode(err, errs.NotFound), errs.IsCode(err, errs.Unavailable): // the last: its disk is away
	case errs.IsCode(err, errs.BucketNotFound):
		return nil
	default:
		return err
	}
	if check && !bad && err == nil && !mine.Deleted {
		_, err := n.store.Verify(ctx, k.bucket, k.name, nil)
		if bad = errs.IsCode(err, errs.ChecksumMismatch); !bad && err != nil {
			return err
		}
	}
	have := map[string]uint64{}
	var unasked error
	for _, node := range p.others() {
		v, err := n.versionsAt(ctx, p, node, k.bucket, []string{k.name})
		if err != nil {
			unasked = errors.Join(unasked, err)
			continue
		}
		have[node] = v[0]
	}
	best, from := mine.Version, ""
	for _, node := range p.others() {
		if v := have[node]; v > best || bad && from == "" && v > 0 && v == best {
			best, from = v, node
		}
	}
	switch {
	case from != "":
		if mine, err = n.fetch(ctx, p, from, k, mine, bad); err != nil {
			return err
		}
	case bad && unasked == nil:
		q.rot(k, fmt.Sprintf("version %d", mine.Version))
		return nil
	case bad:
		return unasked
	}
	q.sound(k)
	if mine.Version == 0 {
		return unasked
	}
	return errors.Join(unasked, q.spread(ctx, p, k, mine, have))
}

// spread brings this node's record to the holders that have an older one, and takes the
// own copy away where it doesn't belong.
func (q *repairs) spread(ctx context.Context, p *placement, k passName, mine store.Record, have map[string]uint64) error {
	holders, self, enough := p.place(k.bucket, k.name)
	for _, h := range holders {
		v, known := have[h]
		if h == p.st.Name {
			continue
		}
		if !known {
			return errs.New(errs.Unavailable, "repair", "node "+h+" doesn't answer")
		}
		if v >= mine.Version {
			continue
		}
		if err := q.r.n.sendRecords(ctx, p, h, k.bucket, []store.Record{mine})[0]; err != nil {
			return err
		}
	}
	if self >= 0 || !enough {
		return nil
	}
	err := q.r.remove(p, k.bucket, mine)
	if errs.IsCode(err, errs.NotFound) {
		return nil
	}
	return err
}

// rot remembers an object whose only copy is bad. The file stays: a part of it may be
// worth something to somebody.
func (q *repairs) rot(k passName, what string) {
	q.mu.Lock()
	_, known := q.rotten[k]
	q.rotten[k] = what
	q.mu.Unlock()
	if !known {
		q.r.log.Error("an object is damaged and no other node has a copy", "bucket", k.bucket, "object", k.name, "what", what)
	}
}

// sound forgets that an object was damaged.
func (q *repairs) sound(k passName) {
	q.mu.Lock()
	delete(q.rotten, k)
	q.mu.Unlock()
}

// fetch takes over the record that another node has of a name. A bad copy gives way only
// when the good one is on disk.
func (n *Node) fetch(ctx context.Context, p *placement, node string, k passName, mine store.Record, bad bool) (store.Record, error) {
	addr := p.addr(node)
	info, body, err := n.calls.GetAt(ctx, addr, &peer.ObjectRequest{Kind: wire.TGet, Bucket: k.bucket, Object: k.name, Forwarded: true})
	if errs.IsCode(err, errs.NotFound) {
		// A deletion, or it has gone on meanwhile.
		got, err := n.calls.VersionsAt(ctx, addr, k.bucket, []string{k.name})
		if err != nil {
			return mine, err
		}
		if v := got[0]; v.Deleted && v.Version > mine.Version {
			return n.store.Delete(k.bucket, k.name, v.Version, store.Condition{})
		}
		return mine, errs.New(errs.Unavailable, "repair", "the newest copy has moved")
	}
	if err != nil {
		return mine, err
	}
	defer body.Close()
	st, err := n.store.Stage(ctx, k.bucket, k.name, &throttled{ctx, body, n.reconciler.bytes}, store.StageOptions{
		Size: info.Size, Checksum: &info.Checksum, Attrs: info.Attrs, ModTime: info.ModTime, Version: info.Version})
	if err != nil {
		return mine, err
	}
	defer st.Discard()
	unlock, err := n.writes.lock(ctx, k.bucket, k.name)
	if err != nil {
		return mine, err
	}
	defer unlock()
	if bad && info.Version <= mine.Version {
		if err := n.store.Remove(k.bucket, k.name, mine.Version); err != nil && !errs.IsCode(err, errs.NotFound) {
			return mine, err
		}
	}
	got, err := st.Commit(info.Version, store.Condition{})
	if err != nil {
		return mine, err
	}
	n.metrics.replaced.Inc()
	n.log.Info("repair: took the copy of another node", "bucket", k.bucket, "object", k.name, "from", node, "version", got.Version, "bad", bad)
	return n.store.Lookup(k.bucket, k.name)
}

// throttled is a reader held back by a throttle.
type throttled struct {
	ctx context.Context
	r   io.Reader
	t   *throttle
}

func (t *throttled) Read(b []byte) (int, error) {
	k, err := t.r.Read(b)
	if k > 0 {
		if terr := t.t.take(t.ctx, k); terr != nil {
			return 0, terr
		}
	}
	return k, err
}
