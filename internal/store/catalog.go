package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"sheaf/internal/errs"
)

// catalogDir is the catalog's folder on a mountpath.
const catalogDir = ".sheaf-catalog"

// catalog is what one mountpath knows of its names, in their order: a mirror of the
// attributes of its files, and the tombstones, which are nowhere else.
//
//	commit ─▶ file, folder synced ─▶ put (not synced)        a crash between: mended by the
//	delete ─▶ tomb (synced) ─▶ file removed                  check at the next open
//
// A catalog that was closed says so in two places, its own mark and the file cleanMark;
// both are taken away before it is used. Where they don't meet, it is checked against the
// files. All methods may be called concurrently; writes of one name are ordered by whoever
// calls (the stripe).
type catalog struct {
	log  *slog.Logger
	root string // the mountpath
	fs   *catalogFS

	objects atomic.Int64          // live records
	broken  atomic.Pointer[error] // why it can't be used any more; set once

	// use is held shared over every call into db, and alone by what closes it. Never twice
	// by one goroutine.
	use    sync.RWMutex
	db     *pebble.DB     // guarded by use; closed when broken or shut is set
	shut   bool           // guarded by use
	ending sync.WaitGroup // the goroutine that closes a broken db
}

// openCatalog opens the catalog of a mountpath, or makes an empty one. It is clean when it
// is known to agree with the files; else the caller checks it before it is used. One that
// is damaged is moved aside.
func openCatalog(root, id string, log *slog.Logger) (c *catalog, clean bool, err error) {
	if c, clean, err = tryCatalog(root, id, log); err == nil || !damaged(err) {
		return c, clean, err
	}
	if err := setAside(root, log, err); err != nil {
		return nil, false, err
	}
	return tryCatalog(root, id, log)
}

func tryCatalog(root, id string, log *slog.Logger) (_ *catalog, clean bool, err error) {
	c := &catalog{log: log.With("catalog", root), root: root}
	// The mark goes first: whatever happens from here on, it must be made anew.
	mark, err := c.takeMark()
	if err != nil {
		return nil, false, err
	}
	if err := os.Mkdir(c.dir(), 0o755); err == nil {
		err = syncDir(root)
	} else if errors.Is(err, os.ErrExist) {
		err = nil
	}
	if err != nil {
		return nil, false, err
	}
	if _, err := os.Lstat(c.dir() + "/" + damagedMark); err == nil {
		return nil, false, errDamaged
	}
	c.fs = newCatalogFS(c)
	if c.db, err = pebble.Open(c.dir(), c.options()); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%w: %w", errDamaged, err)
		}
		return nil, false, fmt.Errorf("open the catalog of folder %q: %w", root, err)
	}
	c.fs.open.Store(true)
	if clean, err = c.begin(id, mark); err != nil {
		return nil, false, errors.Join(err, c.close(false))
	}
	return c, clean, nil
}

func (c *catalog) dir() string { return filepath.Join(c.root, catalogDir) }

// begin reads what the last close left and takes its mark away.
func (c *catalog) begin(id string, mark []byte) (clean bool, err error) {
	owner, _, err := c.read(keyOwner)
	if err != nil {
		return false, err
	}
	if owner != nil && string(owner) != id {
		return false, fmt.Errorf("%w: it belongs to the mountpath %q", errDamaged, owner)
	}
	last, ok, err := c.read(keyClean)
	if err != nil {
		return false, err
	}
	// The mark: 16 random bytes, and the number of live records.
	if ok && len(last) == markSize+8 && string(last[:markSize]) == string(mark) {
		c.objects.Store(int64(binary.BigEndian.Uint64(last[markSize:])))
		clean = true
	}
	b := c.db.NewBatch()
	defer b.Close()
	if err := errors.Join(b.Set(keyOwner, []byte(id), nil), b.Delete(keyClean, nil)); err != nil {
		return false, err
	}
	return clean, c.apply(b, true)
}

// close writes down that catalog and files agree, and closes. The caller has synced the
// files, and nobody uses the catalog any more.
func (c *catalog) close(agreed bool) error {
	var mark []byte
	err := c.usable()
	if agreed && err == nil {
		mark, err = c.leaveMark()
	}
	err = errors.Join(err, c.shutDown())
	c.ending.Wait()
	if mark != nil && err == nil {
		err = c.writeMark(mark)
	}
	return err
}

