package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"sheaf/internal/errs"
)

const resilverPage = 1024 // names taken from a catalog at a time

// resilver moves what lies on one mountpath and belongs on another.
//
//	source file ─▶ work file at home, checksum compared, synced ─▶ (lock) still the newest?
//	    ─▶ renamed, folder synced ─▶ source removed ─▶ (unlock)
//
// A kill at any point leaves one copy or two equal ones, of which the next run removes
// the one that isn't at home. Copies that are older than another, or than a tombstone, are
// removed.
type resilver struct {
	s        *Store
	progress func(done, moved, bytes int64)

	done, moved, bytes int64
	failed             int64
	why                error // of the first that failed
}

// Resilver moves the objects to the mountpaths where they belong, among those in use. It
// may be broken off and called again at any time, and goes on while the store is used.
// What can't be moved stays where it is and is found there; the error then tells the first
// reason. Progress is told of every name: how many were looked at, and how many objects
// and bytes were moved.
func (s *Store) Resilver(ctx context.Context, progress func(done, moved int64, bytes int64)) error {
	const op = "resilver"
	if err := s.enter(); err != nil {
		return fail(op, "", "", err)
	}
	defer s.calls.Done()
	if !s.resilvering.TryLock() {
		return fail(op, "", "", errs.New(errs.Busy, "", "it is running already"))
	}
	defer s.resilvering.Unlock()
	if progress == nil {
		progress = func(_, _, _ int64) {}
	}
	r := &resilver{s: s, progress: progress}
	changes := s.changes.Load()
	buckets := s.Buckets()
	slices.Sort(buckets)
	for _, name := range buckets {
		b, err := s.begin(name, nil)
		if errs.IsCode(err, errs.BucketNotFound) {
			continue
		} else if err != nil {
			return fail(op, name, "", err)
		}
		err = r.bucket(ctx, b)
		s.calls.Done()
		if err != nil {
			return fail(op, name, "", err)
		}
	}
	if r.failed > 0 {
		return fail(op, "", "", &errs.Error{Code: errs.CodeOf(r.why), Msg: fmt.Sprintf("%d names couldn't be moved", r.failed), Err: r.why})
	}
	s.layoutMu.Lock()
	defer s.layoutMu.Unlock()
	if s.changes.Load() != changes {
		return fail(op, "", "", errs.New(errs.Unavailable, "", "the mountpaths changed meanwhile"))
	}
	if s.scattered.CompareAndSwap(true, false) {
		s.saveLayout(nil)
		s.log.Info("all objects are on the mountpaths where they belong", "names", r.done, "moved", r.moved, "bytes", r.bytes)
	}
	return nil
}

