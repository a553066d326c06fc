package fusefs

import (
	"context"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// nameMax is the longest file name that programs can be expected to handle.
const nameMax = 255

// identity makes the inode of something from what it is, so that it has the same
// number whenever it is met. Ino and Gen together are 128 bits of hash: go-fuse
// takes two nodes of one identity for one file, so 64 would be too few. The upper
// half of the inode numbers is left to those that go-fuse hands out.
func identity(mode uint32, parts ...string) fs.StableAttr {
	h := xxh3.New()
	for _, p := range parts {
		_, _ = h.WriteString(p)
		_, _ = h.Write([]byte{0}) // names have no NUL, so no two lists of parts look alike
	}
	s := h.Sum128()
	ino := s.Lo >> 1
	if ino < 16 {
		ino += 16 // 1 is the root
	}
	return fs.StableAttr{Mode: mode, Ino: ino, Gen: s.Hi}
}

// child gives the node of this identity that parent already has under name, or a
// new one: a node keeps what the kernel has cached of it.
func child(ctx context.Context, parent *fs.Inode, name string, id fs.StableAttr, make func() fs.InodeEmbedder) *fs.Inode {
	if ch := parent.GetChild(name); ch != nil && ch.StableAttr() == id {
		return ch
	}
	return parent.NewInode(ctx, make(), id)
}

// dirAttr fills in a folder's attributes. One link means "unknown" to programs
// that would else count subfolders by it.
func (f *FS) dirAttr(out *fuse.Attr) {
	f.attr(out, syscall.S_IFDIR|0o555, 0, f.started)
}

func (f *FS) fileAttr(out *fuse.Attr, size int64, mtime time.Time) {
	f.attr(out, syscall.S_IFREG|0o444, size, mtime)
}

func (f *FS) attr(out *fuse.Attr, mode uint32, size int64, mtime time.Time) {
	out.Mode = mode
	out.Size = uint64(size)
	out.Nlink = 1
	out.Owner = fuse.Owner{Uid: f.uid, Gid: f.gid}
	out.SetTimes(&mtime, &mtime, &mtime)
}

// entryOut fills in how long the kernel may trust a name and its attributes. go-fuse
// takes no default of its own, so 0 stays 0.
func (f *FS) entryOut(out *fuse.EntryOut) {
	out.SetEntryTimeout(f.opt.EntryTimeout)
	out.SetAttrTimeout(f.opt.AttrTimeout)
}

// noEntry is ENOENT that the kernel must not remember, whatever NegativeTimeout
// says: go-fuse leaves a name alone that has any timeout.
func noEntry(out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	out.SetEntryTimeout(time.Nanosecond)
	return nil, syscall.ENOENT
}

// errno is what the kernel gets for err; an interrupted call is EINTR whatever the
// cluster's client made of it.
func (f *FS) errno(ctx context.Context, op string, err error) syscall.Errno {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		return syscall.EINTR
	}
	f.m.errors.WithLabelValues(errs.CodeOf(err).String()).Inc()
	no := errs.Errno(err)
	if no != syscall.ENOENT && no != syscall.ESTALE {
		f.log.Warn("the cluster failed a file operation", "op", op, "err", err)
	}
	return no
}

// errnoName is "ENOENT" for ENOENT.
func errnoName(no syscall.Errno) string {
	if no == 0 {
		return ""
	}
	if n := unix.ErrnoName(no); n != "" {
		return n
	}
	return no.Error()
}
