package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// reserveFrom is the size in bytes from which a Put of known size asks the disk for
// the space beforehand, so that it fails before it has read gigabytes.
const reserveFrom = 1 << 20

// work is a work file: an object, or an index, on its way to its name. Whoever makes it
// calls discard, which does nothing to a file that was renamed.
type work struct {
	s    *Store
	br   *branch
	gen  uint64 // of the mountpath when the file was made
	f    *os.File
	path string // "" once the file has its name
	attr attr
}

func (s *Store) newWork(br *branch) (*work, error) {
	gen := br.mount.gen.Load()
	path := br.content(contentWork) + "/w" + strconv.FormatUint(s.workID.Add(1), 36)
	err := br.mount.try("create", path)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	}
	if err != nil {
		return nil, diskFault(br.mount.watch(err))
	}
	return &work{s: s, br: br, gen: gen, f: f, path: path}, nil
}

// current tells whether the file still is what it was: it isn't once its mountpath was
// disabled, even if that came back.
func (w *work) current() error {
	if err := w.br.mount.unavailable(); err != nil {
		return err
	}
	if w.br.mount.gen.Load() != w.gen {
		return errs.New(errs.Unavailable, "", fmt.Sprintf("mountpath %q was disabled meanwhile", w.br.mount.dir))
	}
	return nil
}

// livePiece is the most bytes that somebody who reads a file as it grows waits for.
const livePiece = 64 << 10

// fill streams r into the file and sets size and checksum. A size of -1 is unknown.
func (w *work) fill(ctx context.Context, r io.Reader, size int64, progress func(*os.File, int64)) error {
	if size >= reserveFrom {
		err := unix.Fallocate(int(w.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		if errs.CodeOf(err) == errs.NoSpace || errs.CodeOf(err) == errs.TooLarge {
			return fmt.Errorf("reserve %d bytes: %w", size, err)
		}
	}
	buf := w.s.buffers.Get().(*[bufferSize]byte)
	defer w.s.buffers.Put(buf)
	hash := w.s.hashers.Get().(*xxh3.Hasher)
	defer w.s.hashers.Put(hash)
	hash.Reset()
	piece := buf[:]
	if progress != nil {
		piece = buf[:livePiece]
	}
	for end := false; !end; {
		n, err := w.gather(ctx, r, piece)
		if end = err == io.EOF; err != nil && !end {
			return err
		}
		w.attr.size += int64(n)
		if size >= 0 && w.attr.size > size {
			return errs.New(errs.InvalidArgument, "", fmt.Sprintf("more bytes came than the %d announced", size))
		}
		hash.Write(buf[:n])
		err = w.br.mount.try("write", w.path)
		if err == nil {
			_, err = w.f.Write(buf[:n])
		}
		if err != nil {
			return diskFault(w.br.mount.watch(err))
		}
		if progress != nil && n > 0 {
			progress(w.f, w.attr.size)
		}
	}
	if size >= 0 && w.attr.size < size {
		return errs.New(errs.InvalidArgument, "", fmt.Sprintf("%d bytes came of the %d announced", w.attr.size, size))
	}
	w.attr.checksum = hash.Sum64()
	return nil
}

// gather reads until buf is full, so that a reader that gives little at a time doesn't
// make many small writes. The error of ctx is what counts when both have one: a caller
// that gives up also breaks its reader.
func (w *work) gather(ctx context.Context, r io.Reader, buf []byte) (n int, err error) {
	for idle := 0; n < len(buf) && err == nil; {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		var m int
		m, err = r.Read(buf[n:])
		n += m
		if idle++; m > 0 {
			idle = 0
		}
		if idle == 100 && err == nil {
			err = io.ErrNoProgress
		}
	}
	if err != nil && err != io.EOF {
		if e := ctx.Err(); e != nil {
			err = e
		}
	}
	return n, err
}

// seal writes the attribute and makes file and attribute durable, unless relaxed. It may
// be called again for another version or place, but not after it failed.
func (w *work) seal(version uint64, name string, relaxed bool) error {
	w.attr.version, w.attr.name = version, name
	if err := unix.Fsetxattr(int(w.f.Fd()), attrKey, w.attr.encode(), 0); err != nil {
		return w.br.mount.watch(fmt.Errorf("set attribute of %s: %w", w.path, err))
	}
	if relaxed {
		return nil
	}
	return w.br.mount.watch(w.s.disk.sync(w.f))
}

// discard removes the file unless it was renamed.
func (w *work) discard() {
	w.f.Close()
	if w.path == "" {
		return
	}
	if err := w.br.mount.watch(os.Remove(w.path)); err != nil && !os.IsNotExist(err) {
		w.s.log.Warn("a work file stays until the store is next opened", "file", w.path, "err", err)
	}
}
