package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

const (
	identityFile = ".sheaf-mountpath"
	identityHead = "sheaf mountpath 1 "
	trashDir     = "%trash"
	tombstone    = "gone-"   // + bucket, in trashDir: that bucket is destroyed, wherever parts of it are left
	missed       = "missed-" // + identity-bucket, in trashDir: that mountpath wasn't there when that bucket was destroyed
)

// mountpath is one folder that the store owns while it is open.
type mountpath struct {
	s     *Store
	dir   string // absolute, symbolic links resolved
	ident atomic.Pointer[identity]
	lock  *os.File // holds the flock; nil: not opened. Guarded by Store.admin once the store is open
	fresh bool     // the identity was given by this Open

	down atomic.Pointer[fault] // nil: in use
	gen  atomic.Uint64         // grows each time the mountpath comes into use; its older work files are gone

	catalog atomic.Pointer[catalog] // nil until the mountpath first comes into use
	agrees  bool                    // the catalog is known to agree with the files; guarded by Store.admin once the store is open
}

// identity is what tells a mountpath from others. It changes only while the mountpath
// isn't in use, when another disk takes its folder.
type identity struct {
	id      string // random, kept in the folder: HRW doesn't see where it is mounted
	seed    uint64
	mounted bool // the folder is a mount point
}

// claim looks at a folder without changing it: takes the lock and reads the identity if it
// has one. A folder that isn't there, or is new, has none yet.
func (s *Store) claim(dir string) (_ *mountpath, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	m := &mountpath{s: s, dir: resolve(dir)}
	m.identity("")
	return m, m.open(os.O_RDWR)
}

// open opens and locks the identity file, and reads it.
func (m *mountpath) open(flags int) (err error) {
	path := filepath.Join(m.dir, identityFile)
	if err := m.try("open", path); err != nil {
		return err
	}
	lock, err := os.OpenFile(path, flags, 0o644)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return errs.New(errs.Busy, "", fmt.Sprintf("folder %q is in use by another store", m.dir))
		}
		return fmt.Errorf("lock folder %q: %w", m.dir, err)
	}
	b, err := io.ReadAll(io.LimitReader(lock, 4096))
	if err != nil {
		return err
	}
	id := ""
	if len(b) > 0 {
		var ok bool
		id, ok = strings.CutPrefix(strings.TrimSuffix(string(b), "\n"), identityHead)
		if raw, err := hex.DecodeString(id); !ok || err != nil || len(raw) != 16 {
			return errs.New(errs.InvalidArgument, "", fmt.Sprintf("folder %q: the file %s isn't a mountpath's identity", m.dir, identityFile))
		}
	}
	m.lock = lock
	m.identity(id)
	return nil
}

func (m *mountpath) identity(id string) {
	m.ident.Store(&identity{id: id, seed: xxh3.HashString(id), mounted: isMounted(m.dir)})
}

func (m *mountpath) id() string { return m.ident.Load().id }

// prepare makes the mountpath usable: gives a new one its folder and identity, and tries
// whether it can hold objects.
func (m *mountpath) prepare() error {
	if m.lock == nil {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := m.open(os.O_RDWR | os.O_CREATE); err != nil {
			return err
		}
	}
	if err := m.probeAttributes(); err != nil {
		return err
	}
	if m.id() == "" {
		if err := m.identify(); err != nil {
			return err
		}
	}
	// A process that was killed may have left folders that others built on and that
	// never were synced; from here on every visible folder counts as durable.
	if err := unix.Syncfs(int(m.lock.Fd())); err != nil {
		return fmt.Errorf("sync folder %q: %w", m.dir, err)
	}
	return nil
}