// shutDown closes pebble once nobody is in it.
func (c *catalog) shutDown() error {
	c.use.Lock()
	defer c.use.Unlock()
	if c.shut {
		return nil
	}
	c.shut = true
	return c.db.Close()
}

// usable says why the catalog can't be used.
func (c *catalog) usable() error {
	if err := c.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// fail ends the use of a catalog of which something couldn't be written or is damaged.
// What is on disk stays as it is: the next open finds what a crash would have left. It may
// be called from anywhere, pebble's own goroutines and locks included.
func (c *catalog) fail(err error) error {
	err = fmt.Errorf("folder %q: %w: %w", c.root, errCatalogFailed, err)
	if !c.broken.CompareAndSwap(nil, &err) {
		return c.usable()
	}
	c.fs.freeze()
	c.log.Error("the catalog has failed", "err", err)
	c.ending.Add(1)
	go func() { // ends when all calls into the catalog have; close waits for it
		defer c.ending.Done()
		if err := c.shutDown(); err != nil {
			c.log.Debug("a failed catalog was closed", "err", err)
		}
		if damaged(err) {
			c.markDamaged()
		}
	}()
	return err
}

// enter begins a call into pebble, which must end with c.use.RUnlock.
func (c *catalog) enter() error {
	c.use.RLock()
	err := c.usable()
	if err == nil && c.shut {
		err = errs.New(errs.Unavailable, "", "the store is closed")
	}
	if err != nil {
		c.use.RUnlock()
	}
	return err
}

// apply writes a batch. Pebble's own way with a log that can't be written is to panic;
// catalogFS keeps such errors from it, and so it is broken that tells.
func (c *catalog) apply(b *pebble.Batch, sync bool) error {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	o := pebble.NoSync
	if sync {
		o = pebble.Sync
	}
	if err := c.db.Apply(b, o); err != nil {
		return c.fail(err)
	}
	return c.usable()
}

// read gives a copy of a value.
func (c *catalog) read(key []byte) (v []byte, ok bool, err error) {
	ok, err = c.look(key, func(b []byte) { v = append([]byte{}, b...) })
	return v, ok, err
}

func (c *catalog) has(key []byte) (bool, error) { return c.look(key, func([]byte) {}) }

func (c *catalog) look(key []byte, f func(value []byte)) (bool, error) {
	if err := c.enter(); err != nil {
		return false, err
	}
	defer c.use.RUnlock()
	v, done, err := c.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, c.readFault(err)
	}
	f(v)
	return true, done.Close()
}

// readFault tells a damaged catalog from a disk that can't be read.
func (c *catalog) readFault(err error) error {
	if damaged(err) {
		return c.fail(err)
	}
	return fmt.Errorf("read the catalog of folder %q: %w", c.root, err)
}

// put notes an object whose file is in place. It isn't synced: the file says it too. If it
// can't be noted, the catalog no longer mirrors the files and fails.
func (c *catalog) put(bucket string, r Record, place uint8) error {
	key := liveKey(bucket, r.Name)
	had, err := c.has(key)
	if err != nil {
		return c.fail(err)
	}
	dead, err := c.has(tombKey(bucket, r.Name))
	if err != nil {
		return c.fail(err)
	}
	b := c.db.NewBatch()
	defer b.Close()
	if err = b.Set(key, encodeLive(r, place), nil); dead && err == nil {
		err = b.Delete(tombKey(bucket, r.Name), nil)
	}
	if err != nil {
		return c.fail(err)
	}
	if err := c.apply(b, false); err != nil {
		return err
	}
	if !had {
		c.objects.Add(1)
	}
	return nil
}

// tomb notes a deletion, and returns when that is on disk.
func (c *catalog) tomb(bucket string, r Record) error {
	return c.replace(bucket, r.Name, func(b *pebble.Batch) error {
		return b.Set(tombKey(bucket, r.Name), encodeTomb(r), nil)
	}, true)
}

// del forgets a name, live or deleted. If it can't, the catalog fails.
func (c *catalog) del(bucket, name string) error {
	dead, err := c.has(tombKey(bucket, name))
	if err != nil {
		return c.fail(err)
	}
	live, err := c.has(liveKey(bucket, name))
	if err != nil {
		return c.fail(err)
	}
	if !dead && !live {
		return nil
	}
	err = c.replace(bucket, name, func(b *pebble.Batch) error {
		return b.Delete(tombKey(bucket, name), nil)
	}, false)
	if err != nil {
		return c.fail(err)
	}
	return nil
}

