package store

import (
	"context"
	"fmt"

	"sheaf/internal/errs"
)

// Record is what a store knows of a name: its newest version, an object or a deletion.
type Record struct {
	Info         // of a deletion: Name, Version, ModTime
	Deleted bool // a tombstone
}

// Condition guards a write. The zero Condition always holds.
type Condition struct {
	Absent  bool   // no such object, else AlreadyExists
	Version uint64 // the object has this version, else VersionMismatch, or NotFound; 0: any
}

func (c Condition) validate() error {
	if c.Absent && c.Version != 0 {
		return errs.New(errs.InvalidArgument, "", "a condition that asks for a version and for none")
	}
	return nil
}

// check tells whether c holds of what is there.
func (c Condition) check(k known) error {
	live := k.live()
	switch {
	case c != (Condition{}) && k.lost != nil:
		return k.lost
	case c.Absent && live:
		return errs.New(errs.AlreadyExists, "", fmt.Sprintf("the object is there with version %d", k.rec.Version))
	case c.Version != 0 && !live:
		return errs.New(errs.NotFound, "", fmt.Sprintf("there is no object, version %d was asked for", c.Version))
	case c.Version != 0 && k.rec.Version != c.Version:
		return errs.New(errs.VersionMismatch, "", fmt.Sprintf("the object has version %d, %d was asked for", k.rec.Version, c.Version))
	}
	return nil
}

// known is all that the store knows of one name. A file that isn't sound counts, with no
// version: writing and deleting are how one gets rid of it.
type known struct {
	at     []place // every file, the most preferred first
	rec    Record  // the newest; Version 0: nothing, or nothing sound
	newest place   // of the newest sound file
	tombAt *branch // where the tombstone is, if that is the newest
	lost   error   // why there may be more than is known; nil: there isn't
}

// live tells whether the name is an object's.
func (k known) live() bool { return len(k.at) > 0 && !k.rec.Deleted }

// known gathers files and tombstone of a name. The caller holds the stripe.
func (b *bucket) known(name string) (known, error) {
	k, err := b.copies(name)
	if err != nil {
		return known{}, err
	}
	tomb, at, err := b.tomb(name)
	if err != nil {
		return known{}, err
	}
	ok := at != nil
	if ok && tomb.Version > k.rec.Version {
		k.rec, k.tombAt = tomb, at
	}
	if len(k.at) == 0 && !ok {
		if err := b.absent(name); isDown(err) {
			k.lost = err
		}
	}
	return k, nil
}

// tomb gives the newest deletion of a name and whose catalog has it; nil where none has.
func (b *bucket) tomb(name string) (newest Record, at *branch, err error) {
	for _, br := range b.branches {
		if !br.mount.enabled() {
			continue
		}
		r, have, err := br.mount.catalog.Load().get(b.name, name)
		if err = br.mount.watch(err); isDown(err) {
			continue
		} else if err != nil {
			return Record{}, nil, err
		}
		if have && r.Deleted && r.Version > newest.Version {
			newest, at = r, br
		}
	}
	return newest, at, nil
}

// forget removes what the mountpaths' records say of a name; the file, if any, is what counts.
func (b *bucket) forget(name string) error {
	for _, br := range b.branches {
		if !br.mount.enabled() {
			continue
		}
		if err := br.mount.watch(br.mount.catalog.Load().del(b.name, name)); err != nil && !isDown(err) {
			return err
		}
	}
	return nil
}

// Lookup gives the newest version of a name, which may be a deletion; NotFound when the
// store knows nothing of it, Unavailable when it may lie on a mountpath that isn't in use.
func (s *Store) Lookup(bucket, name string) (Record, error) {
	const op = "lookup"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return Record{}, fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	r, err := b.lookup(name)
	return r, fail(op, bucket, name, err)
}

func (b *bucket) lookup(name string) (newest Record, err error) {
	err = b.search(name, func() error {
		for _, br := range b.branches {
			if !br.mount.enabled() {
				continue
			}
			r, ok, err := br.mount.catalog.Load().get(b.name, name)
			if err = br.mount.watch(err); err != nil && !isDown(err) {
				return err
			}
			if ok && r.Version >= newest.Version {
				newest = r
			}
		}
		if newest.Name == "" {
			return errAbsent
		}
		return nil
	})
	return newest, err
}

// LookupMany gives the newest versions of many names, in their order; one of which the
// store knows nothing has the version 0, be it that it may lie on a mountpath that isn't
// in use: as good as missing for whoever keeps the copies complete.
func (s *Store) LookupMany(bucket string, names []string) ([]Record, error) {
	const op = "lookup"
	b, err := s.begin(bucket, nil)
	if err != nil {
		return nil, fail(op, bucket, "", err)
	}
	defer s.calls.Done()
	all := make([]Record, len(names))
	for i, name := range names {
		if all[i], err = b.lookup(name); err != nil && !errs.IsCode(err, errs.NotFound) && !isDown(err) {
			return nil, fail(op, bucket, name, err)
		}
		all[i].Name = name
	}
	return all, nil
}

// Records gives what comes after a name, deletions too, in the order of names.
func (s *Store) Records(ctx context.Context, bucket, after string, limit int) ([]Record, error) {
	const op = "records"
	b, err := s.begin(bucket, nil)
	if err != nil {
		return nil, fail(op, bucket, "", err)
	}
	defer s.calls.Done()
	if limit <= 0 {
		return nil, fail(op, bucket, "", errs.New(errs.InvalidArgument, "", fmt.Sprintf("a limit of %d", limit)))
	}
	var all []Record
	_, err = b.walk(ctx, query{after: after, dead: true}, func(r row) bool {
		all = append(all, r.rec)
		return len(all) < limit
	})
	return all, fail(op, bucket, "", err)
}

// ForgetTombstones forgets the deletions older than a version. It gives their number.
// While a mountpath isn't in use it keeps them: what comes back with it may be older.
func (s *Store) ForgetTombstones(ctx context.Context, bucket string, before uint64) (int, error) {
	const op = "forget tombstones"
	b, err := s.begin(bucket, nil)
	if err != nil {
		return 0, fail(op, bucket, "", err)
	}
	defer s.calls.Done()
	n := 0
	if len(s.up()) < len(s.mounts) {
		return 0, nil
	}
	for _, br := range b.branches {
		var old []string
		err := br.mount.catalog.Load().tombs(b.name, func(r Record) bool {
			if r.Version < before {
				old = append(old, r.Name)
			}
			return ctx.Err() == nil
		})
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return n, fail(op, bucket, "", err)
		}
		for _, name := range old {
			if err := b.forgetTomb(br, name, before); err != nil {
				return n, fail(op, bucket, name, err)
			}
			n++
		}
	}
	return n, nil
}

func (b *bucket) forgetTomb(br *branch, name string, before uint64) error {
	st := b.s.stripe(b.name, name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := br.mount.unavailable(); err != nil {
		return err
	}
	r, ok, err := br.mount.catalog.Load().get(b.name, name)
	if err != nil || !ok || !r.Deleted || r.Version >= before {
		return err
	}
	return br.mount.catalog.Load().del(b.name, name)
}
