package store

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// fault is why a mountpath isn't used.
type fault struct {
	err     error
	byHand  bool
	passing bool // the disk is well, only its catalog isn't: the store tries again by itself
}

// A mountpath whose catalog failed is tried again after a while, and then less often.
const (
	reviveFirst = time.Second
	reviveLast  = time.Minute
)

// downError is the error of a call that met a mountpath which isn't used (any more).
type downError struct{ err error }

func (e *downError) Error() string { return e.err.Error() }
func (e *downError) Unwrap() error { return e.err }

// isDown tells whether err is about one mountpath, so that another may do.
func isDown(err error) bool {
	var d *downError
	return errors.As(err, &d)
}

var errByHand = errors.New("by hand")

// deviceFault tells the errors that mean that a disk or its file system is lost, as
// against one that is full, or a process that is short of something.
func deviceFault(err error) bool {
	var no unix.Errno
	if !errors.As(err, &no) {
		return false
	}
	switch no {
	case unix.EIO, unix.EUCLEAN, unix.EBADMSG, unix.EROFS, unix.ENODEV, unix.ENXIO, unix.ESHUTDOWN, unix.EREMOTEIO:
		return true
	}
	return false
}

// enabled tells whether the mountpath is used.
func (m *mountpath) enabled() bool { return m.down.Load() == nil }

// watch passes on the error of a call on the mountpath. A device's fault takes it out of use.
func (m *mountpath) watch(err error) error {
	if err == nil || isDown(err) {
		return err
	}
	switch c := m.catalog.Load(); {
	case deviceFault(err):
		m.s.disable(m, &fault{err: err})
	case c != nil && c.usable() != nil:
		// It met a full disk or a process short of files in the middle of its own work, or it
		// is damaged. Opened anew it is compared with the files.
		m.s.disable(m, &fault{err: err, passing: true})
	default:
		return err
	}
	if down := m.unavailable(); down != nil {
		return down
	}
	return err
}

// unavailable is the error of a call that needs the mountpath; nil when it is in use.
func (m *mountpath) unavailable() error {
	f := m.down.Load()
	if f == nil {
		return nil
	}
	return &errs.Error{Code: errs.Unavailable, Msg: fmt.Sprintf("mountpath %q is disabled", m.dir), Err: &downError{f.err}}
}

// try asks a test whether an operation on a path shall fail.
func (m *mountpath) try(op, path string) error {
	if m.s.disk.fault == nil {
		return nil
	}
	return m.s.disk.fault(op, path)
}

// disable takes a mountpath out of use. What it holds counts as unknown from then on,
// and new objects go to the others.
func (s *Store) disable(m *mountpath, f *fault) {
	if s.enter() != nil {
		return // an object that is still read; the folders aren't the store's any more
	}
	defer s.calls.Done()
	s.layoutMu.Lock()
	defer s.layoutMu.Unlock()
	if !m.enabled() {
		return
	}
	// The others learn it before anything is written that belongs on this one.
	if f.passing {
		s.scattered.Store(len(s.mounts) > 1)
		s.saveLayout(nil)
	} else {
		s.saveLayout(map[*mountpath]*fault{m: f})
	}
	m.down.Store(f)
	s.changes.Add(1)
	if f.byHand {
		s.log.Warn("mountpath disabled by hand", "folder", m.dir)
		return
	}
	s.log.Error("mountpath disabled: its disk or catalog fails", "folder", m.dir, "err", f.err)
	if s.onFault != nil {
		s.calls.Add(1)
		go func() { // ends with the call; Close waits for it
			defer s.calls.Done()
			s.onFault(m.dir, f.err)
		}()
	}
	if f.passing {
		s.calls.Add(1)
		go func() { // ends when the mountpath is in use again, or the store closes, which waits for it
			defer s.calls.Done()
			s.revive(m, f)
		}()
	}
}

// revive tries to bring a mountpath back into use whose catalog failed.
func (s *Store) revive(m *mountpath, f *fault) {
	for wait := reviveFirst; ; wait = min(2*wait, reviveLast) {
		select {
		case <-s.quit:
			return
		case <-time.After(wait):
		}
		s.admin.Lock()
		var err error
		if m.down.Load() == f {
			err = s.enable(m)
		}
		s.admin.Unlock()
		if err == nil {
			return
		}
		s.log.Warn("a mountpath can't be brought back", "folder", m.dir, "err", err)
	}
}

// up gives the mountpaths in use.
func (s *Store) up() (all []*mountpath) {
	for _, m := range s.mounts {
		if m.enabled() {
			all = append(all, m)
		}
	}
	return all
}

// someUp says why nothing can be written when no mountpath is in use.
func (s *Store) someUp() error {
	if len(s.up()) > 0 {
		return nil
	}
	return s.mounts[0].unavailable()
}

// absent is the error for a name of which nothing was found: NotFound, or Unavailable
// where it may lie on a mountpath that isn't in use. As long as every object lies on the
// first of the mountpaths that were in use when it was written, or moved, that is one
// that comes before all that are in use now.
func (b *bucket) absent(name string) error {
	if b.allUp() {
		return errNotFound
	}
	scattered := b.s.scattered.Load()
	for _, br := range b.ranking(name) {
		if err := br.mount.unavailable(); err != nil {
			if _, at, e := b.tomb(name); at != nil && e == nil {
				break
			}
			return err
		}
		if !scattered {
			break
		}
	}
	return errNotFound
}

var errNotFound = errs.New(errs.NotFound, "", "")

// allUp tells whether every mountpath is in use.
func (b *bucket) allUp() bool {
	for _, br := range b.branches {
		if !br.mount.enabled() {
			return false
		}
	}
	return true
}
