package store

import (
	"context"
	"fmt"
	"io"
	"time"

	"sheaf/internal/errs"
)

// PutOptions says what the caller knows about the bytes.
type PutOptions struct {
	Size     int64   // bytes; -1: unknown. Fewer or more than that is an InvalidArgument
	Checksum *uint64 // the expected xxh3-64 (seed 0); nil: unknown
}

// Put writes an object from r and returns when it is on disk. If the object there
// already has the checksum, and the size, that o carries, Put ends at once and may leave
// r unread. r should fail when ctx ends: a Read that blocks is waited for.
func (s *Store) Put(ctx context.Context, bucket, name string, r io.Reader, o PutOptions) (Info, error) {
	const op = "put"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return Info{}, fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	if o.Size < -1 {
		return Info{}, fail(op, bucket, name, errs.New(errs.InvalidArgument, "", fmt.Sprintf("a size of %d", o.Size)))
	}
	if o.Checksum != nil {
		if have, err := s.Stat(bucket, name); err == nil && have.Checksum == *o.Checksum && (o.Size < 0 || o.Size == have.Size) {
			return have, nil
		}
	}
	info, err := s.put(ctx, b, name, r, o)
	return info, fail(op, bucket, name, err)
}

func (s *Store) put(ctx context.Context, b *bucket, name string, r io.Reader, o PutOptions) (Info, error) {
	br := b.ranked(name)[0]
	w, err := b.newWork(br)
	if err != nil {
		return Info{}, err
	}
	defer w.discard()
	if err := w.fill(ctx, r, o.Size); err != nil {
		return Info{}, err
	}
	if o.Checksum != nil && *o.Checksum != w.attr.checksum {
		return Info{}, errs.New(errs.ChecksumMismatch, "", fmt.Sprintf("the bytes have the checksum %016x, announced was %016x", w.attr.checksum, *o.Checksum))
	}
	// The version is a guess until the commit, which seldom has to correct it: the long
	// sync of the payload happens outside every lock.
	to, ok := br.plain(name)
	if !ok {
		to = br.long(name)
	}
	if err := w.seal(uint64(time.Now().UnixNano()), to.attrName(name)); err != nil {
		return Info{}, err
	}
	if err := ctx.Err(); err != nil {
		return Info{}, err
	}
	if err := b.commit(name, w, to); err != nil {
		return Info{}, err
	}
	return w.attr.info(name), nil
}

// attrName is what the attribute of an object at p says about its name.
func (p place) attrName(name string) string {
	if p.hashed {
		return name
	}
	return ""
}

// newWork makes a work file in the bucket, unless that is gone.
func (b *bucket) newWork(br *branch) (*work, error) {
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return nil, err
	}
	return b.s.newWork(br)
}
