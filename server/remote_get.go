package server

import (
	"context"
	"io"
	"sync"

	"sheaf/batching"
	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// rangesWhole is the size in bytes up to which a second range asked of an object that
// isn't kept brings the whole of it.
const rangesWhole = 8 << 20

// openRemote opens an entry of a remote bucket: the copy kept here when it is current, else
// what the backend has, which is served as it comes and kept. keep is false on a node that
// stands in for the owner.
func (n *Node) openRemote(ctx context.Context, rt *route, e *batching.Entry, keep bool) (peer.ObjectInfo, batching.Payload, error) {
	rem, err := n.remotes.of(rt.rec)
	if err != nil {
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	for range 4 {
		rec, ok, err := n.kept(ctx, rt, rem)
		if err != nil {
			return peer.ObjectInfo{}, batching.Payload{}, err
		}
		if ok {
			info, p, err := n.openEntry(ctx, e)
			switch {
			case err == nil && p.Version == rec.Version:
				n.metrics.remoteWarm.Inc()
				return info, p, nil
			case err == nil:
				p.Close() // replaced since
				continue
			case errs.IsCode(err, errs.NotFound) && e.ArchPath == "":
				continue // evicted since
			case errs.IsCode(err, errs.ChecksumMismatch):
				n.dropKept(rt.bucket, rt.object, rec.Version)
				continue
			}
			return info, p, err
		}
		if e.ArchPath == "" && !wholeEntry(e) && !n.remotes.ask.pays(rt, e) {
			return n.openRange(ctx, rt, rem, rec, e)
		}
		d := n.download(rt, rem, keep)
		if !wholeEntry(e) {
			d.pin() // it was decided that the whole pays
		}
		if e.ArchPath != "" && keep {
			// A member lies where the index says, which is made of the whole shard.
			err := d.settle(ctx)
			d.leave()
			if err != nil {
				return peer.ObjectInfo{}, batching.Payload{}, err
			}
			continue
		}
		if e.ArchPath != "" {
			d.leave()
			return peer.ObjectInfo{}, batching.Payload{}, rt.fail(errs.Unavailable, "the node that keeps the shard isn't there", "")
		}
		return n.follow(ctx, rt, d, e)
	}
	return peer.ObjectInfo{}, batching.Payload{}, rt.fail(errs.Unavailable, "the object is replaced faster than it can be fetched", "")
}

// wholeEntry tells whether an entry is all of its object.
func wholeEntry(e *batching.Entry) bool { return e.Start == 0 && e.Length <= 0 }

// follow serves an entry from a download, which it leaves.
func (n *Node) follow(ctx context.Context, rt *route, d *download, e *batching.Entry) (peer.ObjectInfo, batching.Payload, error) {
	if err := d.wait(ctx); err != nil {
		d.leave()
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	off, size, err := e.Range(d.obj.Size)
	if err != nil {
		d.leave()
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	n.metrics.remoteCold.Inc()
	f := &follower{ctx: ctx, d: d}
	return d.info, batching.Payload{R: f, Off: off, Size: size, Version: d.info.Version, Closer: f}, nil
}

// openRange reads a part straight from the backend.
func (n *Node) openRange(ctx context.Context, rt *route, rem *remote, rec store.Record, e *batching.Entry) (peer.ObjectInfo, batching.Payload, error) {
	r, err := rem.b.Get(ctx, rt.object, e.Start, e.Length, "")
	if err != nil {
		return peer.ObjectInfo{}, batching.Payload{}, n.remoteFault(rt, err)
	}
	obj := r.Object()
	off, size, err := e.Range(obj.Size)
	if err != nil {
		_ = r.Close() // nothing of it was read
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	n.remotes.ask.note(rt, obj.Size, size)
	n.metrics.remoteRanges.Inc()
	info := described(obj, rec)
	p := &remoteRange{ctx: ctx, n: n, rem: rem, name: rt.object, version: obj.Version, r: r, at: off, end: off + size}
	return info, batching.Payload{R: p, Off: off, Size: size, Version: info.Version, Closer: p}, nil
}

// remoteRange reads a part of an object at the backend, in order.
type remoteRange struct {
	ctx     context.Context
	n       *Node
	rem     *remote
	name    string
	version string
	r       *backend.Reader
	at, end int64
}

// ReadAt implements io.ReaderAt.
func (p *remoteRange) ReadAt(b []byte, off int64) (int, error) {
	if p.r == nil || off != p.at {
		_ = p.Close() // it is opened anew
		r, err := p.rem.b.Get(p.ctx, p.name, off, p.end-off, p.version)
		if err != nil {
			return 0, err
		}
		p.r, p.at = r, off
	}
	k, err := io.ReadFull(p.r, b)
	p.at += int64(k)
	p.n.metrics.remoteRead.Add(float64(k))
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return k, err
}

// Close ends the request.
func (p *remoteRange) Close() error {
	if p.r == nil {
		return nil
	}
	err := p.r.Close()
	p.r = nil
	return err
}

// ranges remembers what was read of objects in parts. A part is fetched alone and not
// kept; when the parts come to half of an object, or an object is small, the whole is
// fetched and kept: what is fetched is never more than about twice what that would have been.
type ranges struct {
	mu sync.Mutex
	by map[peer.ObjectName]asked // guarded by mu
}

type asked struct{ size, bytes int64 }

// rangesKnown bounds how many objects are remembered; beyond it all are forgotten.
const rangesKnown = 64 << 10

// pays tells whether the whole object is to be fetched for this entry.
func (r *ranges) pays(rt *route, e *batching.Entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.by[peer.ObjectName{Bucket: rt.bucket, Object: rt.object}]
	if !ok {
		return false
	}
	length := e.Length
	if length < 0 {
		length = a.size - e.Start
	}
	return a.size <= rangesWhole || 2*(a.bytes+length) >= a.size
}

func (r *ranges) note(rt *route, size, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil || len(r.by) >= rangesKnown {
		r.by = map[peer.ObjectName]asked{}
	}
	k := peer.ObjectName{Bucket: rt.bucket, Object: rt.object}
	r.by[k] = asked{size, r.by[k].bytes + bytes}
}

// failedRemote takes note of what came of reading a remote object from a node. A node that
// isn't there is stood in for; a copy whose bytes are bad is dropped, and fetched once more.
func (s *search) failedRemote(node int, err error) bool {
	switch code := errs.CodeOf(err); {
	case node == s.r.self && code == errs.ChecksumMismatch && !s.again:
		s.again = true
		s.n.metrics.badCopies.Inc()
		if rec, err := s.n.record(s.r.bucket, s.r.object); err == nil && rec.Version != 0 && !rec.Deleted {
			s.n.dropKept(s.r.bucket, s.r.object, rec.Version)
		}
		s.queue = []int{s.r.self}
		return true
	case node != s.r.self && (code == errs.Unavailable || code == errs.Timeout || code == errs.ChecksumMismatch) && len(s.queue) > 0:
		s.err = s.r.of(node, err)
		return true
	}
	return false
}

// headRemote describes an object or a member of a remote bucket.
func (n *Node) headRemote(ctx context.Context, rt *route, req *peer.ObjectRequest) (peer.ObjectInfo, error) {
	if req.Member != "" {
		info, p, err := n.openRemote(ctx, rt, &batching.Entry{Bucket: req.Bucket, ObjName: req.Object, ArchPath: req.Member}, true)
		p.Close()
		return info, err
	}
	rem, err := n.remotes.of(rt.rec)
	if err != nil {
		return peer.ObjectInfo{}, err
	}
	rec, ok, err := n.kept(ctx, rt, rem)
	if err != nil || ok {
		return objectInfo(rec.Info), err
	}
	obj, err := rem.b.Head(ctx, rt.object)
	if err != nil {
		return peer.ObjectInfo{}, n.remoteFault(rt, err)
	}
	return described(obj, rec), nil
}

// needKept fetches an object of a remote bucket unless its copy here is current.
func (n *Node) needKept(ctx context.Context, rt *route) error {
	rem, err := n.remotes.of(rt.rec)
	if err != nil {
		return err
	}
	_, ok, err := n.kept(ctx, rt, rem)
	if ok || err != nil {
		return err
	}
	d := n.download(rt, rem, true)
	defer d.leave()
	return d.settle(ctx)
}
