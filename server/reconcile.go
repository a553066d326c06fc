package server

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/internal/store"
	"sheaf/peer"
)

// How the reconciler goes about it.
const (
	reconcileRest   = 50 * time.Millisecond // after a change of placement, for more of them
	tombstoneKept   = 10 * time.Minute      // at least, however settled the cluster is
	tombstonesEvery = time.Minute
)

// reconciler keeps this node's objects where they belong. One goroutine owns it:
//
//	news of the map or of a bucket ─▶ turn the gate ─▶ pass ─▶ say that it is settled
//	                     ▲                               │
//	                     └────────── a newer one ────────┘ ends it
//
// The same engine brings objects to a node that joined, drains one that leaves, makes the
// copies anew that a lost node had, and tells one that returns what was deleted meanwhile.
type reconciler struct {
	// dependencies
	n       *Node
	log     *slog.Logger
	bytes   *throttle
	objects *throttle
	repairs *repairs

	gate   gate
	active atomic.Pointer[placement] // what this node goes by; nil while it turns
	walked atomic.Uint64             // hash of the placement by which a pass has been around
	over   atomic.Uint64             // hash of the placement by which a pass has come to its end
	news   chan struct{}             // holds one: something may have changed

	mu      sync.Mutex
	again   bool          // guarded by mu: a pass was asked for
	heard   chan struct{} // guarded by mu: closed when a node has said something new
	running *pass         // guarded by mu: the pass under way
	started time.Time     // guarded by mu: of the pass under way or the last
	ended   time.Time     // guarded by mu: of the last pass that came to its end
	before  passTotals    // guarded by mu: of the passes before the one under way
}

// passTotals are a pass's counts at a moment.
type passTotals struct{ Objects, Bytes, Moved, Removed, Failed uint64 }

func (c *passCount) totals() passTotals {
	return passTotals{Objects: c.objects.Load(), Bytes: c.bytes.Load(), Moved: c.moved.Load(), Removed: c.removed.Load(), Failed: c.failed.Load()}
}

func (t passTotals) plus(o passTotals) passTotals {
	return passTotals{t.Objects + o.Objects, t.Bytes + o.Bytes, t.Moved + o.Moved, t.Removed + o.Removed, t.Failed + o.Failed}
}

func newReconciler(n *Node) *reconciler {
	r := &reconciler{n: n, log: n.log, news: make(chan struct{}, 1), heard: make(chan struct{})}
	r.bytes = newThrottle(n.o.RebalanceBytes, 256<<10)
	r.objects = newThrottle(n.o.RebalanceObjects, 1)
	r.repairs = newRepairs(r)
	return r
}

// look makes the reconciler look at the state again.
func (r *reconciler) look() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// hear wakes what waits for other nodes: one has said something new.
func (r *reconciler) hear() {
	r.mu.Lock()
	close(r.heard)
	r.heard = make(chan struct{})
	r.mu.Unlock()
}

func (r *reconciler) hearing() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heard
}

// restart makes a pass begin, also when nothing has changed.
func (r *reconciler) restart() {
	r.mu.Lock()
	r.again = true
	r.mu.Unlock()
	r.look()
}

func (r *reconciler) asked() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.again
	r.again = false
	return was
}

// run is the reconciler's goroutine; it ends with ctx.
func (r *reconciler) run(ctx context.Context) {
	if r.n.ready(ctx) != nil {
		return
	}
	sweep := time.NewTicker(tombstonesEvery)
	defer sweep.Stop()
	for ctx.Err() == nil {
		p, err := r.turn(ctx)
		if err != nil {
			return
		}
		if asked := r.asked(); asked || r.over.Load() != p.hash {
			if r.reconcile(ctx, p) {
				continue
			}
		}
		select {
		case <-ctx.Done():
		case <-r.news:
		case <-sweep.C:
			r.forgetTombstones(ctx, uint64(time.Now().Add(-tombstoneKept).UnixNano()))
		}
	}
}

