package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// take opens the mountpaths. One that the layout on the others knows and that can't be
// had is disabled; at least one must be usable.
func (s *Store) take(dirs []string) error {
	have := map[string]bool{}
	var lay layout
	for _, d := range dirs {
		m, err := s.claim(d)
		if err != nil && !deviceFault(err) {
			return err
		}
		s.mounts = append(s.mounts, m)
		if err != nil {
			m.down.Store(&fault{err: err})
			continue
		}
		if m.id() == "" {
			continue
		}
		if have[m.id()] {
			return s.copied(m.id())
		}
		have[m.id()] = true
		if l, err := readLayout(m.dir); err != nil {
			if !deviceFault(err) {
				return err
			}
			m.down.Store(&fault{err: err})
		} else if l.Generation > lay.Generation {
			lay = l
		}
	}
	s.generation = lay.Generation
	if s.allFailed(lay) {
		s.log.Warn("all mountpaths had failed before: they are tried again")
		for i := range lay.Mountpaths {
			if sl := &lay.Mountpaths[i]; !sl.ByHand {
				sl.Disabled = ""
			}
		}
		lay.Scattered = true
	}
	for _, m := range s.mounts {
		if err := s.admit(m, lay, have); err != nil {
			return err
		}
	}
	up := s.up()
	if len(up) == 0 {
		for _, m := range s.mounts {
			if f := m.down.Load(); f.byHand {
				return nil
			}
		}
		return fmt.Errorf("folder %q: %w", s.mounts[0].dir, s.mounts[0].down.Load().err)
	}
	for _, sl := range lay.Mountpaths {
		if !have[sl.ID] {
			s.log.Warn("a mountpath is no part of this store any more", "folder", sl.Dir, "identity", sl.ID)
		}
	}
	if s.scattered.Store(lay.scatters(up)); s.scattered.Load() {
		s.log.Info("the mountpaths aren't those of the last resilver: objects may lie elsewhere than they belong")
	}
	s.layoutMu.Lock()
	defer s.layoutMu.Unlock()
	s.saveLayout(nil)
	return nil
}

// allFailed tells whether by the layout no mountpath is left to use, and not because
// somebody wants it so.
func (s *Store) allFailed(lay layout) bool {
	for _, m := range s.mounts {
		if sl, ok := lay.slot(m.id()); !ok || sl.Disabled == "" || sl.ByHand {
			return false
		}
	}
	return true
}

// admit decides on one claimed mountpath by what the layout says of it.
func (s *Store) admit(m *mountpath, lay layout, have map[string]bool) error {
	if sl, ok := lay.slot(m.id()); ok {
		if sl.Disabled != "" && m.enabled() {
			m.down.Store(&fault{err: errors.New(sl.Disabled), byHand: sl.ByHand})
		}
	} else if sl, ok := lay.expects(m.dir, have); ok && m.id() == "" {
		why := m.down.Load()
		if _, err := os.Lstat(m.dir); why == nil && err != nil {
			why = &fault{err: err}
		} else if why == nil && sl.Mounted && !isMounted(m.dir) {
			why = &fault{err: errors.New("no file system is mounted there")}
		}
		if why != nil {
			have[sl.ID] = true
			m.identity(sl.ID)
			m.ident.Load().mounted = sl.Mounted
			m.down.Store(why)
		} else {
			s.log.Warn("a folder holds a new mountpath: what the one before it held is lost", "folder", m.dir, "identity", sl.ID)
		}
	} else if f := m.down.Load(); f != nil && m.id() == "" {
		return fmt.Errorf("folder %q: %w", m.dir, f.err)
	}
	if f := m.down.Load(); f != nil {
		s.log.Error("mountpath is disabled", "folder", m.dir, "err", f.err)
		return nil
	}
	err := m.prepare()
	if deviceFault(err) && m.id() != "" {
		m.down.Store(&fault{err: err})
		s.log.Error("mountpath disabled: its disk fails", "folder", m.dir, "err", err)
		return nil
	}
	return err
}

