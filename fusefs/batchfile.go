package fusefs

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// view is one way to look at a batch as a file.
type view interface {
	// size is how many bytes there are; final when there will be neither more nor an
	// error behind them, so that the kernel may rely on it.
	size() (n int64, final bool, errno syscall.Errno)
	// open waits for what must be there before the first read.
	open(ctx context.Context) syscall.Errno
	// read fills dest as far as the file reaches, waiting for what has not arrived.
	read(ctx context.Context, dest []byte, off int64) (int, syscall.Errno)
}

func viewOf(b *batch, name string) view {
	switch name {
	case "data":
		return &dataView{b}
	case "index":
		return &indexView{b}
	}
	return &tarView{b}
}

// batchFile is a file of a batch.
type batchFile struct {
	fs.Inode
	readOnly
	f    *FS
	b    *batch
	view view
}

var (
	_ fs.NodeOpener    = (*batchFile)(nil)
	_ fs.NodeGetattrer = (*batchFile)(nil)
)

// attr gives a growing file's size so far, for no time at all.
func (n *batchFile) attr(out *fuse.Attr, timeout func(time.Duration)) syscall.Errno {
	size, final, errno := n.view.size()
	if errno != 0 {
		return errno
	}
	n.f.fileAttr(out, size, n.b.created)
	timeout(0)
	if final {
		timeout(n.f.opt.AttrTimeout)
	}
	return 0
}

func (n *batchFile) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	return n.attr(&out.Attr, out.SetTimeout)
}

// Open of a file that still grows bypasses the page cache: reads wait, and see the
// end where it is. Once it is whole the kernel may keep its pages for good, and map
// them into memory.
func (n *batchFile) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.f.m.ops.WithLabelValues("batch_open").Inc()
	if writes(flags) {
		return nil, 0, syscall.EROFS
	}
	if !n.b.open() {
		return nil, 0, syscall.ESTALE
	}
	errno := n.view.open(ctx)
	if errno == 0 {
		var final bool
		if _, final, errno = n.view.size(); errno == 0 {
			if final {
				return &batchHandle{n}, fuse.FOPEN_NOFLUSH | fuse.FOPEN_KEEP_CACHE, 0
			}
			return &batchHandle{n}, fuse.FOPEN_NOFLUSH | fuse.FOPEN_DIRECT_IO, 0
		}
	}
	n.b.close()
	return nil, 0, errno
}

// batchHandle keeps the batch's payload as long as it is open.
type batchHandle struct{ n *batchFile }

var (
	_ fs.FileReader   = (*batchHandle)(nil)
	_ fs.FileReleaser = (*batchHandle)(nil)
)

func (h *batchHandle) Read(ctx context.Context, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	h.n.f.m.ops.WithLabelValues("batch_read").Inc()
	n, errno := h.n.view.read(ctx, dest, off)
	if errno != 0 {
		return nil, errno
	}
	return fuse.ReadResultData(dest[:n]), 0
}

func (h *batchHandle) Release(context.Context) syscall.Errno {
	h.n.b.close()
	return 0
}

// dataView is all payloads, one after the other. A read never comes back short
// before the end, as programs expect of a file.
type dataView struct{ b *batch }

func (v *dataView) size() (int64, bool, syscall.Errno) {
	p := v.b.progress()
	return p.bytes, p.over, 0
}

func (v *dataView) open(context.Context) syscall.Errno { return 0 }

func (v *dataView) read(ctx context.Context, dest []byte, off int64) (int, syscall.Errno) {
	p, err := v.b.wait(ctx, func(p progress) bool { return p.bytes >= off+int64(len(dest)) })
	if err != nil {
		return 0, syscall.EINTR
	}
	return v.b.payload(dest, off, p.bytes)
}

// payload reads from the spool, which ends at end.
func (b *batch) payload(dest []byte, off, end int64) (int, syscall.Errno) {
	dest = dest[:max(0, min(int64(len(dest)), end-off))]
	n, err := b.spool.readAt(dest, off)
	if err != nil || n < len(dest) {
		return 0, syscall.EIO
	}
	return n, 0
}

// indexView is the table.
type indexView struct{ b *batch }

func (v *indexView) size() (int64, bool, syscall.Errno) {
	p := v.b.progress()
	return tableEnd(p.arrived), p.over, 0
}

func (v *indexView) open(context.Context) syscall.Errno { return 0 }

func (v *indexView) read(ctx context.Context, dest []byte, off int64) (int, syscall.Errno) {
	whole := tableEnd(v.b.n())
	want := min(off+int64(len(dest)), whole)
	p, err := v.b.wait(ctx, func(p progress) bool { return tableEnd(p.arrived) >= want })
	if err != nil {
		return 0, syscall.EINTR
	}
	if end := min(want, tableEnd(p.arrived)); off < end {
		return copy(dest, v.b.table[off:end]), 0
	}
	return 0, 0
}

// entryView is one payload.
type entryView struct {
	b *batch
	i int
}

func (v *entryView) size() (int64, bool, syscall.Errno) {
	if p := v.b.progress(); v.i >= p.arrived {
		return 0, false, 0
	}
	return v.b.table.row(v.i).size, true, 0
}

func (v *entryView) open(ctx context.Context) syscall.Errno {
	if _, err := v.b.wait(ctx, func(p progress) bool { return p.arrived > v.i }); err != nil {
		return syscall.EINTR
	}
	return v.b.table.row(v.i).errno
}

func (v *entryView) read(_ context.Context, dest []byte, off int64) (int, syscall.Errno) {
	r := v.b.table.row(v.i)
	return v.b.payload(dest, r.off+off, r.off+r.size)
}
