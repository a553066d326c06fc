package fusefs

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// spoolDir is a mount's own folder below the cache folder, where each batch has one
// file. A lock on the folder, held as long as the process lives, tells other mounts
// that it isn't a leftover.
//
//	<cache dir>/batches/lock          held while folders are made or swept
//	<cache dir>/batches/<mount id>/   locked by its mount
type spoolDir struct {
	log  *slog.Logger
	path string
	dir  *os.File // open and locked
}

func openSpoolDir(cacheDir, id string, log *slog.Logger) (*spoolDir, error) {
	top := filepath.Join(cacheDir, "batches")
	fail := func(err error) (*spoolDir, error) {
		return nil, errs.Wrap(errs.CodeOf(err), "mount", fmt.Errorf("cache folder: %w", err))
	}
	if err := os.MkdirAll(top, 0o700); err != nil {
		return fail(err)
	}
	// Between making and locking a folder it looks dead, so one lock covers both.
	lock, err := os.OpenFile(filepath.Join(top, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fail(err)
	}
	defer lock.Close()
	if err := flock(lock, unix.LOCK_EX); err != nil {
		return fail(err)
	}
	sweepSpools(top, log)
	d := &spoolDir{log: log, path: filepath.Join(top, id)}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		return fail(err)
	}
	if d.dir, err = os.Open(d.path); err == nil {
		err = flock(d.dir, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err != nil {
		return fail(err)
	}
	return d, nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sweepSpools removes the folders of mounts that no longer live.
func sweepSpools(top string, log *slog.Logger) {
	entries, err := os.ReadDir(top)
	if err != nil {
		log.Warn("the cache folder can't be read", "err", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		p := filepath.Join(top, e.Name())
		d, err := os.Open(p)
		if err != nil {
			continue
		}
		if flock(d, unix.LOCK_EX|unix.LOCK_NB) == nil {
			if err := os.RemoveAll(p); err != nil {
				log.Warn("a dead mount's spool can't be removed", "path", p, "err", err)
			} else {
				log.Info("removed a dead mount's spool", "path", p)
			}
		}
		d.Close()
	}
}

func (d *spoolDir) close() {
	if err := os.RemoveAll(d.path); err != nil {
		d.log.Warn("the spool folder can't be removed", "path", d.path, "err", err)
	}
	d.dir.Close()
}

// create makes the file of one batch.
func (d *spoolDir) create(seq uint64) (*spool, error) {
	p := filepath.Join(d.path, strconv.FormatUint(seq, 10))
	f, err := os.OpenFile(p, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "spool", err)
	}
	return &spool{f: f, path: p}, nil
}

// spool is the file that holds a batch's payloads. The batch's goroutine writes it
// front to back; what is published is never written again, so readers need no lock.
type spool struct {
	f    *os.File
	path string
	off  int64 // end of what was written; the writer's alone
	err  error // the disk's error, to be told from the sender's; the writer's alone
}

// Write appends.
func (s *spool) Write(p []byte) (int, error) {
	n, err := s.f.WriteAt(p, s.off)
	s.off += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

// rewind forgets what was written after off.
func (s *spool) rewind(off int64) error {
	s.off = off
	return s.f.Truncate(off)
}

// readAt fills p; less comes only at the end of what lies there.
func (s *spool) readAt(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := unix.Pread(int(s.f.Fd()), p[n:], off+int64(n))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return n, err
		case m == 0:
			return n, nil
		}
		n += m
	}
	return n, nil
}

// unlink removes the name; open files stay readable.
func (s *spool) unlink() error { return os.Remove(s.path) }

func (s *spool) close() error { return s.f.Close() }