// probeAttributes tries the longest attribute that an object can have. A full disk
// proves nothing: what is on it must stay readable.
func (m *mountpath) probeAttributes() error {
	f, err := os.CreateTemp(m.dir, ".sheaf-probe-")
	if err != nil {
		if errs.CodeOf(err) == errs.NoSpace {
			return nil
		}
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	err = unix.Fsetxattr(int(f.Fd()), attrKey, make([]byte, attrMax), 0)
	if err == nil || errs.CodeOf(err) == errs.NoSpace && err != unix.ENOSPC {
		return nil
	}
	if err == unix.ENOSPC {
		// ext4 says so for an attribute that is too long as well as for a full disk.
		if free, _, e := m.space(); e == nil && free < 1<<20 {
			return nil
		}
	}
	return &errs.Error{Code: errs.NotSupported, Err: err, Msg: fmt.Sprintf(
		"folder %q can't hold objects: its file system (%s) doesn't keep user extended attributes of %d bytes", m.dir, fsType(m.dir), attrMax)}
}

// identify gives an identity to a new mountpath.
func (m *mountpath) identify() error {
	var raw [16]byte
	rand.Read(raw[:])
	id := hex.EncodeToString(raw[:])
	if _, err := m.lock.WriteAt([]byte(identityHead+id+"\n"), 0); err != nil {
		return err
	}
	if err := m.lock.Sync(); err != nil {
		return err
	}
	if err := syncDir(m.dir); err != nil {
		return err
	}
	// The folder itself may be new too.
	if err := syncDir(filepath.Dir(m.dir)); err != nil {
		return err
	}
	m.identity(id)
	m.fresh = true
	return nil
}

// score is the mountpath's weight for an object; the highest holds it.
func (m *mountpath) score(bucket, name string) uint64 {
	return xxh3.HashStringSeed(bucket+"/"+name, m.ident.Load().seed)
}

// space gives the free bytes, those that an ordinary user can have, and the total.
func (m *mountpath) space() (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(m.dir, &st); err != nil {
		return 0, 0, &os.PathError{Op: "statfs", Path: m.dir, Err: err}
	}
	unit := int64(st.Frsize)
	return int64(st.Bavail) * unit, int64(st.Blocks) * unit, nil
}

// emptyTrash removes what destroyed buckets left, but not the tombstones, which stand
// for buckets that are only partly in the trash.
func (m *mountpath) emptyTrash() error {
	trash := filepath.Join(m.dir, trashDir)
	entries, err := os.ReadDir(trash)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tombstone) && !strings.HasPrefix(e.Name(), missed) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(trash, e.Name())))
		}
	}
	return err
}

// removeTrash removes the trash for good, but for the notes for mountpaths that are lost.
func (m *mountpath) removeTrash(lost func(id string) bool) error {
	trash := filepath.Join(m.dir, trashDir)
	entries, err := os.ReadDir(trash)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	kept := false
	for _, e := range entries {
		if id, _, ok := cutMissed(e.Name()); ok && lost(id) {
			kept = true
		} else if err := os.RemoveAll(filepath.Join(trash, e.Name())); err != nil {
			return err
		}
	}
	if kept {
		return syncDir(trash)
	}
	if err := os.RemoveAll(trash); err != nil {
		return err
	}
	return syncDir(m.dir)
}

// cutMissed takes the name of a note apart: the bucket was destroyed, but for the part on
// the mountpath with that identity.
func cutMissed(name string) (id, bucket string, ok bool) {
	rest, ok := strings.CutPrefix(name, missed)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "-")
}

// openCatalog opens the catalog, and closes the one before, should there be one.
func (m *mountpath) openCatalog() error {
	if old := m.catalog.Load(); old != nil {
		if err := old.close(false); err != nil {
			m.s.log.Debug("the catalog of a disabled mountpath was closed", "folder", m.dir, "err", err)
		}
	}
	c, clean, err := openCatalog(m.dir, m.id(), m.s.log)
	if err != nil {
		return err
	}
	m.agrees = clean
	m.catalog.Store(c)
	return nil
}

// close gives the folder back.
func (m *mountpath) close() error {
	var err error
	if c := m.catalog.Load(); c != nil {
		err = c.close(m.agrees && m.enabled())
	}
	if m.lock != nil {
		err = errors.Join(err, m.lock.Close())
	}
	return err
}

// syncDir makes a folder's names durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// fsType names the file system of a folder for people.
func fsType(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return "unknown"
	}
	switch uint32(st.Type) {
	case unix.EXT4_SUPER_MAGIC:
		return "ext2/3/4"
	case unix.XFS_SUPER_MAGIC:
		return "xfs"
	case unix.BTRFS_SUPER_MAGIC:
		return "btrfs"
	case unix.TMPFS_MAGIC:
		return "tmpfs"
	case unix.RAMFS_MAGIC:
		return "ramfs"
	case unix.NFS_SUPER_MAGIC:
		return "nfs"
	case unix.OVERLAYFS_SUPER_MAGIC:
		return "overlayfs"
	case unix.FUSE_SUPER_MAGIC:
		return "fuse"
	case unix.MSDOS_SUPER_MAGIC:
		return "vfat"
	}
	return fmt.Sprintf("type %#x", uint32(st.Type))
}
