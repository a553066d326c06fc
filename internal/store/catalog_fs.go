package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

// ballast is the space, in bytes, that a catalog keeps for itself, so that on a full disk
// objects can still be deleted.
const ballast = 4 << 20

// catalogFS is the file system that pebble sees. Pebble ends the process when it can't
// write its log or its manifest; a store has other disks. So the first error of a write
// fails the catalog and freezes the files: from then on nothing reaches the disk and
// everything seems to succeed, until the catalog is closed a moment later. What is on disk
// then is what a crash would have left. Since a failed catalog acknowledges nothing, no
// promise is broken.
type catalogFS struct {
	vfs.FS
	c      *catalog
	open   atomic.Bool // pebble is open; until then it can handle errors itself
	frozen atomic.Bool

	mu    sync.Mutex
	spent bool // the ballast isn't there; guarded by mu
}

var _ vfs.FS = (*catalogFS)(nil)

func newCatalogFS(c *catalog) *catalogFS {
	fs := &catalogFS{c: c}
	fs.FS = vfs.OnDiskFull(vfs.Default, fs.spend)
	fs.mu.Lock()
	fs.reserve()
	fs.mu.Unlock()
	return fs
}

func (fs *catalogFS) freeze() { fs.frozen.Store(true) }

// keep hides an error of a write from pebble, and fails the catalog for it.
func (fs *catalogFS) keep(err error) error {
	if err == nil || !fs.open.Load() || errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) || errors.Is(err, os.ErrClosed) {
		return err
	}
	fs.c.fail(err)
	return nil
}

func (fs *catalogFS) change(f func() error) error {
	if fs.frozen.Load() {
		return nil
	}
	return fs.keep(f())
}

func (fs *catalogFS) file(open func() (vfs.File, error)) (vfs.File, error) {
	if fs.frozen.Load() {
		return voidFile{}, nil
	}
	f, err := open()
	if err != nil {
		return voidFile{}, fs.keep(err)
	}
	return &catalogFile{File: f, fs: fs}, nil
}

// Create makes a file.
func (fs *catalogFS) Create(name string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.Create(name, cat) })
}

// OpenReadWrite opens or makes a file.
func (fs *catalogFS) OpenReadWrite(name string, cat vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.OpenReadWrite(name, cat, o...) })
}

// ReuseForWrite gives an old log file a new name.
func (fs *catalogFS) ReuseForWrite(from, to string, cat vfs.DiskWriteCategory) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.ReuseForWrite(from, to, cat) })
}

// OpenDir opens a folder to sync it.
func (fs *catalogFS) OpenDir(name string) (vfs.File, error) {
	return fs.file(func() (vfs.File, error) { return fs.FS.OpenDir(name) })
}

// Link makes a hard link.
func (fs *catalogFS) Link(from, to string) error {
	return fs.change(func() error { return fs.FS.Link(from, to) })
}

// Remove removes a file.
func (fs *catalogFS) Remove(name string) error {
	return fs.change(func() error { return fs.FS.Remove(name) })
}

// RemoveAll removes a folder.
func (fs *catalogFS) RemoveAll(name string) error {
	return fs.change(func() error { return fs.FS.RemoveAll(name) })
}

// Rename renames a file.
func (fs *catalogFS) Rename(from, to string) error {
	return fs.change(func() error { return fs.FS.Rename(from, to) })
}

// MkdirAll makes a folder.
func (fs *catalogFS) MkdirAll(dir string, perm os.FileMode) error {
	return fs.change(func() error { return fs.FS.MkdirAll(dir, perm) })
}

// Lock does nothing: the mountpath's own lock keeps other processes out.
func (fs *catalogFS) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Unwrap gives what is below.
func (fs *catalogFS) Unwrap() vfs.FS { return fs.FS }

// catalogFile is a file of a catalogFS.
type catalogFile struct {
	vfs.File
	fs *catalogFS
}

var _ vfs.File = (*catalogFile)(nil)

// Write writes, or seems to.
func (f *catalogFile) Write(p []byte) (int, error) {
	return len(p), f.fs.change(func() error { _, err := f.File.Write(p); return err })
}

// WriteAt writes, or seems to.
func (f *catalogFile) WriteAt(p []byte, off int64) (int, error) {
	return len(p), f.fs.change(func() error { _, err := f.File.WriteAt(p, off); return err })
}

// Preallocate reserves space where it can be had.
func (f *catalogFile) Preallocate(off, n int64) error {
	if f.fs.frozen.Load() || f.File.Preallocate(off, n) != nil {
		return nil // it is only an advantage
	}
	return nil
}

// Sync syncs, or seems to.
func (f *catalogFile) Sync() error { return f.fs.change(f.File.Sync) }

// SyncData syncs, or seems to.
func (f *catalogFile) SyncData() error { return f.fs.change(f.File.SyncData) }

// SyncTo syncs, or seems to.
func (f *catalogFile) SyncTo(n int64) (full bool, err error) {
	err = f.fs.change(func() (err error) { full, err = f.File.SyncTo(n); return err })
	return full, err
}

// Close gives the descriptor back, whatever else.
func (f *catalogFile) Close() error {
	if err := f.File.Close(); !f.fs.frozen.Load() {
		return f.fs.keep(err)
	}
	return nil
}

// voidFile stands for a file that couldn't be made.
type voidFile struct{}

var _ vfs.File = voidFile{}

func (voidFile) Close() error                           { return nil }
func (voidFile) Read([]byte) (int, error)               { return 0, io.EOF }
func (voidFile) ReadAt([]byte, int64) (int, error)      { return 0, io.EOF }
func (voidFile) Write(p []byte) (int, error)            { return len(p), nil }
func (voidFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (voidFile) Preallocate(int64, int64) error         { return nil }
func (voidFile) Stat() (vfs.FileInfo, error)            { return nil, os.ErrNotExist }
func (voidFile) Sync() error                            { return nil }
func (voidFile) SyncTo(int64) (bool, error)             { return true, nil }
func (voidFile) SyncData() error                        { return nil }
func (voidFile) Prefetch(int64, int64) error            { return nil }
func (voidFile) Fd() uintptr                            { return vfs.InvalidFd }

func (fs *catalogFS) ballastPath() string { return filepath.Join(fs.c.dir(), "ballast") }

// spend gives the ballast up; pebble's write is then tried once more.
func (fs *catalogFS) spend() {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if !fs.spent {
		fs.spent = true
		err := os.Remove(fs.ballastPath())
		fs.c.log.Warn("the disk is full: only deletions are taken until there is space", "err", err)
	}
}

// full tells whether the ballast is spent and there is no space to have it back.
func (fs *catalogFS) full() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.spent {
		fs.reserve()
	}
	return fs.spent
}

// reserve makes the ballast, smaller on a small disk. The caller holds mu.
func (fs *catalogFS) reserve() {
	var st unix.Statfs_t
	if err := unix.Statfs(fs.c.root, &st); err != nil {
		return
	}
	size := min(ballast, int64(st.Blocks)*st.Frsize/64)
	if have, err := os.Stat(fs.ballastPath()); err == nil && have.Size() >= size {
		fs.spent = false
		return
	}
	if fs.spent = int64(st.Bavail)*st.Frsize < 2*size; fs.spent {
		return
	}
	f, err := os.OpenFile(fs.ballastPath(), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return
	}
	defer f.Close()
	// Where a file system can't reserve there is no ballast.
	if err := unix.Fallocate(int(f.Fd()), 0, 0, size); err == unix.ENOSPC {
		fs.spent = true
		os.Remove(fs.ballastPath())
	}
}
