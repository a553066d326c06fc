package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// DefaultPage is the Limit of a listing that gives none.
const DefaultPage = 10_000

// ListOptions narrows a listing.
type ListOptions struct {
	Prefix     string // only names that begin with it; any bytes
	Delimiter  string // "" or "/": names that have it after Prefix are folded into one prefix
	StartAfter string // only names and prefixes greater than it, in byte order; a page's Token
	Limit      int    // entries a page, objects and prefixes together; 0: DefaultPage
}

// Page is a part of a listing. Objects and Prefixes are each sorted in byte order.
type Page struct {
	Objects  []Info
	Prefixes []string // with their trailing delimiter
	Token    string   // StartAfter of the next page; "" when this was the last
}

// walker gives items in the order of their keys, and io.EOF.
type walker interface {
	next(ctx context.Context) (item, error)
}

var _, _ walker = (*treeWalk)(nil), (*hashedWalk)(nil)

// stream is a walker with its next item in view.
type stream struct {
	walker
	head item
	open bool
}

func (st *stream) advance(ctx context.Context) error {
	var err error
	st.head, err = st.next(ctx)
	st.open = err == nil
	if err == io.EOF {
		err = nil
	}
	return err
}

// List gives one page of a bucket's objects. It isn't a snapshot: an object that is
// written or deleted while it runs may be in the page or not. What isn't an object, or
// has a corrupt attribute, is left out. Memory is bounded by Limit and the depth of
// folders; time by the folders that hold the page, since a folder has no order on disk.
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
	// An object that moved to a place already passed would be missed.
	const tries = 4
	var page Page
	for range tries {
		before := b.moves.Load()
		if page, err = b.list(ctx, o); err != nil || b.moves.Load() == before {
			break
		}
	}
	return page, fail(op, bucket, "", err)
}

func (b *bucket) list(ctx context.Context, o ListOptions) (Page, error) {
	streams, err := b.streams(ctx, query{prefix: o.Prefix, after: o.StartAfter, fold: o.Delimiter != "", chunk: min(o.Limit, DefaultPage) + 1})
	if err != nil {
		return Page{}, err
	}
	var page Page
	last := ""
	for {
		if err := ctx.Err(); err != nil {
			return Page{}, err
		}
		it, several, err := pop(ctx, streams)
		if err == io.EOF {
			return page, nil
		} else if err != nil {
			return Page{}, err
		}
		var info Info
		if !it.prefix {
			ok := false
			if info, ok, err = b.lookUp(it, several); err != nil {
				return Page{}, err
			} else if !ok {
				continue
			}
		}
		if len(page.Objects)+len(page.Prefixes) == o.Limit {
			page.Token = last
			return page, nil
		}
		if last = it.key; it.prefix {
			page.Prefixes = append(page.Prefixes, it.key)
		} else {
			page.Objects = append(page.Objects, info)
		}
	}
}

// streams starts a walker for every place where objects can be. The hashed ones read
// first: objects move from there to the plain places, not back.
func (b *bucket) streams(ctx context.Context, q query) ([]*stream, error) {
	var all []*stream
	for _, br := range b.branches {
		all = append(all, &stream{walker: newHashedWalk(br, q)})
	}
	for _, br := range b.branches {
		all = append(all, &stream{walker: newTreeWalk(br, q)})
	}
	for _, st := range all {
		if err := st.advance(ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pop takes the lowest item, from every stream that has it.
func pop(ctx context.Context, streams []*stream) (low item, several bool, err error) {
	found := false
	for _, st := range streams {
		if st.open && (!found || st.head.key < low.key) {
			low, found = st.head, true
		}
	}
	if !found {
		return item{}, false, io.EOF
	}
	n := 0
	for _, st := range streams {
		if st.open && st.head.key == low.key {
			n++
			if err := st.advance(ctx); err != nil {
				return item{}, false, err
			}
		}
	}
	return low, n > 1, nil
}

// lookUp describes a listed object; it is false for one that is gone or isn't sound.
func (b *bucket) lookUp(it item, several bool) (Info, bool, error) {
	if !several {
		a, err := it.at.attr()
		if err == nil {
			err = it.at.belongs(a, it.key)
		}
		if err == nil {
			return a.info(it.key), true, nil
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			return Info{}, false, b.unsound(it, err)
		}
	}
	// In several places, or moved meanwhile: the order of preference decides.
	info, err := b.stat(it.key)
	switch {
	case err == nil:
		return info, true, nil
	case errs.IsCode(err, errs.NotFound):
		return Info{}, false, nil
	}
	return Info{}, false, b.unsound(it, err)
}

// unsound leaves a file that is no object out of the listing; other errors stay.
func (b *bucket) unsound(it item, err error) error {
	if errs.IsCode(err, errs.ChecksumMismatch) {
		b.s.log.Debug("left out of a listing", "bucket", b.name, "file", it.at.path, "err", err)
		return nil
	}
	return err
}
