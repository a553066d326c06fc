package store

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// item is one line of a listing before it is looked up: an object, or a folded prefix.
type item struct {
	key    string // the object's name, or the prefix with its delimiter
	prefix bool
	at     place // of the object
}

// query is what a listing asks for.
type query struct {
	prefix string
	after  string
	fold   bool // the delimiter is "/"
	chunk  int  // names of one folder held at a time
}

// admits tells whether a key, an object's or a folded one, is asked for.
func (q query) admits(key string) bool { return key > q.after && strings.HasPrefix(key, q.prefix) }

// descends tells whether a folder, given with its trailing slash, may hold something
// that is asked for: all names in it begin with it.
func (q query) descends(dir string) bool {
	if q.fold {
		return q.admits(dir)
	}
	return (strings.HasPrefix(dir, q.prefix) || strings.HasPrefix(q.prefix, dir)) &&
		(dir > q.after || strings.HasPrefix(q.after, dir))
}

// treeWalk goes through the plain places of one branch in the byte order of the full
// names. A folder sorts as its name with a slash, so "a-b" < "a/b" < "a0". It holds
// one chunk of names for each level, and reads a folder again when its chunk is used up.
type treeWalk struct {
	br    *branch
	q     query
	stack []*level
}

// level is a folder on the way to where the walk is.
type level struct {
	dir     string // on disk
	name    string // what the names in it begin with; ends in a slash or is empty
	entries []entry
	more    bool // the folder has further entries
	begun   bool // they come after last
	last    string
}

type entry struct {
	key  string // the component; of a folder with a slash
	file string // on disk
}

func (e entry) isDir() bool { return strings.HasSuffix(e.key, "/") }

func newTreeWalk(br *branch, q query) *treeWalk {
	w := &treeWalk{br: br, q: q}
	// Straight to the folder that the prefix names.
	top := &level{dir: br.content(contentObject), more: true}
	if i := strings.LastIndexByte(q.prefix, '/'); i >= 0 {
		top.name = q.prefix[:i+1]
		rel, ok := encodeDir(q.prefix[:i])
		if !ok {
			return w
		}
		top.dir += "/" + rel
	}
	w.stack = []*level{top}
	return w
}

// encodeDir is encodeName for a folder, whose name may be empty ("/x" lies in one).
func encodeDir(name string) (string, bool) {
	if name == "" {
		return "%", true
	}
	return encodeName(name)
}

// next gives the next item, io.EOF after the last.
func (w *treeWalk) next(ctx context.Context) (item, error) {
	for len(w.stack) > 0 {
		l := w.stack[len(w.stack)-1]
		if len(l.entries) == 0 {
			if !l.more {
				w.stack = w.stack[:len(w.stack)-1]
				continue
			}
			if err := w.read(ctx, l); err != nil {
				return item{}, err
			}
			continue
		}
		e := l.entries[0]
		l.entries = l.entries[1:]
		path, key := l.dir+"/"+e.file, l.name+e.key
		switch {
		case !e.isDir():
			return item{key: key, at: place{br: w.br, path: path}}, nil
		case !w.q.fold:
			w.stack = append(w.stack, &level{dir: path, name: key, more: true})
		default:
			some, err := hasObject(ctx, path, true)
			if err != nil {
				return item{}, err
			}
			if some {
				return item{key: key, prefix: true}, nil
			}
		}
	}
	return item{}, io.EOF
}

// read fills a level with its next chunk.
func (w *treeWalk) read(ctx context.Context, l *level) error {
	c := chunk[entry]{limit: w.q.chunk, key: func(e entry) string { return e.key }}
	err := readDir(ctx, l.dir, func(d os.DirEntry) error {
		key, ok := decodeComponent(d.Name())
		if !ok || !d.IsDir() && !d.Type().IsRegular() {
			return nil
		}
		if d.IsDir() {
			if key += "/"; !w.q.descends(l.name + key) {
				return nil
			}
		} else if !w.q.admits(l.name + key) {
			return nil
		}
		if !l.begun || key > l.last {
			c.add(entry{key, d.Name()})
		}
		return nil
	})
	l.entries, l.more = c.done()
	if l.more {
		l.begun, l.last = true, l.entries[len(l.entries)-1].key
	}
	return err
}

