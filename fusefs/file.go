package fusefs

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"sheaf/internal/errs"
)

// freshSlack makes the mount trust a version a little longer than the kernel trusts
// the name that led to it.
const freshSlack = 100 * time.Millisecond

// version is what an object or member was at one moment.
type version struct {
	size    int64
	version uint64
	mtime   time.Time
}

// fileNode is one version of an object, or of a member of a shard. A new version is
// a new node with the same inode number: the kernel's pages belong to a node, so
// they can be kept for good, and handles of two versions never share any. When a
// node turns out to be superseded it answers ESTALE, and the kernel looks the name
// up anew before it bothers the program with that.
type fileNode struct {
	fs.Inode
	readOnly
	f      *FS
	bucket string
	object string
	member string
	shard  *shard // of a member; nil for an object
	v      version

	mu          sync.Mutex
	confirmedAt time.Time // when this was last known to be the current version
	aloneAt     time.Time // when the object was last known to hide behind no folder
	warm        bool      // bytes were given to the kernel, which may have kept them
}

var (
	_ fs.NodeGetattrer = (*fileNode)(nil)
	_ fs.NodeOpener    = (*fileNode)(nil)
)

// fileID is the identity of one version; the inode number is that of the name.
func fileID(bucket, object, member string, version uint64) fs.StableAttr {
	id := identity(syscall.S_IFREG, "file", bucket, object, member)
	id.Gen += version * 0x9e3779b97f4a7c15 // odd, so that no two versions meet
	return id
}

func (n *fileNode) confirm(at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at.After(n.confirmedAt) {
		n.confirmedAt = at
	}
}

// doubt makes the next use ask the cluster.
func (n *fileNode) doubt() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.confirmedAt = time.Time{}
}

// check makes sure that this was the current version at most AttrTimeout ago; the
// error is a VersionMismatch when it was not.
func (n *fileNode) check(ctx context.Context) error {
	n.mu.Lock()
	at := n.confirmedAt
	n.mu.Unlock()
	if t := n.f.opt.AttrTimeout; t > 0 && time.Since(at) < t+freshSlack {
		return nil
	}
	at = time.Now()
	fail := func(code errs.Code) error {
		return &errs.Error{Code: code, Op: "open", Bucket: n.bucket, Object: n.object, Member: n.member}
	}
	var now uint64
	if n.shard != nil {
		t, err := n.shard.table(ctx)
		if err != nil {
			return err
		}
		if e := t.find(n.member); e == nil || e.dir() {
			return fail(errs.NotFound)
		}
		now = t.version
	} else {
		info, err := n.f.objects.Head(ctx, n.bucket, n.object)
		if err != nil {
			return err
		}
		now = info.Version
	}
	if now != n.v.version {
		return fail(errs.VersionMismatch)
	}
	n.confirm(at)
	return nil
}

// Getattr gives the version's attributes, also when it is no longer the current
// one but still open.
func (n *fileNode) Getattr(ctx context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.f.m.ops.WithLabelValues("getattr").Inc()
	if fh == nil {
		if err := n.check(ctx); err != nil {
			return n.f.errno(ctx, "getattr", err)
		}
	}
	n.f.fileAttr(&out.Attr, n.v.size, n.v.mtime)
	out.SetTimeout(n.f.opt.AttrTimeout)
	return 0
}

// Open begins to read this version, if it is still the current one (close-to-open).
func (n *fileNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.f.m.ops.WithLabelValues("open").Inc()
	if writes(flags) {
		return nil, 0, syscall.EROFS
	}
	if err := n.check(ctx); err != nil {
		return nil, 0, n.f.errno(ctx, "open", err)
	}
	h := &fileHandle{n: n}
	if l, ok := n.f.batches.whole.open(wholeKey{n.bucket, n.object, n.member}, n.v.version, n.v.size); ok {
		n.f.m.prefetched.Inc()
		h.spooled = &l
	} else {
		h.content = newContent(n.f, n.bucket, n.object, n.member, n.v)
		if errno := h.first(ctx); errno != 0 {
			h.content.close()
			return nil, 0, errno
		}
	}
	return h, fuse.FOPEN_NOFLUSH | fuse.FOPEN_KEEP_CACHE, 0
}

// fileHandle reads one version of a file.
type fileHandle struct {
	n       *fileNode
	spooled *location // the same bytes in a live batch, or
	content *content  // in the cluster
}

var (
	_ fs.FileReader   = (*fileHandle)(nil)
	_ fs.FileReleaser = (*fileHandle)(nil)
)

// first fetches a small file that the kernel can't have yet when it is opened: the
// same call as at the first read, but here a version that has just been superseded
// makes the kernel look again, where a read could only fail.
func (h *fileHandle) first(ctx context.Context) syscall.Errno {
	n := h.n
	n.mu.Lock()
	warm := n.warm
	n.mu.Unlock()
	if warm || n.v.size == 0 || n.v.size > wholeSize {
		return 0
	}
	var one [1]byte
	return h.fetch(ctx, one[:], 0)
}

// fetch reads from the cluster.
func (h *fileHandle) fetch(ctx context.Context, dest []byte, off int64) syscall.Errno {
	err := h.content.read(ctx, dest, off)
	switch code := errs.CodeOf(err); {
	case err == nil:
		return 0
	case code == errs.VersionMismatch || code == errs.NotFound:
		h.n.doubt()
		return syscall.ESTALE
	}
	return h.n.f.errno(ctx, "read", err)
}

func (h *fileHandle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	h.n.f.m.ops.WithLabelValues("read").Inc()
	dest = dest[:max(0, min(int64(len(dest)), h.n.v.size-off))]
	if h.spooled != nil {
		n, err := h.spooled.b.spool.readAt(dest, h.spooled.off+off)
		h.n.f.m.prefetchedBytes.Add(float64(n))
		if err != nil || n < len(dest) {
			return nil, syscall.EIO
		}
		return fuse.ReadResultData(dest), 0
	}
	if errno := h.fetch(ctx, dest, off); errno != 0 {
		return nil, errno
	}
	h.n.mu.Lock()
	h.n.warm = true
	h.n.mu.Unlock()
	return fuse.ReadResultData(dest), 0
}

func (h *fileHandle) Release(context.Context) syscall.Errno {
	if h.spooled != nil {
		h.spooled.b.close()
	} else {
		h.content.close()
	}
	return 0
}
