package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"sheaf/internal/errs"
)

// DefaultPage is the Limit of a listing that gives none.
const DefaultPage = 10_000

// ListOptions narrows a listing.
type ListOptions struct {
	Prefix     string // only names that begin with it; any bytes
	Delimiter  string // "" or "/": names that have it after Prefix are folded into one prefix
	StartAfter string // only names and prefixes greater than it, in byte order; a page's Token
	Limit      int    // lines a page, of every kind together; 0: DefaultPage
	Deleted    bool   // tombstones too
}

// Page is a part of a listing, each part sorted in byte order.
type Page struct {
	Objects  []Info
	Prefixes []string // with their trailing delimiter; each holds an object
	Token    string   // StartAfter of the next page; "" when this was the last

	Incomplete bool // a mountpath isn't in use, what lies there is left out

	// With ListOptions.Deleted only.
	Deleted         []Record // tombstones
	DeletedPrefixes []string // prefixes that hold tombstones, be there objects or not
}

// List gives one page of a bucket's objects from the catalogs: what a page costs depends
// on its lines, not on the bucket. It isn't a snapshot: an object that is written or
// deleted while it runs may be in the page or not. What isn't an object, or has a corrupt
// attribute, is left out. Memory is bounded by Limit.
func (s *Store) List(ctx context.Context, bucket string, o ListOptions) (Page, error) {
	const op = "list"
	b, err := s.begin(bucket, nil)
	if err != nil {
		return Page{}, fail(op, bucket, "", err)
	}
	defer s.calls.Done()
	if o.Delimiter != "" && o.Delimiter != "/" {
		return Page{}, fail(op, bucket, "", errs.New(errs.InvalidArgument, "", fmt.Sprintf("a delimiter %q, only \"/\" is known", o.Delimiter)))
	}
	if o.Limit < 0 {
		return Page{}, fail(op, bucket, "", errs.New(errs.InvalidArgument, "", fmt.Sprintf("a limit of %d", o.Limit)))
	}
	if o.Limit == 0 {
		o.Limit = DefaultPage
	}
	page, err := b.list(ctx, o)
	return page, fail(op, bucket, "", err)
}

func (b *bucket) list(ctx context.Context, o ListOptions) (page Page, err error) {
	n, last := 0, ""
	missing, err := b.walk(ctx, query{prefix: o.Prefix, after: o.StartAfter, fold: o.Delimiter != "", dead: o.Deleted}, func(r row) bool {
		if n == o.Limit {
			page.Token = last
			return false
		}
		n++
		switch last = r.key; {
		case !r.prefix && r.rec.Deleted:
			page.Deleted = append(page.Deleted, r.rec)
		case !r.prefix:
			page.Objects = append(page.Objects, r.rec.Info)
		default:
			if r.live {
				page.Prefixes = append(page.Prefixes, r.key)
			}
			if r.dead {
				page.DeletedPrefixes = append(page.DeletedPrefixes, r.key)
			}
		}
		return true
	})
	page.Incomplete = missing != nil
	return page, err
}

// walk goes through the catalogs of a bucket together until f, which may not call them, is
// false. Those of mountpaths that aren't in use are missing, which missing then says.
func (b *bucket) walk(ctx context.Context, q query, f func(row) bool) (missing, err error) {
	m, missing, err := b.open(q)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := m.close(); err == nil {
			err = e
		}
	}()
	for i := 0; ; i++ {
		if i%1024 == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		r, err := m.next()
		if err == io.EOF {
			return missing, nil
		} else if err != nil {
			return nil, err
		}
		if !f(r) {
			return missing, nil
		}
	}
}

// open opens the catalogs of a bucket, each as it is at that moment. Should an object go
// from one to another meanwhile, which may hide it, it opens them again.
func (b *bucket) open(q query) (m *mergeWalk, missing, err error) {
	const tries = 10
	for i := range tries {
		before := b.moves.Load()
		if m, missing, err = b.openOnce(q); err != nil || b.moves.Load() == before || i == tries-1 {
			break
		}
		if err := m.close(); err != nil {
			return nil, nil, err
		}
	}
	return m, missing, err
}

func (b *bucket) openOnce(q query) (_ *mergeWalk, missing, err error) {
	m := &mergeWalk{}
	for _, br := range b.branches {
		if down := br.mount.unavailable(); down != nil {
			missing = down
			continue
		}
		w, err := newCatalogWalk(br.mount.catalog.Load(), b.name, q)
		if err == nil {
			err = m.add(&watchedWalk{w, br.mount})
		}
		if err != nil {
			return nil, nil, errors.Join(br.mount.watch(err), m.close())
		}
	}
	return m, missing, nil
}

// watchedWalk takes a mountpath out of use whose catalog can't be read.
type watchedWalk struct {
	*catalogWalk
	m *mountpath
}

var _ walker = (*watchedWalk)(nil)

func (w *watchedWalk) next() (row, error) {
	r, err := w.catalogWalk.next()
	if err != io.EOF {
		err = w.m.watch(err)
	}
	return r, err
}