// copied refuses a copy of a mountpath beside the original.
func (s *Store) copied(id string) error {
	var dirs []string
	for _, m := range s.mounts {
		if m.id() == id {
			dirs = append(dirs, m.dir)
		}
	}
	return errs.New(errs.InvalidArgument, "", "folders "+strings.Join(dirs, " and ")+" have the same identity: one is a copy of the other")
}

// load finishes what a crash interrupted and finds the buckets. A bucket is there
// when any mountpath has it; the others get it too.
func (s *Store) load() error {
	found := map[string]bool{}
	gone := map[string]bool{}
	start := s.up()
	for _, m := range start {
		if err := m.watch(s.look(m, found, gone)); err != nil && !isDown(err) {
			return err
		}
	}
	for name := range gone {
		if _, err := s.newBucket(name).moveToTrash(); err != nil && !isDown(err) {
			return err
		}
		for _, m := range s.up() {
			if err := m.watch(m.catalog.Load().drop(name)); err != nil && !isDown(err) {
				return err
			}
		}
		delete(found, name)
	}
	for _, m := range s.up() {
		if err := m.watch(m.removeTrash(s.lost)); err != nil && !isDown(err) {
			return err
		}
	}
	for name := range found {
		b := s.newBucket(name)
		if err := b.make(); err != nil {
			return err
		}
		s.buckets[name] = b
	}
	if len(start) > 0 {
		return s.someUp()
	}
	return nil
}

// look finds the buckets that a mountpath has, and those that were being destroyed.
func (s *Store) look(m *mountpath, found, gone map[string]bool) error {
	if err := s.finishMissed(m); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Join(m.dir, trashDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if b, ok := strings.CutPrefix(e.Name(), tombstone); ok && names.CheckBucket(b) == nil {
			gone[b] = true
		}
	}
	all, err := s.bucketsOn(m)
	for _, b := range all {
		found[b] = true
	}
	return err
}

// lost tells whether a mountpath with that identity may come back.
func (s *Store) lost(id string) bool {
	for _, m := range s.mounts {
		if m.id() == id {
			return !m.enabled()
		}
	}
	return false
}

// bucketsOn lists the buckets that a mountpath has folders for.
func (s *Store) bucketsOn(m *mountpath) (all []string, err error) {
	entries, err := os.ReadDir(filepath.Join(m.dir, "@"+s.provider))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if e.IsDir() && names.CheckBucket(e.Name()) == nil {
			all = append(all, e.Name())
		}
	}
	return all, nil
}

// finishMissed moves to the trash what was destroyed while a mountpath wasn't in use.
func (s *Store) finishMissed(m *mountpath) error {
	for _, other := range s.up() {
		trash := filepath.Join(other.dir, trashDir)
		entries, err := os.ReadDir(trash)
		if errors.Is(err, os.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		for _, e := range entries {
			id, bucket, ok := cutMissed(e.Name())
			if !ok || id != m.id() || names.CheckBucket(bucket) != nil {
				continue
			}
			if err := s.trash(m, bucket); err != nil {
				return err
			}
			// A note that came back after a power cut would take a later bucket of that name.
			if err := os.Remove(filepath.Join(trash, e.Name())); err != nil {
				return err
			}
			if err := s.disk.syncDir(trash); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameFolder refuses overlaps that only show once symbolic links and bind mounts
// are followed. It runs before the locks, which would call the second one busy.
func sameFolder(dirs []string) error {
	real := make([]string, len(dirs))
	stat := make([]os.FileInfo, len(dirs))
	var faults []error
	for i, d := range dirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return err
		}
		// A folder that doesn't exist yet can't be another one, and where it would
		// lie shows in its nearest parent.
		real[i] = resolve(abs)
		if stat[i], err = os.Stat(abs); err != nil {
			continue
		}
		for j := range i {
			if stat[j] != nil && os.SameFile(stat[i], stat[j]) && real[i] != real[j] {
				faults = append(faults, errors.New(d+" and "+dirs[j]+" are one folder"))
			}
		}
	}
	if faults = append(faults, overlaps(real)...); len(faults) > 0 {
		return &errs.Error{Code: errs.InvalidArgument, Err: errors.Join(faults...)}
	}
	return nil
}

// resolve follows the symbolic links of the part of path that exists.
func resolve(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolve(parent), filepath.Base(path))
	}
	return path
}