func (r *resilver) bucket(ctx context.Context, b *bucket) error {
	for _, br := range b.branches {
		for after := ""; br.mount.enabled(); {
			var page []Record
			err := br.mount.catalog.Load().walk(b.name, query{after: after, dead: true}, func(row row) bool {
				page = append(page, row.rec)
				return len(page) < resilverPage
			})
			if err = br.mount.watch(err); isDown(err) {
				break
			} else if err != nil {
				return err
			}
			if len(page) == 0 {
				break
			}
			after = page[len(page)-1].Name
			for _, rec := range page {
				if err := r.name(ctx, b, br, rec); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// name brings home what a branch has of one name. Its error ends the whole.
func (r *resilver) name(ctx context.Context, b *bucket, br *branch, rec Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var moved bool
	var err error
	if rec.Deleted {
		err = b.moveTomb(br, rec)
	} else if home, e := b.home(rec.Name); e != nil {
		return e
	} else if home != br {
		moved, err = b.move(ctx, br, rec.Name)
	}
	r.done++
	switch {
	case err == nil && moved:
		r.moved++
		r.bytes += rec.Size
	case err == nil:
	case ctx.Err() != nil:
		return ctx.Err()
	case errs.IsCode(err, errs.BucketNotFound):
		return nil // destroyed meanwhile
	default:
		if r.failed++; r.why == nil {
			r.why = fail("move", b.name, rec.Name, err)
		}
		r.s.log.Warn("an object can't be moved to the mountpath where it belongs", "bucket", b.name, "object", rec.Name, "from", br.mount.dir, "err", err)
	}
	r.progress(r.done, r.moved, r.bytes)
	return nil
}

// move brings the object that a branch has home, unless something newer is known.
func (b *bucket) move(ctx context.Context, from *branch, name string) (moved bool, err error) {
	fd, a, err := from.open(name)
	if err == errAbsent {
		return false, nil
	} else if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	needed, err := b.needed(from, a, name)
	if !needed || err != nil {
		return false, err
	}
	b.s.calls.Add(1) // for the staged object, which ends it
	t, err := b.stage(ctx, name, &mountReader{f: f, m: from.mount}, StageOptions{Size: a.size, Checksum: &a.checksum, Attrs: decodeCustom(a.custom),
		ModTime: a.info(name).ModTime, Version: a.version})
	if err != nil {
		b.s.calls.Done()
		return false, err
	}
	defer t.Discard()
	return b.settleAt(t, from, a)
}

// open opens what a branch has of a name.
func (br *branch) open(name string) (fd int, a attr, err error) {
	err = errAbsent
	if p, ok := br.plain(name); ok {
		fd, a, err = p.open(name)
	}
	if err == errAbsent {
		fd, a, err = br.long(name).open(name)
	}
	return fd, a, err
}

// needed tells whether the copy on a branch is to be moved. One that is older than
// another, or equal to the one at home, is removed.
func (b *bucket) needed(from *branch, a attr, name string) (bool, error) {
	st := b.s.stripe(b.name, name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return false, err
	}
	k, err := b.known(name)
	if err != nil {
		return false, err
	}
	if k.rec.Deleted {
		// The tombstone is newer; it comes home in its turn.
		return false, b.removeAll(name, k.at, k.tombAt)
	}
	if k.rec.Version == a.version && k.newest.br == from {
		return true, nil
	}
	return false, b.clear(name, k, k.newest)
}

// settleAt gives a moved object its place at home and removes the other copies.
func (b *bucket) settleAt(t *Staged, from *branch, a attr) (bool, error) {
	st := b.s.stripe(b.name, t.name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return false, err
	}
	k, err := b.known(t.name)
	if err != nil {
		return false, err
	}
	if k.rec.Deleted || k.rec.Version != a.version || k.newest.br != from {
		return false, nil // written or deleted meanwhile
	}
	if err := t.belongs(); err != nil {
		return false, err
	}
	if err := b.fix(t, a.version, k.at); err != nil {
		return false, err
	}
	b.note(t.to, t.w.attr.info(t.name), k.at)
	return true, b.clear(t.name, k, t.to)
}

// clear removes, durably, every copy of a name but one. The caller holds the stripe.
func (b *bucket) clear(name string, k known, keep place) error {
	for i := len(k.at) - 1; i >= 0; i-- {
		p := k.at[i]
		if p.path == keep.path {
			continue
		}
		b.moves.Add(1)
		err := p.br.mount.try("remove", p.path)
		if err == nil {
			err = os.Remove(p.path)
		}
		if err == nil {
			err = b.syncRemoval(p)
		}
		if err == nil && p.br != keep.br {
			err = p.br.mount.catalog.Load().del(b.name, name)
		}
		if err != nil {
			return diskFault(p.br.mount.watch(err))
		}
		b.prune(p)
	}
	return nil
}

// moveTomb brings a tombstone home, and removes the files that it stands for.
func (b *bucket) moveTomb(from *branch, tomb Record) error {
	st := b.s.stripe(b.name, tomb.Name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return err
	}
	k, err := b.known(tomb.Name)
	if err != nil {
		return err
	}
	home, err := b.home(tomb.Name)
	if err != nil {
		return err
	}
	if k.rec.Deleted && k.rec.Version == tomb.Version {
		if home != from {
			b.moves.Add(1)
			if err := home.mount.watch(home.mount.catalog.Load().tomb(b.name, k.rec)); err != nil {
				return err
			}
		}
		if len(k.at) > 0 {
			if err := b.removeAll(tomb.Name, k.at, home); err != nil {
				return err
			}
		}
	}
	// A record of another version is somebody else's.
	have, ok, err := from.mount.catalog.Load().get(b.name, tomb.Name)
	if err == nil && ok && have.Deleted && have.Version == tomb.Version && (home != from || !k.rec.Deleted || k.rec.Version != tomb.Version) {
		err = from.mount.catalog.Load().del(b.name, tomb.Name)
	}
	return from.mount.watch(err)
}

// mountReader reads a file of a mountpath.
type mountReader struct {
	f *os.File
	m *mountpath
}

var _ io.Reader = (*mountReader)(nil)

func (r *mountReader) Read(p []byte) (int, error) {
	if err := r.m.try("read", r.f.Name()); err != nil {
		return 0, r.m.watch(err)
	}
	n, err := r.f.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.m.watch(err)
	}
	return n, err
}
