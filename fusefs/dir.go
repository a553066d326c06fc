package fusefs

import (
	"context"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer"
)

// twinTTL is how long an object is known to have no folder of its name. The folder
// would need a new object below the name of an old one.
const twinTTL = time.Minute

// dirNode is a bucket or a key prefix.
type dirNode struct {
	fs.Inode
	readOnly
	f      *FS
	bucket string
	prefix string // "" or with a trailing slash
}

var (
	_ fs.NodeLookuper       = (*dirNode)(nil)
	_ fs.NodeGetattrer      = (*dirNode)(nil)
	_ fs.NodeOpendirHandler = (*dirNode)(nil)
)

func compare(a, b string) int { return strings.Compare(a, b) }

func dirID(bucket, prefix string) fs.StableAttr {
	return identity(syscall.S_IFDIR, "prefix", bucket, prefix)
}

func (f *FS) dirChild(ctx context.Context, parent *fs.Inode, name, bucket, prefix string) *fs.Inode {
	return child(ctx, parent, name, dirID(bucket, prefix), func() fs.InodeEmbedder {
		return &dirNode{f: f, bucket: bucket, prefix: prefix}
	})
}

func (d *dirNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.f.dirAttr(&out.Attr)
	out.SetTimeout(d.f.opt.AttrTimeout)
	return 0
}

// Lookup asks for the object and for a folder of that name at once, as a folder
// hides an object: that is one round trip, and the same answer that a listing
// gives. The second question, which every node has to answer, is left out for an
// object that a listing or an earlier lookup has shown to be alone (twinTTL).
func (d *dirNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	d.f.m.ops.WithLabelValues("lookup").Inc()
	object := d.prefix + name
	switch {
	case len(name) > nameMax:
		return nil, syscall.ENAMETOOLONG
	case names.CheckObject(object) != nil:
		return nil, syscall.ENOENT
	}
	if shard, ok := strings.CutSuffix(object, "@"); ok && names.IsShard(shard) {
		ch, no := d.lookupShard(ctx, name, shard, out)
		if no != syscall.ENOENT {
			return ch, no
		}
	}
	now := time.Now()
	var isDir bool
	var listErr error
	var list sync.WaitGroup
	if !d.alone(name, object) {
		// Owned by this call, which waits for it.
		list.Go(func() { isDir, listErr = d.f.isDir(ctx, d.bucket, object) })
	}
	info, err := d.f.objects.Head(ctx, d.bucket, object)
	list.Wait()
	switch {
	case listErr == nil && isDir:
		d.f.entryOut(out)
		d.f.dirAttr(&out.Attr)
		return d.f.dirChild(ctx, &d.Inode, name, d.bucket, object+"/"), 0
	case err != nil && !errs.IsCode(err, errs.NotFound):
		return nil, d.f.errno(ctx, "head", err)
	case listErr != nil:
		return nil, d.f.errno(ctx, "list", listErr)
	case err != nil:
		return nil, syscall.ENOENT
	}
	return d.object(ctx, name, info, now, out), 0
}

// isDir tells whether an object lies below name.
func (f *FS) isDir(ctx context.Context, bucket, name string) (bool, error) {
	if len(name) >= names.MaxObject {
		return false, nil
	}
	page, err := f.tree.List(ctx, bucket, peer.ListOptions{Prefix: name + "/", Limit: 1})
	if err != nil {
		return false, err
	}
	return len(page.Objects)+len(page.Prefixes) > 0, nil
}

// alone tells whether the object is known to hide behind no folder.
func (d *dirNode) alone(name, object string) bool {
	ch := d.GetChild(name)
	if ch == nil {
		return false
	}
	n, ok := ch.Operations().(*fileNode)
	if !ok || n.shard != nil || n.object != object {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.aloneAt) < twinTTL
}

// object gives the node of an object that is known to be alone.
func (d *dirNode) object(ctx context.Context, name string, info peer.ObjectInfo, now time.Time, out *fuse.EntryOut) *fs.Inode {
	object := d.prefix + name
	v := version{info.Size, info.Version, info.ModTime}
	ch := child(ctx, &d.Inode, name, fileID(d.bucket, object, "", v.version), func() fs.InodeEmbedder {
		return &fileNode{f: d.f, bucket: d.bucket, object: object, v: v}
	})
	n := ch.Operations().(*fileNode)
	n.mu.Lock()
	n.aloneAt = now
	n.mu.Unlock()
	n.confirm(now)
	d.f.entryOut(out)
	d.f.fileAttr(&out.Attr, v.size, v.mtime)
	return ch
}

func (d *dirNode) lookupShard(ctx context.Context, name, shard string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if _, err := d.f.objects.Head(ctx, d.bucket, shard); err != nil {
		return nil, d.f.errno(ctx, "head", err)
	}
	d.f.entryOut(out)
	d.f.dirAttr(&out.Attr)
	return child(ctx, &d.Inode, name, identity(syscall.S_IFDIR, "shard", d.bucket, shard, ""), func() fs.InodeEmbedder {
		return &shardNode{f: d.f, shard: newShard(d.f, d.bucket, shard)}
	}), 0
}

// OpendirHandle begins a listing; it costs nothing before the first entry is read.
func (d *dirNode) OpendirHandle(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	d.f.m.ops.WithLabelValues("opendir").Inc()
	return &dirHandle{d: d, starts: []pageStart{{}}}, 0, 0
}