// replace takes a name's live record away and does what is to be done of its tombstone.
func (c *catalog) replace(bucket, name string, tomb func(*pebble.Batch) error, sync bool) error {
	key := liveKey(bucket, name)
	had, err := c.has(key)
	if err != nil {
		return err
	}
	b := c.db.NewBatch()
	defer b.Close()
	if err := tomb(b); err != nil {
		return err
	}
	if had {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	if err := c.apply(b, sync); err != nil {
		return err
	}
	if had {
		c.objects.Add(-1)
	}
	return nil
}

// get gives what is known of a name.
func (c *catalog) get(bucket, name string) (Record, bool, error) {
	if v, ok, err := c.read(liveKey(bucket, name)); err != nil {
		return Record{}, false, err
	} else if ok {
		r, _, err := decodeLive(name, v)
		return r, err == nil, c.valueFault(err)
	}
	v, ok, err := c.read(tombKey(bucket, name))
	if err != nil || !ok {
		return Record{}, false, err
	}
	r, err := decodeTomb(name, v)
	return r, err == nil, c.valueFault(err)
}

func (c *catalog) valueFault(err error) error {
	if err == nil {
		return nil
	}
	return c.fail(err)
}

// drop forgets a bucket.
func (c *catalog) drop(bucket string) error {
	n, err := c.count(bucket)
	if err != nil {
		return err
	}
	b := c.db.NewBatch()
	defer b.Close()
	for _, space := range []byte{spaceLive, spaceTomb} {
		low, high := bucketBounds(space, bucket)
		if err := b.DeleteRange(low, high, nil); err != nil {
			return err
		}
	}
	if err := c.apply(b, true); err != nil {
		return err
	}
	c.objects.Add(-n)
	return nil
}

// count counts a bucket's live records.
func (c *catalog) count(bucket string) (n int64, err error) {
	low, high := bucketBounds(spaceLive, bucket)
	return n, c.each(low, high, func([]byte, []byte) (bool, error) {
		n++
		return true, nil
	})
}

// each gives the keys from low to below high and their values, which f may not keep.
func (c *catalog) each(low, high []byte, f func(key, value []byte) (bool, error)) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return c.readFault(err)
	}
	defer func() {
		if e := it.Close(); e != nil && err == nil {
			err = c.readFault(e)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return c.readFault(err)
		}
		if more, err := f(it.Key(), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// walk gives a bucket's rows until f, which may not call the catalog, is false.
func (c *catalog) walk(bucket string, q query, f func(row) bool) (err error) {
	w, err := newCatalogWalk(c, bucket, q)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for {
		r, err := w.next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if !f(r) {
			return nil
		}
	}
}

// tombs gives a bucket's tombstones in the order of names, until f, which may
// not call the catalog, is false.
func (c *catalog) tombs(bucket string, f func(Record) bool) error {
	low, high := bucketBounds(spaceTomb, bucket)
	return c.each(low, high, func(key, value []byte) (bool, error) {
		r, err := decodeTomb(string(key[len(low):]), value)
		if err != nil {
			return false, c.fail(err)
		}
		return f(r), nil
	})
}

// buckets lists the buckets that the catalog has anything of.
func (c *catalog) buckets() (all []string, err error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.use.RUnlock()
	seen := map[string]bool{}
	for _, space := range []byte{spaceLive, spaceTomb} {
		it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
		if err != nil {
			return nil, c.readFault(err)
		}
		for ok := it.First(); ok; {
			name, err := keyBucket(it.Key())
			if err != nil {
				return nil, errors.Join(c.fail(err), it.Close())
			}
			if !seen[name] {
				seen[name], all = true, append(all, name)
			}
			_, high := bucketBounds(space, name)
			ok = it.SeekGE(high)
		}
		if err := it.Close(); err != nil {
			return nil, c.readFault(err)
		}
	}
	return all, nil
}

// room refuses what would need space that the catalog itself will need.
func (c *catalog) room() error {
	if err := c.usable(); err != nil {
		return err
	}
	if !c.fs.full() {
		return nil
	}
	return errs.New(errs.NoSpace, "", fmt.Sprintf("folder %q: what is left is kept for deletions", c.root))
}