// hashedWalk goes through the hashed place of one branch. Its files lie in no useful
// order, so that each chunk costs a look at all of them; they are few.
type hashedWalk struct {
	br    *branch
	q     query
	items []item
	more  bool
}

func newHashedWalk(br *branch, q query) *hashedWalk {
	return &hashedWalk{br: br, q: q, more: br.hashed.Load()}
}

// next gives the next item, io.EOF after the last.
func (w *hashedWalk) next(ctx context.Context) (item, error) {
	if len(w.items) == 0 && w.more {
		if err := w.read(ctx); err != nil {
			return item{}, err
		}
	}
	if len(w.items) == 0 {
		return item{}, io.EOF
	}
	it := w.items[0]
	w.items = w.items[1:]
	return it, nil
}

func (w *hashedWalk) read(ctx context.Context) error {
	c := chunk[item]{limit: w.q.chunk, key: func(it item) string { return it.key }}
	root := w.br.content(contentHashed)
	err := readDir(ctx, root, func(sub os.DirEntry) error {
		dir := root + "/" + sub.Name()
		return readDir(ctx, dir, func(d os.DirEntry) error {
			p := place{br: w.br, path: dir + "/" + d.Name(), hashed: true}
			a, err := p.attr()
			if err != nil || a.name == "" || !d.Type().IsRegular() || !strings.HasPrefix(a.name, w.q.prefix) {
				return nil
			}
			it := item{key: a.name, at: p}
			if w.q.fold {
				if i := strings.IndexByte(a.name[len(w.q.prefix):], '/'); i >= 0 {
					it = item{key: a.name[:len(w.q.prefix)+i+1], prefix: true}
				}
			}
			if w.q.admits(it.key) {
				c.add(it)
			}
			return nil
		})
	})
	w.items, w.more = c.done()
	if w.more {
		w.q.after = w.items[len(w.items)-1].key
	}
	return err
}

// attr reads the attribute without opening the file.
func (p place) attr() (attr, error) {
	return readAttr(func(b []byte) (int, error) { return unix.Lgetxattr(p.path, attrKey, b) })
}

// chunk keeps the lowest of what is added, in order and each key once.
type chunk[T any] struct {
	limit int
	key   func(T) string
	all   []T
	cut   bool // something was left out
}

func (c *chunk[T]) add(v T) {
	if c.all = append(c.all, v); len(c.all) >= 2*c.limit {
		c.shrink()
	}
}

func (c *chunk[T]) shrink() {
	slices.SortFunc(c.all, func(a, b T) int { return strings.Compare(c.key(a), c.key(b)) })
	c.all = slices.CompactFunc(c.all, func(a, b T) bool { return c.key(a) == c.key(b) })
	if len(c.all) > c.limit {
		clear(c.all[c.limit:])
		c.all, c.cut = c.all[:c.limit], true
	}
}

func (c *chunk[T]) done() ([]T, bool) {
	c.shrink()
	return c.all, c.cut
}

// readDir calls f for each entry of a folder, in no order. A folder that isn't there,
// or isn't one, has none.
func readDir(ctx context.Context, dir string, f func(os.DirEntry) error) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ELOOP) {
		return nil
	} else if err != nil {
		return err
	}
	defer d.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if err := f(e); err != nil {
				return err
			}
		}
		if err == io.EOF || errors.Is(err, unix.ENOENT) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

var errFound = errors.New("found")

// hasObject tells whether a folder, or one below it, holds an object. Names only count
// where they matter, in the plain place.
func hasObject(ctx context.Context, dir string, plain bool) (bool, error) {
	var below []string
	err := readDir(ctx, dir, func(d os.DirEntry) error {
		if _, ok := decodeComponent(d.Name()); plain && !ok {
			return nil
		}
		switch path := filepath.Join(dir, d.Name()); {
		case d.IsDir():
			below = append(below, path)
		case d.Type().IsRegular():
			if a, err := (place{path: path}).attr(); err == nil && (a.name == "") == plain {
				return errFound
			} else if err != nil && !errs.IsCode(err, errs.ChecksumMismatch) && !errors.Is(err, unix.ENOENT) {
				return err
			}
		}
		return nil
	})
	if err == errFound {
		return true, nil
	} else if err != nil {
		return false, err
	}
	for _, d := range below {
		if some, err := hasObject(ctx, d, plain); some || err != nil {
			return some, err
		}
	}
	return false, nil
}
