package store

import (
	"errors"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// query is what a walk through a catalog asks for.
type query struct {
	prefix string
	after  string // only keys greater than it
	fold   bool   // the delimiter is "/"
	dead   bool   // tombstones too
}

// foldKey gives the key under which a name is listed: the name, or the prefix that it
// folds into.
func (q query) foldKey(name string) (key string, folded bool) {
	if q.fold {
		if i := strings.IndexByte(name[len(q.prefix):], '/'); i >= 0 {
			return name[:len(q.prefix)+i+1], true
		}
	}
	return name, false
}

// row is one line of a walk: a record, or a folded prefix.
type row struct {
	key        string // the name, or the prefix with its delimiter
	rec        Record // of a name
	prefix     bool
	live, dead bool // of a prefix: it holds objects, tombstones
}

// join adds what another place says of the same key; of a record the newest counts. A
// name is never a folded prefix too: it has no delimiter after the query's prefix.
func (r *row) join(o row) {
	r.live, r.dead = r.live || o.live, r.dead || o.dead
	if !r.prefix && o.rec.Version > r.rec.Version {
		r.rec = o.rec
	}
}

// walker gives rows in order, and io.EOF.
type walker interface {
	next() (row, error)
	close() error
}

var _, _ walker = (*catalogWalk)(nil), (*mergeWalk)(nil)

// catalogWalk goes through a bucket in one catalog. From newCatalogWalk to close it keeps
// the catalog from being closed.
type catalogWalk struct {
	c *catalog
	mergeWalk
}

func newCatalogWalk(c *catalog, bucket string, q query) (*catalogWalk, error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	w := &catalogWalk{c: c}
	spaces := []byte{spaceLive}
	if q.dead {
		spaces = append(spaces, spaceTomb)
	}
	var first *spaceWalk // the others see what it sees, so that no name is between two spaces
	for _, space := range spaces {
		s, err := newSpaceWalk(c, space, bucket, q, first)
		if err == nil {
			first = s
			err = w.add(s)
		}
		if err != nil {
			w.close()
			return nil, err
		}
	}
	return w, nil
}

func (w *catalogWalk) close() error {
	defer w.c.use.RUnlock()
	return w.mergeWalk.close()
}

// spaceWalk goes through the live records or the tombstones of a bucket. A folded prefix
// costs one seek, however much it holds.
type spaceWalk struct {
	c     *catalog
	q     query
	space byte
	base  []byte // what the bucket's keys begin with
	it    *pebble.Iterator
	seek  []byte // where to go on; nil: at the next key
}

var _ walker = (*spaceWalk)(nil)

func newSpaceWalk(c *catalog, space byte, bucket string, q query, like *spaceWalk) (_ *spaceWalk, err error) {
	base, _ := bucketBounds(space, bucket)
	low := append(base[:len(base):len(base)], q.prefix...)
	o := &pebble.IterOptions{LowerBound: low, UpperBound: pastPrefix(low)}
	var it *pebble.Iterator
	if like == nil {
		it, err = c.db.NewIter(o)
	} else {
		it, err = like.it.Clone(pebble.CloneOptions{IterOptions: o})
	}
	if err != nil {
		return nil, c.readFault(err)
	}
	w := &spaceWalk{c: c, q: q, space: space, base: base, it: it, seek: low}
	if q.after >= q.prefix {
		w.seek = append(append(base[:len(base):len(base)], q.after...), 0)
	}
	return w, nil
}

func (w *spaceWalk) next() (row, error) {
	for {
		var ok bool
		if w.seek != nil {
			ok = w.it.SeekGE(w.seek)
			w.seek = nil
		} else {
			ok = w.it.Next()
		}
		if !ok {
			if err := w.it.Error(); err != nil {
				return row{}, w.c.readFault(err)
			}
			return row{}, io.EOF
		}
		name := string(w.it.Key()[len(w.base):])
		key, folded := w.q.foldKey(name)
		if !folded {
			rec, err := w.record(name)
			return row{key: name, rec: rec}, err
		}
		w.seek = pastPrefix(append(w.base[:len(w.base):len(w.base)], key...))
		if key > w.q.after {
			return row{key: key, prefix: true, live: w.space == spaceLive, dead: w.space == spaceTomb}, nil
		}
	}
}

func (w *spaceWalk) record(name string) (r Record, err error) {
	v, err := w.it.ValueAndErr()
	if err != nil {
		return r, w.c.readFault(err)
	}
	if w.space == spaceTomb {
		r, err = decodeTomb(name, v)
	} else {
		r, _, err = decodeLive(name, v)
	}
	return r, w.c.valueFault(err)
}

func (w *spaceWalk) close() error {
	if err := w.it.Close(); err != nil {
		return w.c.readFault(err)
	}
	return nil
}

// mergeWalk merges walkers; it closes them.
type mergeWalk struct{ all []*stream }

// stream is a walker with its next row in view.
type stream struct {
	walker
	head row
	open bool
}

func (st *stream) advance() error {
	var err error
	st.head, err = st.next()
	st.open = err == nil
	if err == io.EOF {
		err = nil
	}
	return err
}

// add adds a walker, which is closed with m even when add fails.
func (m *mergeWalk) add(w walker) error {
	st := &stream{walker: w}
	m.all = append(m.all, st)
	return st.advance()
}

// next takes the lowest row, from every walker that has it.
func (m *mergeWalk) next() (low row, err error) {
	found := false
	for _, st := range m.all {
		if st.open && (!found || st.head.key < low.key) {
			low, found = st.head, true
		}
	}
	if !found {
		return row{}, io.EOF
	}
	for _, st := range m.all {
		if st.open && st.head.key == low.key {
			low.join(st.head)
			if err := st.advance(); err != nil {
				return row{}, err
			}
		}
	}
	return low, nil
}

func (m *mergeWalk) close() error {
	var all []error
	for _, st := range m.all {
		all = append(all, st.close())
	}
	return errors.Join(all...)
}
