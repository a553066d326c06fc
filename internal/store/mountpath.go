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

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

const (
	identityFile = ".sheaf-mountpath"
	identityHead = "sheaf mountpath 1 "
	trashDir     = "%trash"
	tombstone    = "gone-" // + bucket, in trashDir: that bucket is destroyed, wherever parts of it are left
)

// mountpath is one folder that the store owns while it is open.
type mountpath struct {
	dir  string // absolute, symbolic links resolved
	id   string // random, kept in the folder: HRW doesn't see where it is mounted
	seed uint64
	lock *os.File // holds the flock

	catalog *catalog
	agrees  bool // the catalog is known to agree with the files
}

// openMountpath takes a folder: makes it, locks it, reads or gives its identity and
// tries whether it can hold objects.
func openMountpath(dir string) (_ *mountpath, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	m := &mountpath{dir: dir}
	if m.lock, err = os.OpenFile(filepath.Join(dir, identityFile), os.O_RDWR|os.O_CREATE, 0o644); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if err := unix.Flock(int(m.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errs.New(errs.Busy, "", fmt.Sprintf("folder %q is in use by another store", dir))
		}
		return nil, fmt.Errorf("lock folder %q: %w", dir, err)
	}
	if err := m.probeAttributes(); err != nil {
		return nil, err
	}
	if err := m.identify(); err != nil {
		return nil, err
	}
	// A process that was killed may have left folders that others built on and that
	// never were synced; from here on every visible folder counts as durable.
	if err := unix.Syncfs(int(m.lock.Fd())); err != nil {
		return nil, fmt.Errorf("sync folder %q: %w", dir, err)
	}
	return m, nil
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

// identify reads the identity, or gives one to a new folder.
func (m *mountpath) identify() error {
	b, err := io.ReadAll(io.LimitReader(m.lock, 4096))
	if err != nil {
		return err
	}
	if len(b) == 0 {
		var id [16]byte
		rand.Read(id[:])
		b = []byte(identityHead + hex.EncodeToString(id[:]) + "\n")
		if _, err := m.lock.WriteAt(b, 0); err != nil {
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
	}
	id, ok := strings.CutPrefix(strings.TrimSuffix(string(b), "\n"), identityHead)
	if raw, err := hex.DecodeString(id); !ok || err != nil || len(raw) != 16 {
		return errs.New(errs.InvalidArgument, "", fmt.Sprintf("folder %q: the file %s isn't a mountpath's identity", m.dir, identityFile))
	}
	m.id, m.seed = id, xxh3.HashString(id)
	return nil
}

// score is the mountpath's weight for an object; the highest holds it.
func (m *mountpath) score(bucket, name string) uint64 {
	return xxh3.HashStringSeed(bucket+"/"+name, m.seed)
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
		if !strings.HasPrefix(e.Name(), tombstone) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(trash, e.Name())))
		}
	}
	return err
}

// removeTrash removes the trash with its tombstones, for good.
func (m *mountpath) removeTrash() error {
	if err := os.RemoveAll(filepath.Join(m.dir, trashDir)); err != nil {
		return err
	}
	return syncDir(m.dir)
}

// close gives the folder back.
func (m *mountpath) close() error {
	var err error
	if m.catalog != nil {
		err = m.catalog.close(m.agrees)
	}
	return errors.Join(err, m.lock.Close())
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
