package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// bucket is a bucket on all mountpaths.
type bucket struct {
	s        *Store
	name     string
	branches []*branch // one per mountpath, in the order of Store.mounts

	// moves counts the objects that went from one place to another. A search or a
	// listing that found nothing while it grew looks again.
	moves atomic.Uint64

	life sync.RWMutex // held shared by commits, so that none lands in a bucket being destroyed
	gone bool         // guarded by life
}

// branch is a bucket on one mountpath.
type branch struct {
	mount *mountpath
	dir   string // <mountpath>/@<provider>/<bucket>

	// hashed is false as long as nothing was put into the hashed place, which spares
	// every search for a missing object a second look.
	hashed atomic.Bool

	// tree is held shared over a rename into a folder that exists, and alone while
	// folders are made, synced and removed. So no folder vanishes under a rename, and
	// whoever finds a folder finds it durable.
	tree sync.RWMutex
}

func (br *branch) content(kind string) string { return br.dir + "/" + kind }

func (s *Store) newBucket(name string) *bucket {
	b := &bucket{s: s, name: name}
	for _, m := range s.mounts {
		b.branches = append(b.branches, &branch{mount: m, dir: bucketDir(m.dir, s.provider, name)})
	}
	return b
}

// make makes the bucket's folders on every mountpath in use.
func (b *bucket) make() error {
	for _, br := range b.branches {
		if err := br.make(); err != nil && !isDown(err) {
			return err
		}
	}
	return nil
}

// make makes what is missing of the branch's folders, durably, and cleans them.
func (br *branch) make() error {
	if err := br.mount.unavailable(); err != nil {
		return err
	}
	err := br.create()
	if err == nil {
		err = br.clean()
	}
	return br.mount.watch(err)
}

func (br *branch) create() error {
	for _, d := range []string{filepath.Dir(br.dir), br.dir, br.content(contentObject), br.content(contentWork), br.content(contentIndex)} {
		if err := br.mount.try("mkdir", d); err != nil {
			return err
		}
		if err := os.Mkdir(d, 0o755); errors.Is(err, os.ErrExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := br.mount.s.disk.syncDir(filepath.Dir(d)); err != nil {
			return err
		}
	}
	return nil
}

// clean removes the work files of a process that died, or of the time before the
// mountpath was disabled, and finds out whether the hashed place is in use.
func (br *branch) clean() error {
	work := br.content(contentWork)
	entries, err := os.ReadDir(work)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(work, e.Name())); err != nil {
			return err
		}
	}
	if len(entries) > 0 {
		br.mount.s.log.Info("removed leftover work files", "folder", work, "count", len(entries))
	}
	if entries, err = os.ReadDir(br.content(contentHashed)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		// Fails, and means to, where something is inside.
		if os.Remove(filepath.Join(br.content(contentHashed), e.Name())) != nil {
			br.hashed.Store(true)
		}
	}
	return nil
}

// moveToTrash takes the bucket's folders out of sight. A tombstone makes it one step:
// once it is there, which begun tells, the next start finishes what this one can't. For
// mountpaths that aren't in use the others keep notes.
func (b *bucket) moveToTrash() (begun bool, err error) {
	up := b.s.up()
	if len(up) == 0 {
		return false, b.s.someUp()
	}
	first := up[0]
	mark := b.tombstone(first)
	if err := b.s.note(first, filepath.Base(mark)); err != nil {
		return false, first.watch(err)
	}
	for _, m := range up[1:] {
		if err := m.watch(b.s.trash(m, b.name)); err != nil && !isDown(err) {
			return true, err
		}
	}
	if err := b.s.trash(first, b.name); err != nil {
		return true, first.watch(err)
	}
	if err := b.s.noteMissed(b.name); err != nil {
		return true, err
	}
	if err := os.Remove(mark); err != nil {
		return true, first.watch(err)
	}
	// A tombstone that came back after a power cut would take a later bucket of that name.
	return true, first.watch(b.s.disk.syncDir(filepath.Dir(mark)))
}

// tombstone is the file that says that the bucket is being destroyed.
func (b *bucket) tombstone(m *mountpath) string {
	return filepath.Join(m.dir, trashDir, tombstone+b.name)
}

// noteMissed leaves a note on the mountpaths in use for each that isn't.
func (s *Store) noteMissed(bucket string) error {
	for _, lost := range s.mounts {
		if lost.enabled() {
			continue
		}
		for _, m := range s.up() {
			if err := m.watch(s.note(m, missed+lost.id()+"-"+bucket)); err != nil && !isDown(err) {
				return err
			}
		}
	}
	return nil
}

