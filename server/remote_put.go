package server

import (
	"context"
	"fmt"
	"io"
	"maps"
	"time"

	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// writeRemote coordinates a PUT into a remote bucket: the bytes come into a work file here,
// go from there to the backend, and when that has them the copy is kept. Acknowledged means
// that the backend has them.
func (n *Node) writeRemote(ctx context.Context, rt *route, w *write, body io.Reader) (store.Info, error) {
	rem, err := n.remotes.of(rt.rec)
	if err != nil {
		return store.Info{}, err
	}
	attrs := untagged(w.attrs) // an append brings back what was there
	if have, done, err := n.beforeRemote(ctx, rt, rem, w, attrs); done || err != nil {
		return have, err
	}
	t, err := n.store.Stage(ctx, w.bucket, w.object, body, store.StageOptions{Size: w.size, Checksum: w.sum, Attrs: attrs, Relaxed: rt.rec.Durability == peer.Relaxed})
	if err != nil {
		return store.Info{}, err
	}
	defer t.Discard()
	unlock, err := n.writes.lock(ctx, w.bucket, w.object)
	if err != nil {
		return store.Info{}, err
	}
	defer unlock()
	defer n.committing()()
	if now, err := n.route(w.bucket, w.object); err != nil {
		return store.Info{}, err
	} else if !now.same(rt) || !now.mine() {
		return store.Info{}, rt.fail(errs.Unavailable, "the cluster map changed while the object was written", "")
	}
	if err := n.checkRemote(ctx, rt, rem, w.cond); err != nil {
		return store.Info{}, err
	}
	info, err := n.sendRemote(ctx, rt, rem, t, attrs, w.cond.Absent)
	if err == nil {
		n.metrics.written.Add(float64(info.Size))
	}
	return info, err
}

// sendRemote sends what was staged to the backend and keeps the copy. The caller has the
// name's lock.
func (n *Node) sendRemote(ctx context.Context, rt *route, rem *remote, t *store.Staged, attrs map[string]string, absent bool) (store.Info, error) {
	info := t.Info()
	obj, err := rem.b.Put(ctx, rt.object, t.Payload(), backend.PutOptions{Size: info.Size, Attrs: attrs, Absent: absent})
	// From here on what was kept, or is on its way, may be old, also when the outcome isn't known.
	n.remotes.warm.forget(warmKey(rt))
	n.remotes.cold.detach(peer.ObjectName{Bucket: rt.bucket, Object: rt.object})
	if err != nil {
		return store.Info{}, n.remoteFault(rt, err)
	}
	n.metrics.remoteWritten.Add(float64(info.Size))
	have, err := n.record(rt.bucket, rt.object)
	if err == nil {
		info.Version = max(have.Version+1, uint64(time.Now().UnixNano()))
		if err = t.SetAttrs(tagged(attrs, obj.Version)); err == nil {
			_, err = t.Commit(info.Version, store.Condition{})
		}
	}
	if err != nil {
		// The backend has it, and that is what was asked for; the next reader finds that
		// what is kept here is another version.
		n.log.Warn("an object was written to the backend and can't be kept", "bucket", rt.bucket, "object", rt.object, "err", err)
		return store.Info{Name: info.Name, Size: info.Size, Checksum: info.Checksum, ModTime: obj.ModTime, Version: remoteVersion(obj, have), Attrs: attrs}, nil
	}
	n.dropShard(rt.bucket, rt.object)
	n.remotes.warm.add(rt.m.Hash(), warmKey(rt), info.Version)
	return info, nil
}

// beforeRemote looks at what is there before a byte is read.
func (n *Node) beforeRemote(ctx context.Context, rt *route, rem *remote, w *write, attrs map[string]string) (have store.Info, done bool, err error) {
	if err := n.checkRemote(ctx, rt, rem, w.cond); err != nil {
		return have, false, err
	}
	if w.sum == nil || w.append {
		return have, false, nil
	}
	rec, ok, err := n.kept(ctx, rt, rem)
	if err != nil && !errs.IsCode(err, errs.NotFound) {
		return have, false, err
	}
	if err != nil || !ok || rec.Checksum != *w.sum || w.size >= 0 && w.size != rec.Size || !maps.Equal(untagged(rec.Attrs), attrs) {
		return have, false, nil
	}
	n.metrics.earlyEnds.Inc()
	return rec.Info, true, nil
}

// checkRemote tells whether a condition holds of what the backend has.
func (n *Node) checkRemote(ctx context.Context, rt *route, rem *remote, c store.Condition) error {
	if c == (store.Condition{}) {
		return nil
	}
	obj, err := rem.b.Head(ctx, rt.object)
	switch {
	case errs.IsCode(err, errs.NotFound) && c.Absent:
		return nil
	case err != nil:
		return n.remoteFault(rt, err)
	case c.Absent:
		return rt.fail(errs.AlreadyExists, "the object is there", "")
	}
	rec, err := n.record(rt.bucket, rt.object)
	if err != nil {
		return err
	}
	version := rec.Version
	if rec.Deleted || rec.Attrs[attrBackend] != obj.Version {
		version = remoteVersion(obj, rec)
	}
	if version != c.Version {
		return rt.fail(errs.VersionMismatch, fmt.Sprintf("the object has version %d, %d was asked for", version, c.Version), "")
	}
	return nil
}

// deleteRemote removes an object from the backend, then the copy. The deletion is noted
// here, above every version known: a fetch that is under way doesn't bring the copy back.
// The caller has the name's lock.
func (n *Node) deleteRemote(ctx context.Context, rt *route, only uint64) error {
	rem, err := n.remotes.of(rt.rec)
	if err != nil {
		return err
	}
	if err := n.checkRemote(ctx, rt, rem, store.Condition{Version: only}); err != nil {
		return err
	}
	gone := rem.b.Delete(ctx, rt.object)
	n.remotes.warm.forget(warmKey(rt))
	n.remotes.cold.detach(peer.ObjectName{Bucket: rt.bucket, Object: rt.object})
	if gone != nil && !errs.IsCode(gone, errs.NotFound) {
		return n.remoteFault(rt, gone)
	}
	have, err := n.record(rt.bucket, rt.object)
	if err != nil {
		return err
	}
	version := max(have.Version+1, uint64(time.Now().UnixNano()))
	if _, err := n.store.Delete(rt.bucket, rt.object, version, store.Condition{}); err != nil && !errs.IsCode(err, errs.NotFound) {
		return err
	}
	n.dropShard(rt.bucket, rt.object)
	if gone != nil {
		return rt.fail(errs.NotFound, "", "")
	}
	return nil
}
