package server

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// attrBackend is the attribute of a kept copy that names the version of the backend that
// it is a copy of. It is the node's own: a writer can't set it.
const attrBackend = "sheaf.backend"

// checkTimeout bounds the first look at a backend when a bucket is made.
const checkTimeout = 30 * time.Second

// remotes are the backends that this node has open, and what it knows of the copies that
// it keeps. The backend is the truth; a kept copy is a cache of it.
type remotes struct {
	n    *Node
	o    backend.Options
	warm warmth
	cold downloads
	ask  ranges
	jobs prefetches

	mu   sync.Mutex
	open map[string]*remote // guarded by mu: by bucket
}

// remote is a bucket with a backend.
type remote struct {
	rec bucketRecord
	b   *backend.Bucket
}

func newRemotes(n *Node, o backend.Options) *remotes {
	r := &remotes{n: n, o: o, open: map[string]*remote{}}
	r.cold.by = map[peer.ObjectName]*download{}
	r.jobs.init(r)
	return r
}

// of gives the backend of a bucket.
func (r *remotes) of(rec bucketRecord) (*remote, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	have := r.open[rec.Name]
	if have != nil && have.rec.Backend == rec.Backend && have.rec.Created.Equal(rec.Created) {
		if have.rec.Validate != rec.Validate {
			have = &remote{rec, have.b}
			r.open[rec.Name] = have
		}
		return have, nil
	}
	b, err := backend.Open(r.n.ctx, rec.Backend, r.o)
	if err != nil {
		e := errs.Flatten(err)
		e.Bucket = rec.Name
		return nil, e
	}
	if have != nil {
		_ = have.b.Close() // of a bucket that was destroyed
	}
	have = &remote{rec, b}
	r.open[rec.Name] = have
	return have, nil
}

// forget lets go of a bucket that was destroyed.
func (r *remotes) forget(bucket string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if have := r.open[bucket]; have != nil {
		_ = have.b.Close() // nothing is written any more
		delete(r.open, bucket)
	}
}

func (r *remotes) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, have := range r.open {
		_ = have.b.Close() // the node's calls are over
	}
	clear(r.open)
}

// check refuses a backend that this node can't reach or list.
func (r *remotes) check(ctx context.Context, url string) error {
	b, err := backend.Open(ctx, url, r.o)
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return b.Check(ctx)
}

// remoteFault names the object in an error of the backend, and keeps how long to wait.
func (n *Node) remoteFault(rt *route, err error) error {
	if code := errs.CodeOf(err); code != errs.NotFound && code != errs.RangeNotSatisfiable && code != errs.Canceled {
		n.metrics.remoteFaults.Inc()
	}
	return &errs.Error{Code: errs.CodeOf(err), Bucket: rt.bucket, Object: rt.object, Err: err}
}

// described is what a client is told of an object that isn't kept here. have is what this
// node knows of the name: the version that a copy will get is above it.
func described(obj backend.Object, have store.Record) peer.ObjectInfo {
	return peer.ObjectInfo{Name: obj.Name, Size: obj.Size, Version: remoteVersion(obj, have), ModTime: obj.ModTime, Attrs: obj.Attrs}
}

// remoteVersion is the version that an object of the backend has in the cluster: the time
// it was written there, or the next above what this node has of the name.
func remoteVersion(obj backend.Object, have store.Record) uint64 {
	v := uint64(max(obj.ModTime.UnixNano(), 1))
	if v <= have.Version {
		v = have.Version + 1
	}
	return v
}

// tagged gives attributes with the backend's version among them.
func tagged(attrs map[string]string, version string) map[string]string {
	out := maps.Clone(attrs)
	if out == nil {
		out = map[string]string{}
	}
	out[attrBackend] = version
	return out
}

// untagged gives attributes without the backend's version.
func untagged(attrs map[string]string) map[string]string {
	if _, ok := attrs[attrBackend]; !ok {
		return attrs
	}
	out := maps.Clone(attrs)
	delete(out, attrBackend)
	return out
}

// record is what this node's disks have of a name, which may be nothing, or a deletion.
// A disk that is away has nothing: the backend has it all.
func (n *Node) record(bucket, object string) (store.Record, error) {
	rec, err := n.store.Lookup(bucket, object)
	if errs.IsCode(err, errs.NotFound) || errs.IsCode(err, errs.Unavailable) {
		return store.Record{}, nil
	}
	return rec, err
}

// kept gives the copy of an object that may be served from here; false when there is none,
// or it isn't what the backend has any more. A copy that this node has fetched, written or
// compared by the cluster map of now is current: every write of the name since went by way
// of this node. Any other, and with Validate each, is compared with the backend first.
func (n *Node) kept(ctx context.Context, rt *route, rem *remote) (store.Record, bool, error) {
	rec, err := n.record(rt.bucket, rt.object)
	if err != nil || rec.Version == 0 || rec.Deleted || rec.Attrs[attrBackend] == "" {
		return rec, false, err
	}
	key := warmKey(rt)
	if !rem.rec.Validate && rt.mine() && n.remotes.warm.has(rt.m.Hash(), key, rec.Version) {
		return rec, true, nil
	}
	n.metrics.remoteValidations.Inc()
	obj, err := rem.b.Head(ctx, rt.object)
	if errs.IsCode(err, errs.NotFound) {
		n.dropKept(rt.bucket, rt.object, rec.Version)
		return rec, false, rt.fail(errs.NotFound, "", "")
	}
	if err != nil {
		return rec, false, n.remoteFault(rt, err)
	}
	if obj.Version != rec.Attrs[attrBackend] {
		n.remotes.cold.detachOlder(peer.ObjectName{Bucket: rt.bucket, Object: rt.object}, obj.Version)
		return rec, false, nil
	}
	if rt.mine() { // else writes go past this node
		n.remotes.warm.add(rt.m.Hash(), key, rec.Version)
	}
	return rec, true, nil
}

// dropKept takes a copy away; the backend keeps the object.
func (n *Node) dropKept(bucket, object string, version uint64) {
	if err := n.store.Remove(bucket, object, version); err != nil && !errs.IsCode(err, errs.NotFound) && !errs.IsCode(err, errs.VersionMismatch) {
		n.log.Warn("the copy of a remote object can't be removed", "bucket", bucket, "object", object, "err", err)
	}
	n.dropShard(bucket, object)
}

// warmth remembers which copies are known to be current under the cluster map of now. It
// is bounded: what it forgets is compared once more.
type warmth struct {
	mu         sync.Mutex
	hash       uint64 // of the map
	young, old map[uint64]uint64
}

// warmEntries bounds each of the two halves of the memory.
const warmEntries = 512 << 10

func warmKey(rt *route) uint64 { return xxh3.HashString(rt.bucket + "/" + rt.object) }

func (w *warmth) has(hash, key, version uint64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hash != hash {
		return false
	}
	if v, ok := w.young[key]; ok {
		return v == version
	}
	v, ok := w.old[key]
	if ok && v == version {
		w.put(key, v)
		return true
	}
	return false
}

func (w *warmth) add(hash, key, version uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hash != hash {
		w.hash, w.young, w.old = hash, nil, nil
	}
	w.put(key, version)
}

// put remembers one; mu is held.
func (w *warmth) put(key, version uint64) {
	if len(w.young) >= warmEntries {
		w.old, w.young = w.young, nil
	}
	if w.young == nil {
		w.young = map[uint64]uint64{}
	}
	w.young[key] = version
}

// forget has the next reader compare.
func (w *warmth) forget(key uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.young, key)
	delete(w.old, key)
}
