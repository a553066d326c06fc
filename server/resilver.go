package server

import (
	"context"
	"slices"
	"sync"
	"time"

	"sheaf/internal/store"
	"sheaf/peer"
)

// resilverer moves objects to the mountpath that they belong on after a change of this
// node's mountpaths, and has the other nodes send what a lost one had. One goroutine owns it.
type resilverer struct {
	n    *Node
	news chan struct{} // holds one: the mountpaths have changed

	mu     sync.Mutex
	status peer.TaskStatus // guarded by mu
	lost   bool            // guarded by mu: since the last look a mountpath went away
}

func newResilverer(n *Node) *resilverer {
	return &resilverer{n: n, news: make(chan struct{}, 1)}
}

// changed tells that mountpaths came, or went when lost.
func (r *resilverer) changed(lost bool) {
	r.mu.Lock()
	r.lost = r.lost || lost
	r.mu.Unlock()
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *resilverer) get() peer.TaskStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

func (r *resilverer) set(f func(*peer.TaskStatus)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.status)
}

// run is the resilverer's goroutine; it ends with ctx.
func (r *resilverer) run(ctx context.Context) {
	if r.n.ready(ctx) != nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.news:
		}
		r.mu.Lock()
		lost := r.lost
		r.lost = false
		r.mu.Unlock()
		if lost {
			// A new epoch is a new placement: every node looks through what it has, and sends
			// what this one lacks.
			if err := r.n.renew(ctx); err != nil {
				r.n.log.Error("a mountpath is gone, and the other nodes can't be told", "err", err)
			}
		}
		for wait := passFirst; ctx.Err() == nil; wait = min(2*wait, passMost) {
			err := r.resilver(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			r.n.log.Warn("resilver: it failed and goes on later", "err", err)
			pause(ctx, wait)
		}
	}
}

// resilver moves what lies on the wrong mountpath.
func (r *resilverer) resilver(ctx context.Context) error {
	r.set(func(t *peer.TaskStatus) {
		*t = peer.TaskStatus{Active: true, Started: time.Now(), Finished: t.Finished}
	})
	before := int64(0)
	err := r.n.store.Resilver(ctx, func(done, moved, bytes int64) {
		r.set(func(t *peer.TaskStatus) { t.Objects, t.Moved, t.Bytes = uint64(done), uint64(moved), uint64(bytes) })
		r.n.metrics.resilverMoved.Add(float64(moved - before))
		before = moved
	})
	r.set(func(t *peer.TaskStatus) {
		t.Active = false
		if err == nil {
			t.Finished = time.Now()
		} else {
			t.Failed++
		}
	})
	t := r.get()
	if err == nil {
		r.n.log.Info("resilvered", "objects", t.Objects, "moved", t.Moved, "bytes", t.Bytes)
	}
	return err
}

// diskFault is told by the store that it has disabled a mountpath.
func (n *Node) diskFault(dir string, err error) {
	n.log.Error("a mountpath is disabled: its disk fails", "dir", dir, "err", err)
	n.resilverer.changed(true)
}

// disks are the identities of the mountpaths in use.
func disks(all []store.MountpathStatus) (ids []string) {
	for _, m := range all {
		if m.Enabled {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// lookAtDisks compares the mountpaths with those of the last run. What the process before
// had acknowledged may be lost, with a disk or by its sudden end, and the others have it.
func (n *Node) lookAtDisks() (changed, lost bool) {
	last, now := n.progress.get(), disks(n.store.Mountpaths())
	if last.Saved.IsZero() {
		return false, false // nothing ran here before
	}
	for _, id := range last.Disks {
		lost = lost || !slices.Contains(now, id)
	}
	return !slices.Equal(last.Disks, now), lost || !last.Clean
}

func (n *Node) serveMountpaths(_ context.Context, c *peer.ServerCall) error {
	return c.W.Frame(&peer.MountpathsMessage{Mountpaths: n.mountpaths()}, nil)
}

func (n *Node) mountpaths() (all []peer.MountpathStatus) {
	for _, m := range n.store.Mountpaths() {
		all = append(all, peer.MountpathStatus{Dir: m.Dir, ID: m.ID, Enabled: m.Enabled, Err: m.Err, Free: uint64(m.Free), Total: uint64(m.Total), Objects: uint64(m.Objects)})
	}
	return all
}

func (n *Node) serveSetMountpath(_ context.Context, c *peer.ServerCall) error {
	var req peer.MountpathSetRequest
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := n.store.SetMountpath(req.Dir, req.Enabled); err != nil {
		return err
	}
	n.log.Info("mountpath set", "dir", req.Dir, "enabled", req.Enabled, "by", c.Name)
	n.progress.set(func(s *savedProgress) { s.Disks = disks(n.store.Mountpaths()) })
	n.resilverer.changed(!req.Enabled)
	return nil
}
