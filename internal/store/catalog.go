package store

import (
	"encoding/binary"
	"errors"
	"fmt"
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
	if err = os.Mkdir(c.dir(), 0o755); err == nil {
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
