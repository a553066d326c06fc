package fusefs

import (
	"context"
	"encoding/json"
	"slices"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"sheaf/batching"
)

// dotNode is the folder .sheaf.
type dotNode struct {
	fs.Inode
	readOnly
	f *FS
}

var (
	_ fs.NodeLookuper  = (*dotNode)(nil)
	_ fs.NodeReaddirer = (*dotNode)(nil)
	_ fs.NodeGetattrer = (*dotNode)(nil)
)

func (d *dotNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.f.dirAttr(&out.Attr)
	out.SetTimeout(d.f.opt.AttrTimeout)
	return 0
}

// texts are the files of .sheaf that are written anew for each open.
var texts = map[string]func(*FS) []byte{
	"status":  func(f *FS) []byte { return line(f.Status()) },
	"stats":   func(f *FS) []byte { return f.m.text() },
	"config":  func(f *FS) []byte { return f.config() },
	"version": func(f *FS) []byte { return []byte("sheaf " + f.opt.Version + "\n") },
}

// config is the options in force.
func (f *FS) config() []byte {
	d := func(d time.Duration) batching.Duration { return batching.Duration(d) }
	text, err := json.Marshal(struct {
		Mountpoint      string            `json:"mountpoint"`
		Source          string            `json:"source"`
		CacheDir        string            `json:"cache_dir"`
		AllowOther      bool              `json:"allow_other"`
		AttrTimeout     batching.Duration `json:"attr_timeout"`
		EntryTimeout    batching.Duration `json:"entry_timeout"`
		NegativeTimeout batching.Duration `json:"negative_timeout"`
		BatchTTL        batching.Duration `json:"batch_ttl"`
		MaxBatches      int               `json:"max_batches"`
	}{
		f.opt.Mountpoint, f.opt.FsName, f.opt.CacheDir, f.opt.AllowOther,
		d(f.opt.AttrTimeout), d(f.opt.EntryTimeout), d(f.opt.NegativeTimeout), d(f.opt.BatchTTL), f.opt.MaxBatches,
	})
	if err != nil { // can't be: strings and numbers only
		return nil
	}
	return append(text, '\n')
}

func (d *dotNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	switch gen := texts[name]; {
	case gen != nil:
		n := child(ctx, &d.Inode, name, identity(syscall.S_IFREG, "dot", name), func() fs.InodeEmbedder {
			return &textNode{f: d.f, gen: func() []byte { return gen(d.f) }}
		})
		n.Operations().(*textNode).attr(&out.Attr)
		out.SetEntryTimeout(d.f.opt.EntryTimeout)
		return n, 0
	case name == "control":
		c := &controlNode{f: d.f}
		c.attr(&out.Attr)
		return d.NewInode(ctx, c, fs.StableAttr{Mode: syscall.S_IFREG}), 0
	case name == "batch":
		d.f.entryOut(out)
		d.f.dirAttr(&out.Attr)
		return child(ctx, &d.Inode, name, identity(syscall.S_IFDIR, "dot", "batch"), func() fs.InodeEmbedder {
			return &batchesNode{f: d.f}
		}), 0
	}
	return nil, syscall.ENOENT
}

func (d *dotNode) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	entries := []fuse.DirEntry{
		{Name: "control", Mode: syscall.S_IFREG},
		{Name: "batch", Mode: syscall.S_IFDIR, Ino: identity(syscall.S_IFDIR, "dot", "batch").Ino},
	}
	for name := range texts {
		entries = append(entries, fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: identity(syscall.S_IFREG, "dot", name).Ino})
	}
	slices.SortFunc(entries, func(a, b fuse.DirEntry) int { return compare(a.Name, b.Name) })
	return fs.NewListDirStream(entries), 0
}

// textNode is a small file that is written when it is opened.
type textNode struct {
	fs.Inode
	readOnly
	f   *FS
	gen func() []byte
}

var (
	_ fs.NodeOpener    = (*textNode)(nil)
	_ fs.NodeGetattrer = (*textNode)(nil)
)

func (t *textNode) attr(out *fuse.Attr) {
	t.f.fileAttr(out, int64(len(t.gen())), t.f.started)
}

func (t *textNode) Getattr(_ context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, ok := fh.(textHandle); ok {
		t.f.fileAttr(&out.Attr, int64(len(h)), t.f.started)
		return 0
	}
	t.attr(&out.Attr)
	return 0
}

// Open takes the text as it is now; without the page cache nobody sees an older one.
func (t *textNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	if writes(flags) {
		return nil, 0, syscall.EROFS
	}
	return textHandle(t.gen()), fuse.FOPEN_DIRECT_IO | fuse.FOPEN_NOFLUSH, 0
}

// textHandle is the text at the time of the open.
type textHandle []byte

var _ fs.FileReader = textHandle(nil)

func (h textHandle) Read(_ context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	if off >= int64(len(h)) {
		return fuse.ReadResultData(nil), 0
	}
	return fuse.ReadResultData(h[off:min(int64(len(h)), off+int64(len(dest)))]), 0
}
