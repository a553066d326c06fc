package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"sheaf/internal/errs"
)

// MountpathStatus describes one mountpath.
type MountpathStatus struct {
	Dir         string
	ID          string
	Enabled     bool
	Err         string // why it isn't enabled
	Free, Total int64  // bytes; 0 where it isn't enabled
	Objects     int64  // how many lie there; 0 where it isn't enabled
}

// Mountpaths describes the mountpaths in the order of Options.Dirs.
func (s *Store) Mountpaths() []MountpathStatus {
	var all []MountpathStatus
	for _, m := range s.mounts {
		st := MountpathStatus{Dir: m.dir, ID: m.id()}
		if m.enabled() {
			var err error
			st.Free, st.Total, err = m.space()
			st.Objects = m.catalog.Load().objects.Load()
			if err = m.watch(err); err != nil && !isDown(err) {
				s.log.Warn("the space of a mountpath can't be told", "folder", m.dir, "err", err)
			}
		}
		if f := m.down.Load(); f != nil {
			st.Err = f.err.Error()
		} else {
			st.Enabled = true
		}
		all = append(all, st)
	}
	return all
}

// Scattered tells whether a Resilver has something to do: objects may lie on another
// mountpath than they belong.
func (s *Store) Scattered() bool { return s.scattered.Load() }

// SetMountpath disables a mountpath, or tries one that is disabled and enables it. What
// lies on a disabled one is Unavailable. After enabling one, Resilver brings the objects to
// where they belong; until then they are found wherever they are. A folder that holds no
// mountpath any more is taken for a new disk.
func (s *Store) SetMountpath(dir string, enabled bool) error {
	const op = "set mountpath"
	if err := s.enter(); err != nil {
		return fail(op, "", "", err)
	}
	defer s.calls.Done()
	s.admin.Lock()
	defer s.admin.Unlock()
	abs, err := filepath.Abs(dir)
	if err != nil {
		return fail(op, "", "", err)
	}
	for _, m := range s.mounts {
		if m.dir != abs && m.dir != resolve(abs) {
			continue
		}
		switch {
		case !enabled && m.enabled():
			s.disable(m, &fault{err: errByHand, byHand: true})
		case !enabled:
			s.keepDown(m)
		case !m.enabled():
			err = s.enable(m)
		}
		return fail(op, "", "", err)
	}
	return fail(op, "", "", errs.New(errs.NotFound, "", fmt.Sprintf("folder %q isn't a mountpath of this store", dir)))
}

// keepDown notes that somebody wants a mountpath disabled that failed.
func (s *Store) keepDown(m *mountpath) {
	s.layoutMu.Lock()
	defer s.layoutMu.Unlock()
	f := &fault{err: m.down.Load().err, byHand: true}
	s.saveLayout(map[*mountpath]*fault{m: f})
	m.down.Store(f)
}

// enable brings a mountpath back into use. The caller holds admin.
func (s *Store) enable(m *mountpath) error {
	// What began while it was in use may still use its catalog.
	s.holdWrites()()
	strange, err := s.reopen(context.Background(), m)
	if err != nil {
		return fmt.Errorf("mountpath %q stays disabled: %w", m.dir, err)
	}
	// Objects that were written elsewhere meanwhile are newer than what comes back, so from
	// here on searches look everywhere; and all commits that began before are awaited.
	release := s.holdWrites()
	s.layoutMu.Lock()
	s.scattered.Store(len(s.mounts) > 1)
	s.saveLayout(map[*mountpath]*fault{m: nil})
	s.changes.Add(1)
	m.gen.Add(1)
	m.down.Store(nil)
	s.layoutMu.Unlock()
	release()
	for _, name := range strange {
		s.adopt(name)
	}
	s.log.Info("mountpath enabled", "folder", m.dir)
	return nil
}

// holdWrites waits for the writes under way, and keeps others from beginning until release.
// The caller holds admin.
func (s *Store) holdWrites() (release func()) {
	s.mu.RLock()
	var all []*bucket
	for _, b := range s.buckets {
		all = append(all, b)
	}
	s.mu.RUnlock()
	for _, b := range all {
		b.life.Lock()
	}
	return func() {
		for _, b := range all {
			b.life.Unlock()
		}
	}
}

// reopen looks at a disabled mountpath anew, as Open does, and brings its buckets up to
// what the others have.
func (s *Store) reopen(ctx context.Context, m *mountpath) (strange []string, err error) {
	// What was mounted there may be another file system now.
	if err := m.close(); err != nil {
		s.log.Warn("the lock of a mountpath can't be closed", "folder", m.dir, "err", err)
	}
	m.lock = nil
	was := m.ident.Load()
	defer func() {
		if err != nil {
			m.ident.Store(was)
		}
	}()
	if err := m.open(os.O_RDWR); err != nil {
		return nil, err
	}
	if m.lock == nil {
		if _, err := os.Stat(m.dir); err != nil {
			return nil, errs.New(errs.Unavailable, "", "the folder isn't there")
		}
		if was.mounted && !isMounted(m.dir) {
			return nil, errs.New(errs.Unavailable, "", "no file system is mounted there")
		}
		m.identity("")
	}
	for _, other := range s.mounts {
		if other != m && other.id() == m.id() {
			return nil, s.copied(m.id())
		}
	}
	if err := m.prepare(); err != nil {
		return nil, err
	}
	if m.id() != was.id {
		s.log.Warn("a folder holds another mountpath: what the one before it held is lost", "folder", m.dir, "identity", was.id)
	}
	if err := m.tryOut(); err != nil {
		return nil, err
	}
	if err := s.finishMissed(m); err != nil {
		return nil, err
	}
	if err := m.emptyTrash(); err != nil {
		return nil, err
	}
	if strange, err = s.share(m); err != nil {
		return nil, err
	}
	if err := m.openCatalog(); err != nil {
		return nil, err
	}
	// While it wasn't in use it missed deletions; Resilver makes up for that.
	return strange, s.checkCatalog(ctx, m)
}

// tryOut writes and reads a file.
func (m *mountpath) tryOut() error {
	f, err := os.CreateTemp(m.dir, ".sheaf-probe-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	block := make([]byte, 64<<10)
	for i := range block {
		block[i] = byte(i)
	}
	if _, err := f.Write(block); err != nil {
		return err
	}
	if err := m.try("probe", f.Name()); err != nil {
		return err
	}
	if err := m.s.disk.sync(f); err != nil {
		return err
	}
	got := make([]byte, len(block))
	if _, err := f.ReadAt(got, 0); err != nil {
		return err
	}
	if string(got) != string(block) {
		return errs.New(errs.ChecksumMismatch, "", "the disk gives other bytes than were written")
	}
	return nil
}

// share makes the store's buckets on a mountpath that is about to come into use. It
// gives those on it that the store doesn't know.
func (s *Store) share(m *mountpath) (strange []string, err error) {
	on, err := s.bucketsOn(m)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, name := range on {
		if _, ok := s.buckets[name]; !ok {
			strange = append(strange, name)
		}
	}
	for _, b := range s.buckets {
		for _, br := range b.branches {
			if br.mount != m {
				continue
			}
			if err := br.create(); err != nil {
				return nil, err
			}
			if err := br.clean(); err != nil {
				return nil, err
			}
		}
	}
	return strange, nil
}

// adopt makes a bucket known that came with a mountpath.
func (s *Store) adopt(name string) {
	b := s.newBucket(name)
	if err := b.make(); err != nil {
		s.log.Error("a bucket that came with a mountpath can't be made on the others", "bucket", name, "err", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buckets[name] = b
}