// turn makes the node go by its newest state. When it returns, no commit or removal is
// under way that went by an older one.
func (r *reconciler) turn(ctx context.Context) (*placement, error) {
	p := newPlacement(r.n.state.Load())
	have := r.active.Load()
	if have != nil && have.st == p.st {
		return have, nil
	}
	if have == nil || have.hash != p.hash {
		r.active.Store(nil) // whoever enters the gate from here on doesn't go by it any more
		if err := r.gate.pass(ctx); err != nil {
			return nil, err
		}
	}
	r.active.Store(p)
	r.n.announce()
	return p, nil
}

// same tells whether the newest state places objects as p does, and keeps the rest of it.
func (r *reconciler) same(p *placement) bool {
	st := r.n.state.Load()
	if r.active.Load().st == st {
		return true
	}
	now := newPlacement(st)
	if now.hash != p.hash {
		return false
	}
	r.active.Store(now)
	return true
}

// hash stands for the placement that this node goes by; 0 while it turns.
func (r *reconciler) hash() uint64 {
	if p := r.active.Load(); p != nil {
		return p.hash
	}
	return 0
}

// reconcile runs a pass for p until it is over or the placement changes. It tells whether
// the caller is to look at the state at once.
func (r *reconciler) reconcile(ctx context.Context, p *placement) (again bool) {
	if s := p.nodeState(); s != peer.Up && s != peer.Leaving {
		return false // while others take this node for dead, or it has left, nothing of it moves
	}
	pctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	run := &pass{env: r.env(p)}
	r.begin(run)
	go func() { done <- r.pass(pctx, run, p) }() // ends with pctx; waited for below
	for {
		select {
		case err := <-done:
			return r.end(ctx, p, err)
		case <-r.news:
			if r.same(p) {
				continue
			}
			cancel()
			<-done
			r.finished(false)
			return true
		}
	}
}

// pass is one pass; before it there is time for more changes to come.
func (r *reconciler) pass(ctx context.Context, run *pass, p *placement) error {
	select {
	case <-time.After(reconcileRest):
	case <-ctx.Done():
		return ctx.Err()
	}
	pause := passFirst
	var from cursor
	if s := r.n.progress.get(); s.Placement == p.hash {
		from = s.Reconcile // where a process that ended since had come
	}
	for {
		err := run.run(ctx, from)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// This node's own disks failed it.
		r.log.Warn("reconcile: the pass failed and is made again", "err", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause, from = min(2*pause, passMost), cursor{}
	}
}

func (r *reconciler) begin(run *pass) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running, r.started = run, time.Now()
}

func (r *reconciler) finished(whole bool) (t passTotals) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t = r.running.seen.totals()
	r.before, r.running = r.before.plus(t), nil
	if whole {
		r.ended = time.Now()
	}
	return t
}

// end closes a pass that came to its end, or was ended by the node's shutdown.
func (r *reconciler) end(ctx context.Context, p *placement, err error) (again bool) {
	t := r.finished(err == nil)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Error("reconcile: a pass ended early", "err", err)
		}
		return false
	}
	r.n.progress.set(func(s *savedProgress) { s.Placement, s.Reconcile = 0, cursor{} })
	r.over.Store(p.hash)
	r.n.metrics.passes.Inc()
	r.log.Info("reconciled", "map", p.st.Map.Version, "objects", t.Objects, "moved", t.Moved, "bytes", t.Bytes, "removed", t.Removed, "failed", t.Failed)
	r.n.announce()
	if p.nodeState() == peer.Leaving {
		r.drained(ctx, p)
	}
	return false
}

// drained makes a node that leaves one that has left, when it holds nothing any more.
func (r *reconciler) drained(ctx context.Context, p *placement) {
	for _, b := range p.st.sortedBuckets(false) {
		recs, err := r.n.store.Records(ctx, b.Name, "", 1)
		if err != nil && !errs.IsCode(err, errs.BucketNotFound) || len(recs) > 0 {
			r.log.Warn("this node leaves and still holds objects", "bucket", b.Name, "err", err)
			r.restart()
			return
		}
	}
	if err := r.n.left(ctx); err != nil {
		r.log.Error("this node holds nothing any more and can't say so", "err", err)
	}
}

