package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

const (
	sightings     = 16 << 10         // files compared at a time
	checkProgress = 10 * time.Second // between two lines in the log
)

// check compares a catalog with the files of its mountpath, which are right: what was
// written lately may be missing in the catalog, and what was deleted may still be a file.
// It holds some thousands of names at a time.
type check struct {
	ctx  context.Context
	s    *Store
	m    *mountpath
	seen []sighting // of one branch

	files, added, stale, removed int
	began, told                  time.Time
}

// sighting is a file that was found.
type sighting struct {
	at   place
	rec  Record
	kind uint8
}

// checkCatalogs makes the catalogs agree with the files where the last close doesn't say
// that they do. Nothing else uses the store yet.
func (s *Store) checkCatalogs(ctx context.Context) error {
	unclean := false
	for _, m := range s.up() {
		if m.agrees {
			continue
		}
		unclean = true
		if err := m.watch(s.checkCatalog(ctx, m)); err != nil && !isDown(err) {
			return err
		}
	}
	if !unclean {
		return nil
	}
	// A tombstone is on the mountpath that HRW names, the file may be on another.
	for _, b := range s.buckets {
		if err := b.bury(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkCatalog makes the catalog of one mountpath agree with its files. Nothing else uses
// the mountpath yet.
func (s *Store) checkCatalog(ctx context.Context, m *mountpath) error {
	c := &check{ctx: ctx, s: s, m: m, began: time.Now(), told: time.Now()}
	err := c.run()
	m.agrees = err == nil
	return err
}

func (c *check) run() error {
	cat := c.m.catalog.Load()
	have, err := cat.buckets()
	if err != nil {
		return err
	}
	for _, name := range have {
		if c.s.buckets[name] == nil {
			if err := cat.drop(name); err != nil {
				return err
			}
		}
	}
	cat.objects.Store(0)
	for _, b := range c.s.buckets {
		n, err := c.bucket(b)
		if err != nil {
			return err
		}
		cat.objects.Add(n)
	}
	if c.files > 0 || c.stale > 0 {
		c.s.log.Info("checked the catalog against the files", "folder", c.m.dir, "files", c.files, "added", c.added,
			"stale", c.stale, "deleted", c.removed, "took", time.Since(c.began).Round(time.Millisecond))
	}
	return nil
}

// bucket checks one bucket and gives the number of its objects here.
func (c *check) bucket(b *bucket) (int64, error) {
	br := b.branches[slices.Index(c.s.mounts, c.m)]
	before := c.files - c.removed
	if err := c.plain(b, br, br.content(contentObject), ""); err != nil {
		return 0, err
	}
	if err := c.hashed(b, br); err != nil {
		return 0, err
	}
	if err := c.compare(b); err != nil {
		return 0, err
	}
	seen := int64(c.files - c.removed - before)
	n, err := c.m.catalog.Load().count(b.name)
	if err != nil || n == seen {
		return seen, err
	}
	return seen, c.sweep(b, br)
}

// plain finds the files in a folder of the plain place, and below it.
func (c *check) plain(b *bucket, br *branch, dir, name string) error {
	var below []string
	err := readDir(c.ctx, dir, func(d os.DirEntry) error {
		part, ok := decodeComponent(d.Name())
		switch {
		case !ok:
		case d.IsDir():
			below = append(below, d.Name())
		case d.Type().IsRegular():
			return c.see(b, sighting{at: place{br: br, path: dir + "/" + d.Name()}, kind: placePlain}, name+part)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, d := range below {
		part, _ := decodeComponent(d)
		if err := c.plain(b, br, dir+"/"+d, name+part+"/"); err != nil {
			return err
		}
	}
	return nil
}

// hashed finds the files in the hashed place. One whose object has a plain place too was
// left by a crash.
func (c *check) hashed(b *bucket, br *branch) error {
	root := br.content(contentHashed)
	return readDir(c.ctx, root, func(sub os.DirEntry) error {
		dir := root + "/" + sub.Name()
		return readDir(c.ctx, dir, func(d os.DirEntry) error {
			if !d.Type().IsRegular() {
				return nil
			}
			at := place{br: br, path: dir + "/" + d.Name(), hashed: true}
			a, err := at.attr()
			if err != nil || a.name == "" || at.path != br.long(a.name).path {
				return c.unsound(at, err)
			}
			if p, ok := br.plain(a.name); ok {
				if pa, err := p.attr(); err == nil && pa.name == "" {
					return nil
				}
			}
			return c.see(b, sighting{at: at, kind: placeHashed}, a.name)
		})
	})
}

// see notes a file.
func (c *check) see(b *bucket, f sighting, name string) error {
	a, err := f.at.attr()
	if err == nil {
		err = f.at.belongs(a, name)
	}
	if err != nil {
		return c.unsound(f.at, err)
	}
	f.rec = Record{Info: a.info(name)}
	c.files++
	if c.seen = append(c.seen, f); len(c.seen) < sightings {
		return nil
	}
	return c.compare(b)
}

// unsound passes over a file that is no object; other errors stay.
func (c *check) unsound(at place, err error) error {
	if err == nil || errs.IsCode(err, errs.ChecksumMismatch) || errors.Is(err, unix.ENOENT) {
		c.s.log.Debug("a file is no object", "file", at.path, "err", err)
		return nil
	}
	return err
}

// compare brings what was seen into the catalog, in the order of its keys.
func (c *check) compare(b *bucket) error {
	slices.SortFunc(c.seen, func(x, y sighting) int { return strings.Compare(x.rec.Name, y.rec.Name) })
	cat := c.m.catalog.Load()
	dead := map[string]uint64{}
	batch := cat.db.NewBatch()
	defer batch.Close()
	if err := c.differ(b, batch, dead); err != nil {
		return err
	}
	for _, f := range c.seen {
		if v, ok := dead[f.rec.Name]; !ok {
			continue
		} else if v > f.rec.Version {
			// The tombstone was written, the file not removed.
			c.removed++
			if err := b.removeAll(f.rec.Name, []place{f.at}, f.at.br); err != nil {
				return err
			}
		} else if err := batch.Delete(tombKey(b.name, f.rec.Name), nil); err != nil {
			return err
		}
	}
	c.seen = c.seen[:0]
	if !batch.Empty() {
		if err := cat.apply(batch, false); err != nil {
			return err
		}
	}
	if now := time.Now(); now.Sub(c.told) >= checkProgress {
		c.told = now
		c.s.log.Info("checking the catalog against the files", "folder", c.m.dir, "bucket", b.name, "files", c.files, "added", c.added)
	}
	return nil
}

// differ puts into a batch what the catalog doesn't have, and finds tombstones of what was
// seen.
func (c *check) differ(b *bucket, batch *pebble.Batch, dead map[string]uint64) error {
	cat := c.m.catalog.Load()
	if err := cat.tombsOf(b.name, c.seen, dead); err != nil {
		return err
	}
	return cat.seekEach(spaceLive, b.name, c.seen, func(f sighting, have []byte) error {
		if v, ok := dead[f.rec.Name]; ok && v > f.rec.Version {
			return nil
		}
		want := encodeLive(f.rec, f.kind)
		if bytes.Equal(have, want) {
			return nil
		}
		c.added++
		return batch.Set(liveKey(b.name, f.rec.Name), want, nil)
	})
}

// tombsOf gives the tombstones of what was seen.
func (c *catalog) tombsOf(bucket string, seen []sighting, dead map[string]uint64) error {
	return c.seekEach(spaceTomb, bucket, seen, func(f sighting, have []byte) error {
		if have == nil {
			return nil
		}
		r, err := decodeTomb(f.rec.Name, have)
		if err != nil {
			return c.fail(err)
		}
		dead[r.Name] = r.Version
		return nil
	})
}

// seekEach gives the value of each name, which are sorted; nil where there is none.
func (c *catalog) seekEach(space byte, bucket string, seen []sighting, f func(f sighting, value []byte) error) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	low, high := bucketBounds(space, bucket)
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return c.readFault(err)
	}
	defer func() {
		if e := it.Close(); e != nil && err == nil {
			err = c.readFault(e)
		}
	}()
	some := it.First()
	for _, s := range seen {
		key := catalogKey(space, bucket, s.rec.Name)
		var value []byte
		if some && it.SeekGE(key) && bytes.Equal(it.Key(), key) {
			if value, err = it.ValueAndErr(); err != nil {
				return c.readFault(err)
			}
		}
		if err := it.Error(); err != nil {
			return c.readFault(err)
		}
		if err := f(s, value); err != nil {
			return err
		}
	}
	return nil
}

// sweep takes away the live records that have no file.
func (c *check) sweep(b *bucket, br *branch) error {
	cat := c.m.catalog.Load()
	for after, more := "", true; more; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		var all []Record
		more = false
		err := cat.walk(b.name, query{after: after}, func(r row) bool {
			all = append(all, r.rec)
			more = len(all) == sightings
			return !more
		})
		if err != nil {
			return err
		}
		batch := cat.db.NewBatch()
		for _, r := range all {
			after = r.Name
			if there, err := br.there(r.Name); err != nil {
				return errors.Join(err, batch.Close())
			} else if there {
				continue
			}
			c.stale++
			if err := batch.Delete(liveKey(b.name, r.Name), nil); err != nil {
				return errors.Join(err, batch.Close())
			}
		}
		if !batch.Empty() {
			err = cat.apply(batch, false)
		}
		if err = errors.Join(err, batch.Close()); err != nil {
			return err
		}
	}
	return nil
}

// there tells whether an object has a sound file on this branch.
func (br *branch) there(name string) (bool, error) {
	places := []place{br.long(name)}
	if p, ok := br.plain(name); ok {
		places = append(places, p)
	}
	for _, p := range places {
		a, err := p.attr()
		switch {
		case err == nil && p.belongs(a, name) == nil:
			return true, nil
		case err == nil, errs.IsCode(err, errs.ChecksumMismatch):
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENAMETOOLONG):
		default:
			return false, err
		}
	}
	return false, nil
}
