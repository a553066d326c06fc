package server

import (
	"context"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// downloads are the objects that are on their way here, each once, however many ask.
type downloads struct {
	mu sync.Mutex
	by map[peer.ObjectName]*download // guarded by mu
}

// download is one object on its way from the backend into a work file. Readers follow the
// file as it grows. It ends when all has come, or when nobody wants it any more.
type download struct {
	n      *Node
	name   peer.ObjectName
	keep   bool
	cancel context.CancelFunc

	ready chan struct{} // closed when obj, have and version are known, or err
	ended chan struct{} // closed when it is over: kept, given up or failed
	obj   backend.Object
	have  store.Record // what this node had of the name before
	info  peer.ObjectInfo

	mu     sync.Mutex
	pinned bool          // guarded by mu: it goes on though nobody reads it
	users  int           // guarded by mu: readers, and the download itself
	f      *os.File      // guarded by mu: the work file, which lives on without its name
	size   int64         // guarded by mu: bytes in the file
	err    error         // guarded by mu: why no more will come
	grown  chan struct{} // guarded by mu: closed and replaced when size or err changes
}

// download joins the download of an object, or begins it. The caller leaves it. With keep
// the copy is committed when all has come.
func (n *Node) download(rt *route, rem *remote, keep bool) *download {
	ds := &n.remotes.cold
	name := peer.ObjectName{Bucket: rt.bucket, Object: rt.object}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d := ds.by[name]; d != nil && d.join() {
		n.metrics.remoteShared.Inc()
		return d
	}
	ctx, cancel := context.WithCancel(n.ctx)
	d := &download{n: n, name: name, keep: keep, cancel: cancel, ready: make(chan struct{}), ended: make(chan struct{}), grown: make(chan struct{}), users: 2}
	ds.by[name] = d
	n.metrics.remoteDownloads.Inc()
	n.wg.Go(func() { // ends with n.ctx, or when the last reader has left
		defer cancel()
		d.run(ctx, rt, rem)
		ds.mu.Lock()
		if ds.by[name] == d {
			delete(ds.by, name)
		}
		ds.mu.Unlock()
		close(d.ended)
		d.leave()
	})
	return d
}

// detach lets those who come later begin anew: what is on its way may have been replaced.
func (ds *downloads) detach(name peer.ObjectName) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	delete(ds.by, name)
}

// detachOlder is detach unless that version is what is on its way.
func (ds *downloads) detachOlder(name peer.ObjectName, version string) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d := ds.by[name]
	if d == nil {
		return
	}
	select {
	case <-d.ready:
		if d.obj.Version != version {
			delete(ds.by, name)
		}
	default: // it has yet to ask
	}
}

// join takes part in a download that isn't failing.
func (d *download) join() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil || d.users < 2 {
		return false
	}
	d.users++
	return true
}

// pin has the download go on to its end, whoever leaves.
func (d *download) pin() {
	d.mu.Lock()
	d.pinned = true
	d.mu.Unlock()
}

// leave gives the reader's part back. When only the download itself is left, it stops.
func (d *download) leave() {
	d.mu.Lock()
	d.users--
	left := d.users
	var f *os.File
	if left == 0 {
		f, d.f = d.f, nil
	}
	whole := d.pinned // else what is left to do, when all bytes are here, is to keep it
	select {
	case <-d.ready:
		whole = whole || d.size == d.obj.Size
	default:
	}
	d.mu.Unlock()
	if left == 1 && !whole {
		d.cancel()
	}
	if f != nil {
		_ = f.Close() // read only
	}
}

func (d *download) run(ctx context.Context, rt *route, rem *remote) {
	t, err := d.stage(ctx, rt, rem)
	if err != nil {
		select {
		case <-d.ready:
		default:
			defer close(d.ready)
		}
		d.end(err)
		return
	}
	defer t.Discard()
	d.end(io.EOF)
	if d.keep {
		d.commit(rt, t)
	}
}