// env is the node as a pass sees it.
func (r *reconciler) env(p *placement) passEnv {
	n := r.n
	saved := time.Now()
	return passEnv{
		buckets: func() (names []string) {
			for _, b := range n.state.Load().sortedBuckets(false) {
				names = append(names, b.Name)
			}
			return names
		},
		records: n.store.Records,
		lookup:  n.store.LookupMany,
		place:   func(bucket, name string) ([]string, int, bool) { return r.active.Load().place(bucket, name) },
		versions: func(ctx context.Context, node, bucket string, names []string) ([]uint64, error) {
			return n.versionsAt(ctx, p, node, bucket, names)
		},
		send: func(ctx context.Context, node, bucket string, recs []store.Record) []error {
			return n.sendRecords(ctx, p, node, bucket, recs)
		},
		remove: func(bucket string, rec store.Record) error { return r.remove(p, bucket, rec) },
		done:   func(node string) bool { return n.walkedAt(node) == p.hash },
		repair: r.repairs.add,
		save: func(c cursor) {
			if time.Since(saved) >= time.Second {
				n.progress.set(func(s *savedProgress) { s.Placement, s.Reconcile = p.hash, c })
				saved = time.Now()
			}
		},
		walked: func() {
			r.walked.Store(p.hash)
			n.announce()
		},
		wake: r.hearing,
	}
}

// committing begins the last step of a write that this node coordinates; leave ends it. The
// placement that it reads after committing stays this node's until then: a write can't
// become visible by an older one when all nodes have settled by the newer.
func (n *Node) committing() (leave func()) { return n.reconciler.gate.enter() }

// remove takes the own copy away, if the node still goes by p.
func (r *reconciler) remove(p *placement, bucket string, rec store.Record) error {
	defer r.gate.enter()()
	if r.hash() != p.hash {
		return errPlaced
	}
	if err := r.n.store.Remove(bucket, rec.Name, rec.Version); err != nil {
		return err
	}
	if names.IsShard(rec.Name) {
		r.n.shards.drop(bucket, rec.Name)
	}
	r.n.metrics.reconcileRemoved.Inc()
	return nil
}

// forgetTombstones lets go of the deletions before a version, once no node can bring back
// what they deleted: all are there and settled, and have all of their disks.
func (r *reconciler) forgetTombstones(ctx context.Context, before uint64) {
	p := r.active.Load()
	if p == nil || !r.n.settled() || r.repairs.waiting() > 0 || p.st.Map.Count(peer.Down) > 0 || len(disks(r.n.store.Mountpaths())) < len(r.n.store.Mountpaths()) {
		return
	}
	for _, node := range p.others() {
		s, err := r.n.calls.Status(ctx, p.addr(node))
		if err != nil || !s.Settled || s.MapHash != p.st.Map.Hash() || slices.ContainsFunc(s.Mountpaths, func(m peer.MountpathStatus) bool { return !m.Enabled }) {
			return
		}
	}
	for _, b := range p.st.sortedBuckets(false) {
		k, err := r.n.store.ForgetTombstones(ctx, b.Name, before)
		if err != nil && ctx.Err() == nil && !errs.IsCode(err, errs.BucketNotFound) {
			r.log.Warn("old deletions can't be forgotten", "bucket", b.Name, "err", err)
		}
		r.n.metrics.tombstonesForgotten.Add(float64(k))
	}
}

// status tells how the pass under way goes, or the last one went.
func (r *reconciler) status() peer.TaskStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.before
	if r.running != nil {
		t = t.plus(r.running.seen.totals())
	}
	return peer.TaskStatus{Active: r.running != nil, Objects: t.Objects, Bytes: t.Bytes, Moved: t.Moved, Failed: t.Failed, Started: r.started, Finished: r.ended}
}

// renew gives this node's record a new epoch, which makes all nodes reconcile.
func (n *Node) renew(ctx context.Context) error {
	_, err := n.change(func(st *state) (*state, bool) {
		me := st.Map.Nodes[st.Map.Find(st.Name)] // enterMap came before
		if me.State == peer.Left {
			return st, false
		}
		me.Epoch++
		return st.with(me), true
	})
	if err == nil {
		n.push(ctx)
	}
	return err
}
