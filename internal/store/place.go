package store

import (
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// place is one file where an object may be.
type place struct {
	br     *branch
	path   string
	hashed bool
}

func (br *branch) plain(name string) (place, bool) {
	rel, ok := encodeName(name)
	return place{br: br, path: br.content(contentObject) + "/" + rel}, ok
}

func (br *branch) long(name string) place {
	return place{br: br, path: br.content(contentHashed) + "/" + hashedName(name), hashed: true}
}

// root is the folder that the place's own folders lie in, and that stays.
func (p place) root() string {
	if p.hashed {
		return p.br.content(contentHashed)
	}
	return p.br.content(contentObject)
}

func (p place) dir() string { return filepath.Dir(p.path) }

// ranking gives all branches in HRW order for an object.
func (b *bucket) ranking(name string) []*branch {
	if len(b.branches) == 1 {
		return b.branches
	}
	type scored struct {
		score uint64
		br    *branch
	}
	all := make([]scored, len(b.branches))
	for i, br := range b.branches {
		all[i] = scored{br.mount.score(b.name, name), br}
	}
	slices.SortFunc(all, func(x, y scored) int {
		switch {
		case x.score > y.score, x.score == y.score && x.br.mount.id() > y.br.mount.id():
			return -1
		}
		return 1
	})
	out := make([]*branch, len(all))
	for i, a := range all {
		out[i] = a.br
	}
	return out
}

// ranked gives the branches in use in HRW order for an object.
func (b *bucket) ranked(name string) []*branch {
	all := b.ranking(name)
	for i, br := range all {
		if br.mount.enabled() {
			continue
		}
		up := append([]*branch(nil), all[:i]...)
		for _, br := range all[i+1:] {
			if br.mount.enabled() {
				up = append(up, br)
			}
		}
		return up
	}
	return all
}

// home gives the branch where an object belongs.
func (b *bucket) home(name string) (*branch, error) {
	if all := b.ranked(name); len(all) > 0 {
		return all[0], nil
	}
	return nil, b.branches[0].mount.unavailable()
}

// places gives every file that may hold the object, the most preferred first.
func (b *bucket) places(name string) iter.Seq[place] {
	return func(yield func(place) bool) {
		for _, br := range b.ranked(name) {
			if p, ok := br.plain(name); ok && !yield(p) {
				return
			}
			if br.hashed.Load() && !yield(br.long(name)) {
				return
			}
		}
	}
}

// errAbsent: nothing is at a place, or a folder is, or it lies below an object.
var errAbsent = errors.New("absent")

// open opens the file and reads its attribute. With any error but errAbsent there is
// a file, which isn't a sound object; the descriptor is closed then.
func (p place) open(name string) (fd int, a attr, err error) {
	if err := p.br.mount.try("open", p.path); err != nil {
		return -1, a, p.br.mount.watch(err)
	}
	for {
		// O_NONBLOCK: a FIFO that someone left there must not hang the caller.
		fd, err = unix.Open(p.path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != unix.EINTR {
			break
		}
	}
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.EISDIR, unix.ENAMETOOLONG:
		return -1, a, errAbsent
	case unix.ELOOP, unix.ENXIO:
		return -1, a, errs.New(errs.ChecksumMismatch, "", "what is at its place on disk isn't a regular file")
	default:
		return -1, a, p.br.mount.watch(fmt.Errorf("open %s: %w", p.path, err))
	}
	if a, err = p.check(fd, name); err != nil {
		unix.Close(fd)
		return -1, a, p.br.mount.watch(err)
	}
	return fd, a, nil
}

// check tells whether an open file is the whole object of that name.
func (p place) check(fd int, name string) (attr, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return attr{}, fmt.Errorf("stat %s: %w", p.path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		return attr{}, errAbsent
	default:
		return attr{}, errs.New(errs.ChecksumMismatch, "", "what is at its place on disk isn't a regular file")
	}
	a, err := readAttr(func(b []byte) (int, error) { return unix.Fgetxattr(fd, attrKey, b) })
	if err != nil {
		return a, err
	}
	if err := p.belongs(a, name); err != nil {
		return a, err
	}
	if st.Size != a.size {
		return a, errs.New(errs.ChecksumMismatch, "", fmt.Sprintf("the file has %d bytes, %d were written", st.Size, a.size))
	}
	// O_NONBLOCK has done its part; without it the file stays out of the poller.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFL, 0); err != nil {
		return a, fmt.Errorf("fcntl %s: %w", p.path, err)
	}
	return a, nil
}