// stage takes the bytes into a work file.
func (d *download) stage(ctx context.Context, rt *route, rem *remote) (*store.Staged, error) {
	n := d.n
	have, err := n.record(rt.bucket, rt.object)
	if err != nil {
		return nil, err
	}
	r, err := rem.b.Get(ctx, rt.object, 0, -1, "")
	if err != nil {
		return nil, n.remoteFault(rt, err)
	}
	defer r.Close()
	d.obj, d.have, d.info = r.Object(), have, described(r.Object(), have)
	close(d.ready)
	src := &remoteBody{r: r, n: n}
	t, err := n.store.Stage(ctx, rt.bucket, rt.object, src, store.StageOptions{Size: d.obj.Size, Attrs: tagged(d.obj.Attrs, d.obj.Version),
		ModTime: d.obj.ModTime, Version: d.info.Version, Relaxed: !d.keep || rt.rec.Durability == peer.Relaxed, Progress: d.progress})
	if err != nil && src.err != nil {
		err = n.remoteFault(rt, src.err) // the store wraps it, and it says more by itself
	}
	return t, err
}

// remoteBody counts what comes from a backend and keeps its error.
type remoteBody struct {
	r   *backend.Reader
	n   *Node
	err error
}

func (b *remoteBody) Read(p []byte) (int, error) {
	k, err := b.r.Read(p)
	b.n.metrics.remoteRead.Add(float64(k))
	if err != nil && err != io.EOF {
		b.err = err
	}
	return k, err
}

// progress is told by the store how far the work file goes.
func (d *download) progress(f *os.File, size int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.f == nil {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return // readers wait for the end then, and fail there
		}
		d.f = os.NewFile(uintptr(fd), f.Name())
	}
	d.size = size
	d.wake()
}

// end tells the readers that no more will come; io.EOF when that is all.
func (d *download) end(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.err = err
	d.wake()
}

// wake has the readers look; mu is held.
func (d *download) wake() {
	close(d.grown)
	d.grown = make(chan struct{})
}

// commit keeps the copy, unless the name was written, deleted or moved on meanwhile.
func (d *download) commit(rt *route, t *store.Staged) {
	n := d.n
	unlock, err := n.writes.lock(n.ctx, rt.bucket, rt.object)
	if err != nil {
		return // the node stops
	}
	defer unlock()
	defer n.committing()()
	if now, err := n.route(rt.bucket, rt.object); err != nil || !now.mine() || !rt.mine() || !now.rec.Created.Equal(rt.rec.Created) {
		return
	}
	got, err := t.Commit(d.info.Version, store.Condition{})
	if err != nil {
		n.log.Warn("an object was fetched and can't be kept", "bucket", rt.bucket, "object", rt.object, "err", err)
		return
	}
	if got.Version == d.info.Version {
		n.remotes.warm.add(rt.m.Hash(), warmKey(rt), got.Version)
		n.dropShard(rt.bucket, rt.object)
		n.metrics.remoteKept.Inc()
	}
}

// wait waits for the object's description.
func (d *download) wait(ctx context.Context) error {
	select {
	case <-d.ready:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == io.EOF || d.obj.Version != "" {
		return nil
	}
	return d.err
}

// settle waits for the end, and tells whether the bytes came.
func (d *download) settle(ctx context.Context) error {
	select {
	case <-d.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == io.EOF {
		return nil
	}
	return d.err
}

// follower reads a download as it grows. It belongs to one goroutine.
type follower struct {
	ctx    context.Context
	d      *download
	closed bool
}

var _ io.ReaderAt = (*follower)(nil)

// ReadAt waits for the bytes.
func (f *follower) ReadAt(p []byte, off int64) (int, error) {
	d := f.d
	for {
		d.mu.Lock()
		file, size, err, grown := d.f, d.size, d.err, d.grown
		d.mu.Unlock()
		switch {
		case off+int64(len(p)) <= size && file != nil, err == io.EOF && file != nil:
			return file.ReadAt(p, off)
		case err == io.EOF && d.obj.Size > 0:
			return 0, errs.New(errs.TooManyRequests, "get", "there was no descriptor to follow the work file with")
		case err != nil:
			return 0, err
		}
		select {
		case <-grown:
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		}
	}
}

// Close leaves the download.
func (f *follower) Close() error {
	if !f.closed {
		f.closed = true
		f.d.leave()
	}
	return nil
}
