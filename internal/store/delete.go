package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sheaf/internal/errs"
)

// Delete writes a tombstone, removes the object and its index, and returns when that is on
// disk. With a version of 0 the store picks one above every version of the name that it
// knows, and says NotFound where there is no object; with another the tombstone is written
// in any case, unless what is there is as new, which then is returned.
func (s *Store) Delete(bucket, name string, version uint64, c Condition) (Record, error) {
	const op = "delete"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return Record{}, fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	if err := c.validate(); err != nil {
		return Record{}, fail(op, bucket, name, err)
	}
	r, err := b.delete(name, version, c)
	return r, fail(op, bucket, name, err)
}

func (b *bucket) delete(name string, version uint64, c Condition) (Record, error) {
	st := b.s.stripe(b.name, name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return Record{}, err
	}
	k, err := b.known(name)
	if err != nil {
		return Record{}, err
	}
	if err := c.check(k); err != nil {
		return Record{}, err
	}
	home, err := b.home(name)
	if err != nil {
		return Record{}, err
	}
	switch {
	case version == 0 && k.lost != nil:
		return Record{}, k.lost
	case version == 0 && !k.live():
		return Record{}, errs.New(errs.NotFound, "", "")
	case version == 0:
		version = b.s.pick(0, max(k.rec.Version, st.high))
	case version <= k.rec.Version:
		return k.rec, nil
	}
	// The tombstone first: should the files stay, the next start removes them.
	r := Record{Info: Info{Name: name, Version: version, ModTime: b.s.now()}, Deleted: true}
	if err := home.mount.watch(home.mount.catalog.Load().tomb(b.name, r)); err != nil {
		return Record{}, diskFault(err)
	}
	st.high = max(st.high, version)
	return r, b.removeAll(name, k.at, home)
}

// removeAll removes an object's files and its index, durably, and what the catalogs but
// that of one branch say of it. The caller holds the stripe.
func (b *bucket) removeAll(name string, at []place, keep *branch) error {
	b.dropIndex(name)
	// The least preferred first, each durable before the next: an older copy must not
	// come to light.
	for i := len(at) - 1; i >= 0; i-- {
		p := at[i]
		err := p.br.mount.try("remove", p.path)
		if err == nil {
			err = os.Remove(p.path)
		}
		if err == nil {
			err = b.syncRemoval(p)
		}
		if err == nil && p.br != keep {
			b.moves.Add(1)
			err = p.br.mount.catalog.Load().del(b.name, name)
		}
		if err != nil {
			return diskFault(p.br.mount.watch(err))
		}
		b.prune(p)
	}
	return nil
}

// Remove takes away what the store has of a name, object or tombstone, if its version
// still is the given one; else it says VersionMismatch, or NotFound. No tombstone stays.
func (s *Store) Remove(bucket, name string, version uint64) error {
	const op = "remove"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	return fail(op, bucket, name, b.remove(name, version))
}

func (b *bucket) remove(name string, version uint64) error {
	st := b.s.stripe(b.name, name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return err
	}
	k, err := b.known(name)
	switch {
	case err != nil:
		return err
	case k.lost != nil:
		return k.lost
	case k.rec.Version == 0 && len(k.at) == 0:
		return errs.New(errs.NotFound, "", "")
	case k.rec.Version != version:
		return errs.New(errs.VersionMismatch, "", fmt.Sprintf("there is version %d, %d was asked for", k.rec.Version, version))
	}
	st.high = max(st.high, version)
	if err := b.removeAll(name, k.at, nil); err != nil {
		return err
	}
	return b.forget(name)
}

// syncRemoval makes the removal of p durable. Where another Delete has pruned p's folder
// meanwhile, it is the removal of that folder which must be durable.
func (b *bucket) syncRemoval(p place) error {
	for dir := p.dir(); ; dir = filepath.Dir(dir) {
		err := b.s.folders.sync(dir)
		if !errors.Is(err, os.ErrNotExist) || dir == p.root() {
			return err
		}
	}
}
