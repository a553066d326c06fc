package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"sheaf/internal/errs"
)

// StageOptions says what the caller knows about the bytes, and what goes with them.
type StageOptions struct {
	Size     int64             // bytes; -1: unknown. Fewer or more than that is an InvalidArgument
	Checksum *uint64           // the expected xxh3-64 (seed 0); nil: unknown
	Attrs    map[string]string // custom attributes
	ModTime  time.Time         // zero: now
	Version  uint64            // the version that the commit will probably ask for, which spares it a sync; 0: the store's guess
	Relaxed  bool              // nothing is synced: a power cut may lose the object, or leave the older one
	// Progress, when set, is told after each piece how many bytes of the work file can be
	// read. The file is the store's: who wants to go on reading it duplicates its descriptor.
	Progress func(f *os.File, size int64)
}

// Staged is an object whose bytes are on disk and which has no name yet. It belongs to one
// goroutine, which ends it with Commit or Discard; Close of the store waits for that.
type Staged struct {
	b       *bucket
	name    string
	w       *work
	to      place
	relaxed bool
	ended   bool
}

// Stage takes an object from r into a work file. r should fail when ctx ends: a Read that
// blocks is waited for.
func (s *Store) Stage(ctx context.Context, bucket, name string, r io.Reader, o StageOptions) (*Staged, error) {
	const op = "stage"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return nil, fail(op, bucket, name, err)
	}
	t, err := b.stage(ctx, name, r, o)
	if err != nil {
		s.calls.Done()
		return nil, fail(op, bucket, name, err)
	}
	return t, nil
}

// stage is Stage for a caller that has begun its call, and that ends it if stage fails.
func (b *bucket) stage(ctx context.Context, name string, r io.Reader, o StageOptions) (*Staged, error) {
	if o.Size < -1 {
		return nil, errs.New(errs.InvalidArgument, "", fmt.Sprintf("a size of %d", o.Size))
	}
	custom, err := encodeCustom(o.Attrs)
	if err != nil {
		return nil, err
	}
	br, err := b.home(name)
	if err != nil {
		return nil, err
	}
	if err := br.mount.watch(br.mount.catalog.Load().room()); err != nil {
		return nil, err
	}
	w, err := b.newWork(br)
	if err != nil {
		return nil, err
	}
	t := &Staged{b: b, name: name, w: w, relaxed: o.Relaxed}
	if err := t.take(ctx, r, o, custom); err != nil {
		w.discard()
		return nil, err
	}
	return t, nil
}

func (t *Staged) take(ctx context.Context, r io.Reader, o StageOptions, custom string) error {
	w := t.w
	if err := w.fill(ctx, r, o.Size, o.Progress); err != nil {
		return err
	}
	if o.Checksum != nil && *o.Checksum != w.attr.checksum {
		return errs.New(errs.ChecksumMismatch, "", fmt.Sprintf("the bytes have the checksum %016x, announced was %016x", w.attr.checksum, *o.Checksum))
	}
	if o.ModTime.IsZero() {
		o.ModTime = t.b.s.now()
	}
	// The version is a guess until the commit, which seldom has to correct it: the long
	// sync of the payload happens outside every lock.
	if o.Version == 0 {
		o.Version = uint64(t.b.s.now().UnixNano())
	}
	w.attr.mtime, w.attr.custom = o.ModTime.UnixNano(), custom
	var ok bool
	if t.to, ok = w.br.plain(t.name); !ok {
		t.to = w.br.long(t.name)
	}
	if err := w.seal(o.Version, t.to.attrName(t.name), t.relaxed); err != nil {
		return err
	}
	return ctx.Err()
}

// Info describes what was staged; its Version is the one that Commit(0) will give it
// unless a newer one is there.
func (t *Staged) Info() Info { return t.w.attr.info(t.name) }

// Payload reads the bytes that were staged, until Commit or Discard.
func (t *Staged) Payload() io.ReadSeeker { return io.NewSectionReader(t.w.f, 0, t.w.attr.size) }

// SetAttrs replaces the custom attributes before the commit, which then syncs once more.
func (t *Staged) SetAttrs(attrs map[string]string) error {
	custom, err := encodeCustom(attrs)
	if err != nil {
		return fail("stage", t.b.name, t.name, err)
	}
	t.w.attr.custom = custom
	t.w.attr.version = 0 // what is written in the file isn't what the commit wants
	return nil
}

// Commit gives the object its name. With a version of 0 the store picks one above every
// version of the name that it knows; with another that isn't above them, what is there
// stays, and its description is returned without an error, and may be a deletion's. When
// Commit returns, the object is on disk, unless it was staged as relaxed.
func (t *Staged) Commit(version uint64, c Condition) (Info, error) {
	info, err := t.commit(version, c)
	return info, fail("commit", t.b.name, t.name, err)
}

func (t *Staged) commit(version uint64, c Condition) (Info, error) {
	if t.ended {
		return Info{}, errs.New(errs.Internal, "", "the staged object is committed or discarded already")
	}
	defer t.Discard()
	if err := c.validate(); err != nil {
		return Info{}, err
	}
	return t.b.commit(t, version, c)
}

// Discard removes the work file; after Commit it does nothing.
func (t *Staged) Discard() {
	if t.ended {
		return
	}
	t.ended = true
	t.w.discard()
	t.b.s.calls.Done()
}
