package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// commit gives a staged object its name and removes what it replaces.
func (b *bucket) commit(t *Staged, version uint64, c Condition) (Info, error) {
	st := b.s.stripe(b.name, t.name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return Info{}, err
	}
	k, err := b.known(t.name)
	if err != nil {
		return Info{}, err
	}
	if err := c.check(k); err != nil {
		return Info{}, err
	}
	w := t.w
	if err := t.belongs(); err != nil {
		return Info{}, err
	}
	switch {
	case version == 0:
		version = b.s.pick(w.attr.version, max(k.rec.Version, st.high))
	case version <= k.rec.Version:
		return k.rec.Info, nil
	}
	if version != w.attr.version {
		if err := w.seal(version, w.attr.name, t.relaxed); err != nil {
			return Info{}, err
		}
	}
	if err := b.fix(t, version, k.at); err != nil {
		return Info{}, err
	}
	st.high = max(st.high, version)
	info := w.attr.info(t.name)
	b.note(t.to, info, k.at)
	// From here on the object is written. What can't be removed is less preferred than
	// what was written, so it is only lost space.
	for _, p := range k.at {
		if p.path == t.to.path {
			continue
		}
		b.moves.Add(1)
		if err := p.br.mount.watch(os.Remove(p.path)); err != nil {
			b.s.log.Warn("an older copy can't be removed", "file", p.path, "err", err)
			continue
		}
		b.prune(p)
	}
	if len(k.at) > 0 {
		b.dropIndex(t.name)
	}
	return info, nil
}

// belongs tells whether the work file still is good, and where the object belongs.
func (t *Staged) belongs() error {
	if err := t.w.current(); err != nil {
		return err
	}
	home, err := t.b.home(t.name)
	if err == nil && home != t.w.br {
		// A mountpath came into use. What lies there is preferred to what this would write.
		err = errs.New(errs.Unavailable, "", "the mountpaths changed meanwhile")
	}
	return err
}

// fix installs the work file in the plain place, or where that can't be had in the
// hashed one.
func (b *bucket) fix(t *Staged, version uint64, old []place) error {
	err := b.install(t.w, t.to, old, t.relaxed)
	if err != errOccupied {
		return err
	}
	t.to = t.to.br.long(t.name)
	if err := t.w.seal(version, t.name, t.relaxed); err != nil {
		return err
	}
	return b.install(t.w, t.to, old, t.relaxed)
}

// pick gives the version of a write: the one guessed if it is above all that is known,
// else one that is above the clock too.
func (s *Store) pick(guess, high uint64) uint64 {
	if guess > high {
		return guess
	}
	return max(high+1, uint64(s.now().UnixNano()))
}

// note tells the catalogs of an object that is in place of what was there. The files say
// it already, so a record that can't be written is only told.
func (b *bucket) note(at place, info Info, old []place) {
	kind := placePlain
	if at.hashed {
		kind = placeHashed
	}
	told := func(br *branch, err error) {
		if err = br.mount.watch(err); err != nil {
			b.s.log.Error("a catalog can't be written", "folder", br.mount.dir, "bucket", b.name, "object", info.Name, "err", err)
		}
	}
	told(at.br, at.br.mount.catalog.Load().put(b.name, Record{Info: info}, kind))
	for _, p := range old {
		if p.br != at.br {
			// A walk through the catalogs may have passed the one and miss it in the other.
			b.moves.Add(1)
			break
		}
	}
	for _, br := range b.branches {
		if br != at.br && br.mount.enabled() {
			told(br, br.mount.catalog.Load().del(b.name, info.Name))
		}
	}
}

// errOccupied: the plain place can't be had, another object needs the folder or file.
var errOccupied = errors.New("occupied")

// install renames the work file to its place and makes that durable. If it can't, it
// takes the rename back.
func (b *bucket) install(w *work, to place, old []place, relaxed bool) error {
	replaces := false
	for _, p := range old {
		replaces = replaces || p.path == to.path
	}
	if to.hashed {
		// Before the file is there, so that no search misses it.
		to.br.hashed.Store(true)
	}
	exchanged, err := b.rename(w, to, replaces)
	if err != nil {
		return err
	}
	if relaxed {
		b.s.loose.Store(true)
	} else if err := b.s.folders.sync(to.dir()); err != nil {
		b.takeBack(w, to, replaces, exchanged)
		return diskFault(to.br.mount.watch(fmt.Errorf("sync folder %s: %w", to.dir(), err)))
	}
	if !exchanged {
		w.path = ""
	}
	// Else the work file now is the older version, and discard removes it.
	return nil
}