// note makes an empty file in a mountpath's trash, durably.
func (s *Store) note(m *mountpath, name string) error {
	trash := filepath.Join(m.dir, trashDir)
	if err := m.try("create", trash+"/"+name); err != nil {
		return err
	}
	err := os.Mkdir(trash, 0o755)
	if err == nil {
		err = s.disk.syncDir(m.dir)
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(trash+"/"+name, nil, 0o644); err != nil {
		return err
	}
	return s.disk.syncDir(trash)
}

// trash moves a bucket's folder on one mountpath to the trash.
func (s *Store) trash(m *mountpath, bucket string) error {
	trash := filepath.Join(m.dir, trashDir)
	if err := os.Mkdir(trash, 0o755); err == nil {
		err = s.disk.syncDir(m.dir)
		if err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	to := filepath.Join(trash, "b"+strconv.FormatUint(s.workID.Add(1), 36))
	// Before the trash of an earlier run is emptied, its names are still there.
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	dir := bucketDir(m.dir, s.provider, bucket)
	if err := m.try("rename", dir); err != nil {
		return err
	}
	if err := os.Rename(dir, to); errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return s.disk.syncDir(filepath.Dir(dir))
}

// CreateBucket makes a bucket; one that exists stays as it is.
func (s *Store) CreateBucket(name string) error {
	const op = "create bucket"
	if err := names.CheckBucket(name); err != nil {
		return fail(op, name, "", err)
	}
	if err := s.enter(); err != nil {
		return fail(op, name, "", err)
	}
	defer s.calls.Done()
	s.admin.Lock()
	defer s.admin.Unlock()
	s.mu.RLock()
	_, have := s.buckets[name]
	s.mu.RUnlock()
	if have {
		return nil
	}
	b := s.newBucket(name)
	for _, m := range s.up() {
		if _, err := os.Lstat(b.tombstone(m)); err == nil {
			// A destruction that failed halfway comes first, else the next start would
			// finish it on the new bucket.
			if _, err := b.moveToTrash(); err != nil {
				return fail(op, name, "", diskFault(err))
			}
			if err := os.Remove(b.tombstone(m)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fail(op, name, "", diskFault(m.watch(err)))
			}
		}
	}
	err := b.make()
	if err == nil {
		err = s.someUp()
	}
	if err != nil {
		return fail(op, name, "", diskFault(err))
	}
	s.mu.Lock()
	s.buckets[name] = b
	s.mu.Unlock()
	return nil
}

// DestroyBucket removes a bucket with everything in it. Open objects stay readable.
func (s *Store) DestroyBucket(name string) error {
	const op = "destroy bucket"
	s.admin.Lock()
	defer s.admin.Unlock()
	b, err := s.begin(name, nil)
	if err != nil {
		return fail(op, name, "", err)
	}
	defer s.calls.Done()
	b.life.Lock()
	begun, err := b.moveToTrash()
	if begun {
		for _, m := range s.up() {
			err = errors.Join(err, m.watch(m.catalog.Load().drop(name)))
		}
		b.gone = true
		s.mu.Lock()
		delete(s.buckets, name)
		s.mu.Unlock()
	}
	b.life.Unlock()
	if err != nil {
		return fail(op, name, "", diskFault(err))
	}
	for _, m := range s.up() {
		if err := m.watch(m.emptyTrash()); err != nil {
			// The bucket is gone; the space comes back when the store is next opened.
			s.log.Warn("the trash can't be emptied", "folder", m.dir, "err", err)
		}
	}
	return nil
}

// Buckets lists the buckets that this store has, in no order.
func (s *Store) Buckets() []string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]string, 0, len(s.buckets))
	for name := range s.buckets {
		all = append(all, name)
	}
	return all
}

// Empty tells whether a bucket has no object.
func (s *Store) Empty(name string) (bool, error) {
	const op = "empty"
	b, err := s.begin(name, nil)
	if err != nil {
		return false, fail(op, name, "", err)
	}
	defer s.calls.Done()
	some, err := b.hasObjects()
	return !some, fail(op, name, "", err)
}

// HasObjects tells whether any bucket has an object.
func (s *Store) HasObjects() (bool, error) {
	const op = "has objects"
	if err := s.enter(); err != nil {
		return false, fail(op, "", "", err)
	}
	defer s.calls.Done()
	for _, name := range s.Buckets() {
		b, err := s.begin(name, nil)
		if errs.IsCode(err, errs.BucketNotFound) {
			continue
		} else if err != nil {
			return false, fail(op, name, "", err)
		}
		some, err := b.hasObjects()
		s.calls.Done()
		if some || err != nil {
			return some, fail(op, name, "", err)
		}
	}
	return false, nil
}

// hasObjects can't say no while a mountpath isn't in use.
func (b *bucket) hasObjects() (some bool, err error) {
	missing, err := b.walk(context.Background(), query{}, func(row) bool {
		some = true
		return false
	})
	if !some && err == nil {
		err = missing
	}
	return some, err
}

// alive refuses a commit into a bucket that was destroyed; the caller holds life.
func (b *bucket) alive() error {
	if b.gone {
		return errs.New(errs.BucketNotFound, "", fmt.Sprintf("bucket %q was destroyed meanwhile", b.name))
	}
	return nil
}
