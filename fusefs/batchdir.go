package fusefs

import (
	"context"
	"fmt"
	"strconv"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// batchesNode is .sheaf/batch. Batches come and go without the kernel's knowledge,
// so it is told to trust nothing here, neither names nor their absence.
type batchesNode struct {
	fs.Inode
	readOnly
	f *FS
}

var (
	_ fs.NodeLookuper  = (*batchesNode)(nil)
	_ fs.NodeReaddirer = (*batchesNode)(nil)
	_ fs.NodeGetattrer = (*batchesNode)(nil)
)

func (d *batchesNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.f.dirAttr(&out.Attr)
	out.SetTimeout(d.f.opt.AttrTimeout)
	return 0
}

// batchID names what lies in a batch by its number, as ids are used again.
func batchID(mode uint32, b *batch, name string) fs.StableAttr {
	return identity(mode, "batch", strconv.FormatUint(b.seq, 10), name)
}

func (d *batchesNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	b := d.f.batches.get(name)
	if b == nil {
		return noEntry(out)
	}
	d.f.dirAttr(&out.Attr)
	return child(ctx, &d.Inode, name, batchID(syscall.S_IFDIR, b, ""), func() fs.InodeEmbedder {
		return &batchNode{f: d.f, b: b}
	}), 0
}

func (d *batchesNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	all := d.f.batches.list()
	entries := make([]fuse.DirEntry, len(all))
	for i, b := range all {
		entries[i] = fuse.DirEntry{Name: b.id, Mode: syscall.S_IFDIR, Ino: batchID(syscall.S_IFDIR, b, "").Ino}
	}
	return fs.NewListDirStream(entries), 0
}

// batchNode is .sheaf/batch/<id>.
type batchNode struct {
	fs.Inode
	readOnly
	f *FS
	b *batch
}

var (
	_ fs.NodeLookuper  = (*batchNode)(nil)
	_ fs.NodeReaddirer = (*batchNode)(nil)
	_ fs.NodeGetattrer = (*batchNode)(nil)
)

func (d *batchNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.f.dirAttr(&out.Attr)
	return 0
}

// batchFiles are the names in a batch's folder, sorted.
var batchFiles = []string{"data", "entries", "index", "manifest", "status", "tar"}

func (d *batchNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	b := d.b
	if d.f.batches.get(b.id) != b { // released; only a process that is still in the folder gets here
		return noEntry(out)
	}
	switch name {
	case "data", "index", "tar":
		ch := child(ctx, &d.Inode, name, batchID(syscall.S_IFREG, b, name), func() fs.InodeEmbedder {
			return &batchFile{f: d.f, b: b, view: viewOf(b, name)}
		})
		return ch, ch.Operations().(*batchFile).attr(&out.Attr, out.SetAttrTimeout)
	case "entries":
		d.f.dirAttr(&out.Attr)
		return child(ctx, &d.Inode, name, batchID(syscall.S_IFDIR, b, name), func() fs.InodeEmbedder {
			return &entriesNode{f: d.f, b: b}
		}), 0
	case "status", "manifest":
		gen := b.manifest
		if name == "status" {
			gen = func() []byte { return line(b.status()) }
		}
		ch := child(ctx, &d.Inode, name, batchID(syscall.S_IFREG, b, name), func() fs.InodeEmbedder {
			return &textNode{f: d.f, gen: gen}
		})
		ch.Operations().(*textNode).attr(&out.Attr)
		return ch, 0
	}
	return noEntry(out)
}

func (d *batchNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	entries := make([]fuse.DirEntry, len(batchFiles))
	for i, name := range batchFiles {
		mode := uint32(syscall.S_IFREG)
		if name == "entries" {
			mode = syscall.S_IFDIR
		}
		entries[i] = fuse.DirEntry{Name: name, Mode: mode, Ino: batchID(mode, d.b, name).Ino}
	}
	return fs.NewListDirStream(entries), 0
}

// entriesNode is .sheaf/batch/<id>/entries.
type entriesNode struct {
	fs.Inode
	readOnly
	f *FS
	b *batch
}

var (
	_ fs.NodeLookuper  = (*entriesNode)(nil)
	_ fs.NodeReaddirer = (*entriesNode)(nil)
	_ fs.NodeGetattrer = (*entriesNode)(nil)
)

func (d *entriesNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.f.dirAttr(&out.Attr)
	return 0
}

func entryName(i int) string { return fmt.Sprintf("%06d", i) }

func (d *entriesNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	i, err := strconv.Atoi(name)
	if err != nil || i < 0 || i >= d.b.n() || entryName(i) != name {
		return noEntry(out)
	}
	ch := child(ctx, &d.Inode, name, batchID(syscall.S_IFREG, d.b, name), func() fs.InodeEmbedder {
		return &batchFile{f: d.f, b: d.b, view: &entryView{d.b, i}}
	})
	out.SetEntryTimeout(d.f.opt.EntryTimeout) // the entries of a batch don't change, and its folder is looked up each time
	return ch, ch.Operations().(*batchFile).attr(&out.Attr, out.SetAttrTimeout)
}

func (d *entriesNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	entries := make([]fuse.DirEntry, d.b.n())
	for i := range entries {
		name := entryName(i)
		entries[i] = fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: batchID(syscall.S_IFREG, d.b, name).Ino}
	}
	return fs.NewListDirStream(entries), 0
}
