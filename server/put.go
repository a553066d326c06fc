package server

import (
	"context"
	"fmt"
	"io"
	"maps"
	"sync"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// write is a write of one object, as its coordinator knows it.
type write struct {
	bucket, object string
	size           int64   // bytes; −1 when not known
	sum            *uint64 // announced: an object that has it ends the write at once
	attrs          map[string]string
	cond           store.Condition
	append         bool // the payload goes behind what the object has
}

func (n *Node) servePut(ctx context.Context, c *peer.ServerCall) error {
	return n.serveWrite(ctx, c, false)
}

func (n *Node) serveAppend(ctx context.Context, c *peer.ServerCall) error {
	return n.serveWrite(ctx, c, true)
}

func (n *Node) serveWrite(ctx context.Context, c *peer.ServerCall, more bool) error {
	req := peer.PutRequest{Append: more}
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := c.Allow(req.Bucket, peer.Writer); err != nil {
		return err
	}
	info, err := n.put(ctx, &req, peer.ReceiveBody(c.R))
	if err != nil {
		return err
	}
	return c.W.Frame((*peer.ObjectMessage)(&info), nil)
}

// put writes an object here, when this node is its owner, or there.
func (n *Node) put(ctx context.Context, req *peer.PutRequest, body io.Reader) (peer.ObjectInfo, error) {
	addr, err := n.owner(ctx, req.Bucket, req.Object, req.Forwarded)
	if err != nil {
		return peer.ObjectInfo{}, err
	}
	if addr != "" {
		on := *req
		on.Forwarded = true
		return n.calls.PutAt(ctx, addr, &on, body)
	}
	w := &write{bucket: req.Bucket, object: req.Object, size: -1, attrs: req.Attrs, append: req.Append,
		cond: store.Condition{Absent: req.IfAbsent, Version: req.IfVersion}}
	if req.Sized {
		w.size = req.Size
	}
	if req.Summed {
		w.sum = &req.Sum
	}
	do := n.write
	if req.Append {
		do = n.append
	}
	info, err := do(ctx, w, body)
	return objectInfo(info), err
}

// write coordinates a PUT at the owner: the bytes go once to this node and from here, as
// they come, to the other holders. When all have them in work files, the write is decided
// under the lock of the name, and committed here first: what this node's disks refuse has
// happened nowhere.
func (n *Node) write(ctx context.Context, w *write, body io.Reader) (store.Info, error) {
	r, err := n.route(w.bucket, w.object)
	if err != nil {
		return store.Info{}, err
	}
	if r.rec.Backend != "" {
		return n.writeRemote(ctx, r, w, body)
	}
	if err := r.enough(); err != nil {
		return store.Info{}, err
	}
	var have store.Info
	var done bool
	err = n.turned(ctx, func() (err error) {
		have, done, err = n.before(ctx, r, w)
		return err
	})
	if err != nil || done {
		return have, err
	}
	s, err := n.stage(ctx, r, w, body)
	if err != nil {
		return store.Info{}, err
	}
	defer s.close()
	var info store.Info
	err = n.turned(ctx, func() (err error) {
		info, err = n.commit(ctx, r, w, s)
		return err
	})
	if err == nil {
		n.metrics.written.Add(float64(info.Size))
	}
	return info, err
}

// before looks at what is there before a byte is read: whether a condition fails, whether
// the holders can be reached, and whether the object has the bytes already.
func (n *Node) before(ctx context.Context, r *route, w *write) (have store.Info, done bool, err error) {
	if len(r.holders) == 1 && w.cond == (store.Condition{}) && w.sum == nil {
		return have, false, nil // nothing that the commit doesn't find by itself
	}
	a, err := n.known(ctx, r)
	if err != nil {
		return have, false, err
	}
	if err := r.check(w.cond, a); err != nil {
		// A reader may have seen what a write that is being committed has done already,
		// and the records not yet: refuse only what is refused between two writes.
		unlock, lerr := n.writes.lock(ctx, w.bucket, w.object)
		if lerr != nil {
			return have, false, lerr
		}
		a, lerr = n.known(ctx, r)
		unlock()
		if lerr != nil {
			return have, false, lerr
		}
		if err = r.check(w.cond, a); err != nil {
			return have, false, err
		}
	}
	if w.sum == nil || w.append {
		return have, false, nil
	}
	v := a.newest()
	if !live(v) || v.Checksum != *w.sum || w.size >= 0 && w.size != v.Size {
		return have, false, nil
	}
	for _, one := range a {
		if r.holder(one.node) && one.Version != v.Version {
			return have, false, nil
		}
	}
	have, err = n.store.Stat(w.bucket, w.object)
	if err != nil || have.Version != v.Version || !maps.Equal(have.Attrs, w.attrs) {
		return have, false, nil // it has changed, or what goes with the bytes shall
	}
	n.metrics.earlyEnds.Inc()
	return have, true, nil
}

// check tells whether a condition holds of what the nodes have.
func (r *route) check(c store.Condition, a answers) error {
	v := a.newest()
	switch {
	case c == store.Condition{}:
		return nil
	case c.Absent && live(v):
		return r.fail(errs.AlreadyExists, fmt.Sprintf("the object is there with version %d", v.Version), "")
	case c.Version != 0 && live(v) && v.Version != c.Version:
		return r.fail(errs.VersionMismatch, fmt.Sprintf("the object has version %d, %d was asked for", v.Version, c.Version), "")
	case !live(v):
		// That nothing is found means nothing while somebody who may have it can't be asked.
		if err := r.missing(a); c.Version != 0 || errs.IsCode(err, errs.Unavailable) {
			return err
		}
	}
	return nil
}

// commit makes a staged object visible on all holders.
func (n *Node) commit(ctx context.Context, r *route, w *write, s *staging) (store.Info, error) {
	unlock, err := n.writes.lock(ctx, w.bucket, w.object)
	if err != nil {
		return store.Info{}, err
	}
	defer unlock()
	defer n.committing()()
	if now, err := n.route(w.bucket, w.object); err != nil {
		return store.Info{}, err
	} else if !now.same(r) {
		return store.Info{}, r.fail(errs.Unavailable, "the cluster map changed while the object was written", "")
	}
	// Between the first look and the lock others may have written. This node's own disks
	// know of all that did by way of it.
	mine, err := n.lookup(w.bucket, w.object)
	if err != nil && (w.cond != (store.Condition{}) || !errs.IsCode(err, errs.Unavailable)) {
		return store.Info{}, err // else a disk is away, and the object is written to another
	}
	var guard store.Condition
	high := max(mine.Version, s.high)
	a := answers{{node: r.self, VersionInfo: mine}}
	if !n.trusts() {
		// The newest version may be on its way to here.
		if a, err = n.known(ctx, r); err != nil {
			return store.Info{}, err
		}
		high = max(high, a.newest().Version)
	}
	if w.cond != (store.Condition{}) {
		if err := r.check(w.cond, a); err != nil {
			return store.Info{}, err
		}
		// Another node may think that it coordinates too: what was looked at must still be
		// there when this one commits.
		if guard.Version = mine.Version; !live(mine) {
			guard = store.Condition{Absent: true}
		}
	}
	version := s.version
	if version <= high {
		version = max(high+1, uint64(time.Now().UnixNano()))
	}
	if !s.detach() {
		return store.Info{}, context.Cause(ctx)
	}
	got, err := s.local.Commit(version, guard)
	switch code := errs.CodeOf(err); {
	case err != nil && guard != (store.Condition{}) && (code == errs.AlreadyExists || code == errs.NotFound || code == errs.VersionMismatch):
		return store.Info{}, r.overtaken(w.cond)
	case err != nil:
		return store.Info{}, err
	}
	s.dropIndex(n)
	info := s.info
	info.Version = version
	// Versions only grow: what is there when a commit returns is this write or a newer one.
	newer := got.Version > version
	theirs, err := s.commitOthers(version)
	newer = newer || theirs
	if now, e := n.route(w.bucket, w.object); e != nil || !now.same(r) || err != nil {
		n.repairSoon(w.bucket, w.object)
	}
	if err != nil {
		n.metrics.halfWrites.Inc()
		return store.Info{}, err
	}
	if newer && w.cond != (store.Condition{}) {
		return store.Info{}, r.overtaken(w.cond)
	}
	return info, nil
}

// overtaken is the error of a condition that held when it was checked and doesn't any more:
// another coordinator was faster.
func (r *route) overtaken(c store.Condition) error {
	if c.Absent {
		return r.fail(errs.AlreadyExists, "another write came first", "")
	}
	return r.fail(errs.VersionMismatch, "another write came first", "")
}

// commitOthers commits on the other holders, all at once. It tells whether one of them had
// something newer. An error means that the outcome isn't known: some holders have the
// write, and a newer one or repair will make all agree.
func (s *staging) commitOthers(version uint64) (newer bool, err error) {
	var wg sync.WaitGroup
	got := make([]uint64, len(s.calls))
	failed := make([]error, len(s.calls))
	for k, c := range s.calls {
		wg.Go(func() { // ends with the staging's context
			info, err := c.call.Commit(version)
			got[k], failed[k] = info.Version, err
		})
	}
	wg.Wait()
	for k, c := range s.calls {
		if failed[k] != nil {
			return newer, s.r.unknown(c.node, failed[k])
		}
		newer = newer || got[k] > version
	}
	return newer, nil
}

// unknown is the error of a write that happened here and perhaps not on another holder.
func (r *route) unknown(node int, err error) error {
	e := errs.Flatten(err)
	return r.fail(errs.Unavailable, "the outcome isn't known: a holder didn't confirm: "+e.Error(), r.m.Nodes[node].Name)
}

// serveStage takes a copy of an object that another node coordinates the write of.
func (n *Node) serveStage(ctx context.Context, c *peer.ServerCall) error {
	var req peer.StageRequest
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := n.needBucket(req.Bucket); err != nil {
		return err
	}
	o := store.StageOptions{Size: -1, Attrs: req.Attrs, ModTime: req.ModTime, Version: req.Version, Relaxed: req.Relaxed}
	if req.Sized {
		o.Size = req.Size
	}
	if req.Summed {
		o.Checksum = &req.Sum
	}
	t, err := n.store.Stage(ctx, req.Bucket, req.Object, peer.ReceiveBody(c.R), o)
	if err != nil {
		return err
	}
	defer t.Discard()
	high, err := n.lookup(req.Bucket, req.Object)
	if err != nil {
		return err
	}
	n.metrics.stagedCopies.Inc()
	info := t.Info()
	version, err := c.Staged(&peer.StagedMessage{Size: info.Size, Sum: info.Checksum, High: high})
	if err != nil {
		n.metrics.droppedCopies.Inc()
		return err
	}
	if f := n.faults.commit.Load(); f != nil {
		if err := (*f)(req.Bucket, req.Object); err != nil {
			return err
		}
	}
	defer n.committing()()
	got, err := t.Commit(version, store.Condition{})
	if err != nil {
		return err
	}
	n.dropShard(req.Bucket, req.Object)
	n.strayed(req.Bucket, req.Object)
	out := objectInfo(got)
	return c.W.Frame((*peer.ObjectMessage)(&out), nil)
}
