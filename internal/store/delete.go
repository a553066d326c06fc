package store

import (
	"errors"
	"os"
	"path/filepath"

	"sheaf/internal/errs"
)

// Delete removes an object and its index and returns when that is on disk.
func (s *Store) Delete(bucket, name string) error {
	const op = "delete"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	return fail(op, bucket, name, b.delete(name))
}

func (b *bucket) delete(name string) error {
	st := b.s.stripe(b.name, name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return err
	}
	old, high, err := b.copies(name)
	if err != nil {
		return err
	}
	if len(old) == 0 {
		return errs.New(errs.NotFound, "", "")
	}
	st.high = max(st.high, high)
	b.dropIndex(name)
	// The least preferred first, each durable before the next: an older copy must not
	// come to light.
	for i := len(old) - 1; i >= 0; i-- {
		p := old[i]
		if err := os.Remove(p.path); err != nil {
			return diskFault(err)
		}
		if err := b.syncRemoval(p); err != nil {
			return diskFault(err)
		}
		b.prune(p)
	}
	return nil
}

// syncRemoval makes the removal of p durable. Where another Delete has pruned p's folder
// meanwhile, it is the removal of that folder which must be durable.
func (b *bucket) syncRemoval(p place) error {
	for dir := p.dir(); ; dir = filepath.Dir(dir) {
		err := b.s.disk.syncDir(dir)
		if !errors.Is(err, os.ErrNotExist) || dir == p.root() {
			return err
		}
	}
}