// rename moves the work file. Where it replaces a file it exchanges the two, so that
// there is a way back.
func (b *bucket) rename(w *work, to place, replaces bool) (exchanged bool, err error) {
	br := to.br
	if err := br.mount.try("rename", to.path); err != nil {
		return false, br.mount.watch(err)
	}
	if replaces {
		err := unix.Renameat2(unix.AT_FDCWD, w.path, unix.AT_FDCWD, to.path, unix.RENAME_EXCHANGE)
		if err == nil {
			return true, nil
		}
		if err != unix.EINVAL && err != unix.ENOSYS {
			return false, diskFault(br.mount.watch(&os.LinkError{Op: "exchange", Old: w.path, New: to.path, Err: err}))
		}
		// A file system that can't exchange.
	}
	br.tree.RLock()
	err = unix.Rename(w.path, to.path)
	br.tree.RUnlock()
	if err == unix.ENOENT {
		br.tree.Lock()
		defer br.tree.Unlock()
		if err := b.makeDirs(to.dir(), filepath.Dir(to.root())); err != nil {
			b.removeEmpty(to.dir(), to.root())
			return false, br.mount.watch(err)
		}
		if err = unix.Rename(w.path, to.path); err != nil {
			b.removeEmpty(to.dir(), to.root())
		}
	}
	return false, renameFault(err, w.path, to)
}

// renameFault tells the errors that the hashed place cures.
func renameFault(err error, from string, to place) error {
	switch err {
	case nil:
		return nil
	case unix.EISDIR, unix.ENOTDIR, unix.ENOTEMPTY, unix.EEXIST, unix.ENAMETOOLONG:
		if !to.hashed {
			return errOccupied
		}
	}
	return diskFault(to.br.mount.watch(&os.LinkError{Op: "rename", Old: from, New: to.path, Err: err}))
}

// makeDirs makes the folders from below base down to dir, each durable before the next.
// The caller holds branch.tree alone.
func (b *bucket) makeDirs(dir, base string) error {
	if dir == base {
		return nil
	}
	err := unix.Mkdir(dir, 0o755)
	if err == unix.ENOENT {
		if err := b.makeDirs(filepath.Dir(dir), base); err != nil {
			return err
		}
		err = unix.Mkdir(dir, 0o755)
	}
	switch err {
	case nil:
		return b.s.disk.syncDir(filepath.Dir(dir))
	case unix.EEXIST:
		// A folder; or an object, which the rename then finds out.
		return nil
	case unix.ENOTDIR, unix.ENAMETOOLONG:
		return errOccupied
	}
	return diskFault(&os.PathError{Op: "mkdir", Path: dir, Err: err})
}

// takeBack undoes a rename whose folder couldn't be synced. What the disk holds after
// that is unknown; what readers see is the older version again.
func (b *bucket) takeBack(w *work, to place, replaces, exchanged bool) {
	var err error
	switch {
	case exchanged:
		err = unix.Renameat2(unix.AT_FDCWD, w.path, unix.AT_FDCWD, to.path, unix.RENAME_EXCHANGE)
	case replaces:
		// The older version is gone, so the new one had better stay.
		w.path = ""
	default:
		w.path = ""
		if err = os.Remove(to.path); err == nil {
			b.prune(to)
		}
	}
	if err != nil {
		b.s.log.Error("a write that failed can't be taken back", "file", to.path, "err", err)
	}
}

// prune removes the folders above p that are empty now.
func (b *bucket) prune(p place) {
	if p.dir() == p.root() {
		return
	}
	p.br.tree.Lock()
	defer p.br.tree.Unlock()
	b.removeEmpty(p.dir(), p.root())
}

// removeEmpty removes dir and what is above it as long as it is empty, up to root,
// which stays. The caller holds branch.tree alone.
func (b *bucket) removeEmpty(dir, root string) {
	for ; len(dir) > len(root); dir = filepath.Dir(dir) {
		if err := unix.Rmdir(dir); err != nil && err != unix.ENOENT && err != unix.ENOTDIR && err != unix.ENAMETOOLONG {
			return
		}
	}
}

// settle makes an object durable that a relaxed write may have left to the kernel.
func (b *bucket) settle(name string) error {
	if !b.s.loose.Load() {
		return nil
	}
	fd, _, p, err := b.find(name)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), p.path)
	defer f.Close()
	if err := b.s.disk.sync(f); err != nil {
		return p.br.mount.watch(err)
	}
	return diskFault(p.br.mount.watch(b.s.folders.sync(p.dir())))
}
