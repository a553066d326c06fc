package backend

import (
	"context"
	"io"
	"time"

	"sheaf/internal/errs"
)

// Object describes an object at the backend.
type Object struct {
	Name    string
	Size    int64  // bytes
	Version string // changes with the content: the ETag of S3, time and size of a file
	ModTime time.Time
	Attrs   map[string]string // custom attributes; not in listings
}

// PutOptions are what goes along with a payload.
type PutOptions struct {
	Size   int64 // bytes; −1 when not known
	Attrs  map[string]string
	Absent bool // only if there is no such object: AlreadyExists
}

// Page is a part of a listing, in the order of the names' bytes.
type Page struct {
	Objects  []Object
	Prefixes []string // names cut behind the delimiter
	Next     string   // where the next page begins: its After; "" when this is the last
}

// ListOptions say which part.
type ListOptions struct {
	Prefix    string
	Delimiter string // "" or "/"
	After     string // only names greater than this one
	Limit     int    // names in the page, at most MaxPage; 0 for that
}

// MaxPage is the most names of one page: S3's own limit.
const MaxPage = 1000

// store is one kind of backend. Names are whole and checked; errors are as the
// kind's own library gives them, fault gives them their code.
type store interface {
	head(ctx context.Context, name string) (Object, error)
	// get opens length bytes from off (−1: to the end) of the version, "" for any.
	get(ctx context.Context, name string, off, length int64, version string) (Object, io.ReadCloser, error)
	put(ctx context.Context, name string, r io.Reader, o PutOptions) (Object, error)
	delete(ctx context.Context, name string) error
	list(ctx context.Context, o ListOptions) (Page, error)
	fault(err error) *errs.Error
	close() error
}

// Bucket is an open backend. Safe for concurrent use.
type Bucket struct {
	o   Options
	loc Location
	s   store
}

// Open prepares a backend; nothing is asked of it yet. InvalidArgument for a URL that
// can't be one, PermissionDenied for a folder that isn't allowed here.
func Open(ctx context.Context, url string, o Options) (*Bucket, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, errs.Wrap(errs.InvalidArgument, "backend", err)
	}
	loc, err := Parse(url)
	if err != nil {
		return nil, err
	}
	b := &Bucket{o: o, loc: loc}
	if loc.Scheme == "file" {
		b.s, err = openFolder(loc, o)
	} else {
		b.s, err = openS3(ctx, loc, o)
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Location is where the backend is.
func (b *Bucket) Location() Location { return b.loc }

// Check tells whether the backend can be reached and listed.
func (b *Bucket) Check(ctx context.Context) error {
	_, err := b.List(ctx, ListOptions{Limit: 1})
	return err
}

// Head describes an object.
func (b *Bucket) Head(ctx context.Context, name string) (Object, error) {
	obj, err := b.s.head(ctx, name)
	return obj, b.fail(ctx, "head", err)
}

// Get opens length bytes from off, −1 for all that follow. With a version it gives that
// one or VersionMismatch. A connection that breaks is taken up again where it stopped.
func (b *Bucket) Get(ctx context.Context, name string, off, length int64, version string) (*Reader, error) {
	r := &Reader{b: b, ctx: ctx, name: name, off: off, length: length, version: version}
	if err := r.open(); err != nil {
		return nil, b.fail(ctx, "get", err)
	}
	return r, nil
}

// Put writes an object; acknowledged means that the backend has it.
func (b *Bucket) Put(ctx context.Context, name string, r io.Reader, o PutOptions) (Object, error) {
	obj, err := b.s.put(ctx, name, r, o)
	return obj, b.fail(ctx, "put", err)
}

// Delete removes an object. NotFound when it isn't there.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	return b.fail(ctx, "delete", b.s.delete(ctx, name))
}

// List gives one page of the names.
func (b *Bucket) List(ctx context.Context, o ListOptions) (Page, error) {
	if o.Limit <= 0 || o.Limit > MaxPage {
		o.Limit = MaxPage
	}
	p, err := b.s.list(ctx, o)
	return p, b.fail(ctx, "list", err)
}

// Close lets go of the backend's connections. Readers that are open fail.
func (b *Bucket) Close() error { return b.s.close() }

// fail gives an error its code and says where it comes from.
func (b *Bucket) fail(ctx context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	if e := ctx.Err(); e != nil {
		return errs.Wrap(errs.CodeOf(e), op+" at backend", e)
	}
	e := b.s.fault(err)
	if e.Op == "" {
		e.Op = op
	}
	if e.Msg == "" {
		e.Msg = b.loc.String()
	} else {
		e.Msg = b.loc.String() + ": " + e.Msg
	}
	return e
}
