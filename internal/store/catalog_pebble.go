package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

// Bounds of a catalog's memory, in bytes: the block cache, and a write buffer of which
// there are two, seldom three. With what pebble keeps per open table that is some 10 MiB.
const (
	catalogCache  = 4 << 20
	catalogBuffer = 2 << 20
	catalogTables = 64 // open table files
)

func (c *catalog) options() *pebble.Options {
	o := &pebble.Options{
		FS:                          c.fs,
		Logger:                      pebbleLog{c},
		CacheSize:                   catalogCache,
		MemTableSize:                catalogBuffer,
		MemTableStopWritesThreshold: 4,
		MaxOpenFiles:                catalogTables,
		MaxManifestFileSize:         1 << 20,
		// What newer formats bring isn't needed, and each costs syncs when a catalog is made.
		FormatMajorVersion:         pebble.FormatMinSupported,
		CompactionConcurrencyRange: func() (int, int) { return 1, 1 },
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if !errors.Is(err, pebble.ErrCancelledCompaction) {
					c.fail(err)
				}
			},
			DataCorruption: func(i pebble.DataCorruptionInfo) { c.fail(fmt.Errorf("%w: %s", errDamaged, i)) },
		},
	}
	o.TargetFileSizes[0] = catalogBuffer
	for i := 1; i < len(o.TargetFileSizes); i++ {
		o.TargetFileSizes[i] = 2 * catalogBuffer
	}
	for i := range o.Levels {
		o.Levels[i].BlockSize = 16 << 10
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	return o
}

// pebbleLog is pebble's logger.
type pebbleLog struct{ c *catalog }

var _ pebble.Logger = pebbleLog{}

func (l pebbleLog) Infof(format string, a ...any) { l.c.log.Debug(fmt.Sprintf(format, a...)) }

func (l pebbleLog) Errorf(format string, a ...any) { l.c.log.Error(fmt.Sprintf(format, a...)) }

// Fatalf returns, which pebble doesn't expect. What it is called for are faults of its
// files, which catalogFS keeps from it, and of its own logic.
func (l pebbleLog) Fatalf(format string, a ...any) { l.c.fail(fmt.Errorf(format, a...)) }

// errDamaged: the catalog isn't what a catalog wrote.
var errDamaged = errors.New("the catalog is damaged")

// errCatalogFailed: something of the catalog couldn't be written. Its mountpath is out of
// use until it is enabled anew, which checks the catalog, or the next start.
var errCatalogFailed = errors.New("the catalog has failed")

// damaged tells whether an error says that the catalog must be made anew.
func damaged(err error) bool {
	return errors.Is(err, errDamaged) || pebble.IsCorruptionError(err)
}

const (
	cleanMark   = ".sheaf-clean" // beside the catalog, not in it: an older copy of it has no right mark
	markSize    = 16
	damagedMark = "damaged" // in the catalog's folder: found damaged while in use
	asideSuffix = ".damaged-"
)

// takeMark reads what the last close left and removes it, durably.
func (c *catalog) takeMark() ([]byte, error) {
	path := filepath.Join(c.root, cleanMark)
	mark, err := readFile(path, 4096)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return mark, syncDir(c.root)
}

// leaveMark puts the mark into the catalog, which makes all of it durable.
func (c *catalog) leaveMark() ([]byte, error) {
	mark := make([]byte, markSize)
	rand.Read(mark)
	b := c.db.NewBatch()
	defer b.Close()
	if err := b.Set(keyClean, binary.BigEndian.AppendUint64(mark, uint64(c.objects.Load())), nil); err != nil {
		return nil, err
	}
	return mark[:markSize], c.apply(b, true)
}

// writeMark writes the file that goes with the catalog's mark.
func (c *catalog) writeMark(mark []byte) error {
	f, err := os.Create(filepath.Join(c.root, cleanMark))
	if err != nil {
		return err
	}
	_, err = f.Write(mark)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(c.root)
}

// markDamaged makes the next open set the catalog aside.
func (c *catalog) markDamaged() {
	if err := os.WriteFile(filepath.Join(c.dir(), damagedMark), nil, 0o644); err != nil {
		c.log.Error("a damaged catalog can't be marked", "err", err)
	}
}

// setAside moves a damaged catalog out of the way. One is kept, for who wants to look.
func setAside(root string, log *slog.Logger, cause error) error {
	dir := filepath.Join(root, catalogDir)
	entries, err := os.ReadDir(root)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), catalogDir+asideSuffix) {
			if err := os.RemoveAll(filepath.Join(root, e.Name())); err != nil {
				return err
			}
		}
	}
	to := dir + asideSuffix + strconv.FormatInt(time.Now().Unix(), 10)
	if err := os.Rename(dir, to); err != nil {
		return err
	}
	log.Error("the catalog is damaged: it is made anew from the files, but its tombstones are lost, and what was deleted lately may come back from other nodes",
		"folder", root, "kept", to, "err", cause)
	return syncDir(root)
}