// belongs tells whether the file is where an object of that name is kept.
func (p place) belongs(a attr, name string) error {
	if p.hashed && a.name == name || !p.hashed && a.name == "" {
		return nil
	}
	return errs.New(errs.ChecksumMismatch, "", fmt.Sprintf("the file belongs to the object %q", a.name))
}

// find opens the object. It doesn't lock.
func (b *bucket) find(name string) (fd int, a attr, at place, err error) {
	err = b.search(name, func() error {
		if b.s.scattered.Load() {
			fd, a, at, err = b.newest(name)
		} else {
			fd, a, at, err = b.first(name)
		}
		return err
	})
	return fd, a, at, err
}

// search calls look until it is sure of what it says. What look finds counts; that there is
// nothing, errAbsent, only if nothing moved from one place to another meanwhile, which
// shows in bucket.moves, and if no mountpath came or went.
func (b *bucket) search(name string, look func() error) error {
	for {
		moves, changes := b.moves.Load(), b.s.changes.Load()
		// Before and after: one that comes into use while look passes was not looked at.
		lost := b.absent(name)
		if err := look(); err != errAbsent {
			return err
		}
		if b.moves.Load() != moves || b.s.changes.Load() != changes {
			continue
		}
		if isDown(lost) {
			return lost
		}
		return b.absent(name)
	}
}

// first opens the object at the first place that has it.
func (b *bucket) first(name string) (fd int, a attr, at place, err error) {
	for p := range b.places(name) {
		fd, a, err = p.open(name)
		if err != errAbsent && !isDown(err) {
			return fd, a, p, err
		}
	}
	return -1, attr{}, place{}, errAbsent
}

// newest opens the newest of all copies, unless it was deleted since.
func (b *bucket) newest(name string) (fd int, a attr, at place, err error) {
	fd, err = -1, errAbsent
	for p := range b.places(name) {
		f, have, e := p.open(name)
		switch {
		case e == errAbsent || isDown(e):
		case e != nil:
			if fd < 0 {
				at, err = p, e
			}
		case fd < 0 || have.version > a.version:
			if fd >= 0 {
				unix.Close(fd)
			}
			fd, a, at, err = f, have, p, nil
		default:
			unix.Close(f)
		}
	}
	if fd < 0 {
		return -1, attr{}, at, err
	}
	tomb, in, err := b.tomb(name)
	if err == nil && in != nil && tomb.Version > a.version {
		err = errs.New(errs.NotFound, "", "")
	}
	if err != nil {
		unix.Close(fd)
		return -1, attr{}, place{}, err
	}
	return fd, a, at, nil
}

// stat describes the object.
func (b *bucket) stat(name string) (Info, error) {
	fd, a, _, err := b.find(name)
	if err != nil {
		return Info{}, err
	}
	unix.Close(fd)
	return a.info(name), nil
}

// copies lists the places where a file is, the most preferred first, and the newest
// sound one among them. The caller holds the stripe.
func (b *bucket) copies(name string) (k known, err error) {
	for p := range b.places(name) {
		fd, a, err := p.open(name)
		switch {
		case err == nil:
			unix.Close(fd)
		case err == errAbsent || isDown(err):
			continue
		case !errs.IsCode(err, errs.ChecksumMismatch):
			return known{}, err
		}
		k.at = append(k.at, p)
		if err == nil && a.version > k.rec.Version {
			k.rec, k.newest = Record{Info: a.info(name)}, p
		}
	}
	return k, nil
}

// attr reads the attribute without opening the file.
func (p place) attr() (attr, error) {
	return readAttr(func(b []byte) (int, error) { return unix.Lgetxattr(p.path, attrKey, b) })
}
