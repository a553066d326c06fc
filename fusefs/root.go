package fusefs

import (
	"context"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"sheaf/internal/names"
	"sheaf/peer"
)

// dotSheaf is the folder of the control file; no bucket can be called so.
const dotSheaf = ".sheaf"

// rootNode is the mountpoint: the buckets, and .sheaf, which listings leave out.
type rootNode struct {
	fs.Inode
	readOnly
	f *FS

	mu      sync.Mutex
	buckets []peer.BucketInfo // sorted by name
	at      time.Time         // when they were asked for
}

var (
	_ fs.NodeLookuper  = (*rootNode)(nil)
	_ fs.NodeReaddirer = (*rootNode)(nil)
	_ fs.NodeGetattrer = (*rootNode)(nil)
	_ fs.NodeStatfser  = (*rootNode)(nil)
)

func newRoot(f *FS) *rootNode { return &rootNode{f: f} }

func (r *rootNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	r.f.dirAttr(&out.Attr)
	out.SetTimeout(r.f.opt.AttrTimeout)
	return 0
}

// Statfs gives the limits that programs ask for; the cluster's size isn't known.
func (r *rootNode) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	out.Bsize, out.Frsize, out.NameLen = 4096, 4096, nameMax
	return 0
}

// list gives the buckets, at most EntryTimeout old unless fresh is wanted.
func (r *rootNode) list(ctx context.Context, fresh bool) ([]peer.BucketInfo, error) {
	r.mu.Lock()
	all, at := r.buckets, r.at
	r.mu.Unlock()
	if !fresh && time.Since(at) < r.f.opt.EntryTimeout {
		return all, nil
	}
	now := time.Now()
	all, err := r.f.tree.Buckets(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(slices.Clone(all), func(b peer.BucketInfo) bool {
		p, err := names.Provider(b.Provider)
		return err != nil || p != names.Local || names.CheckBucket(b.Name) != nil
	})
	slices.SortFunc(all, func(a, b peer.BucketInfo) int { return compare(a.Name, b.Name) })
	r.mu.Lock()
	r.buckets, r.at = all, now
	r.mu.Unlock()
	return all, nil
}

func (r *rootNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	r.f.m.ops.WithLabelValues("lookup").Inc()
	if name == dotSheaf {
		r.f.entryOut(out)
		r.f.dirAttr(&out.Attr)
		return child(ctx, &r.Inode, name, identity(syscall.S_IFDIR, "dot"), func() fs.InodeEmbedder { return &dotNode{f: r.f} }), 0
	}
	if names.CheckBucket(name) != nil {
		return nil, syscall.ENOENT
	}
	buckets, err := r.list(ctx, false)
	if err != nil {
		return nil, r.f.errno(ctx, "list buckets", err)
	}
	if !slices.ContainsFunc(buckets, func(b peer.BucketInfo) bool { return b.Name == name }) {
		return nil, syscall.ENOENT
	}
	r.f.entryOut(out)
	r.f.dirAttr(&out.Attr)
	return r.f.dirChild(ctx, &r.Inode, name, name, ""), 0
}

func (r *rootNode) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	r.f.m.ops.WithLabelValues("readdir").Inc()
	buckets, err := r.list(ctx, true)
	if err != nil {
		return nil, r.f.errno(ctx, "list buckets", err)
	}
	entries := make([]fuse.DirEntry, len(buckets))
	for i, b := range buckets {
		entries[i] = fuse.DirEntry{Name: b.Name, Mode: syscall.S_IFDIR, Ino: dirID(b.Name, "").Ino}
	}
	return fs.NewListDirStream(entries), 0
}
