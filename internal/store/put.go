package store

import (
	"context"
	"io"
	"maps"

	"sheaf/internal/errs"
)

// PutOptions says what the caller knows about the bytes, and what goes with them.
type PutOptions struct {
	Size     int64             // bytes; -1: unknown. Fewer or more than that is an InvalidArgument
	Checksum *uint64           // the expected xxh3-64 (seed 0); nil: unknown
	Attrs    map[string]string // custom attributes
	If       Condition
	Relaxed  bool // nothing is synced: a power cut may lose the object, or leave the older one
}

// Put writes an object from r and returns when it is on disk. If the object there
// already has the checksum, the size and the attributes that o carries, Put ends at once
// and may leave r unread. r should fail when ctx ends: a Read that blocks is waited for.
func (s *Store) Put(ctx context.Context, bucket, name string, r io.Reader, o PutOptions) (Info, error) {
	const op = "put"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return Info{}, fail(op, bucket, name, err)
	}
	if err := o.If.validate(); err != nil {
		s.calls.Done()
		return Info{}, fail(op, bucket, name, err)
	}
	if have, ok, err := b.same(name, o); ok || err != nil {
		s.calls.Done()
		return have, fail(op, bucket, name, err)
	}
	t, err := b.stage(ctx, name, r, StageOptions{Size: o.Size, Checksum: o.Checksum, Attrs: o.Attrs, Relaxed: o.Relaxed})
	if err != nil {
		s.calls.Done()
		return Info{}, fail(op, bucket, name, err)
	}
	info, err := t.commit(0, o.If)
	return info, fail(op, bucket, name, err)
}

// same tells, before a byte is read, how a Put will end: with the object that is there,
// or with a condition that isn't met. What it leaves open the commit decides.
func (b *bucket) same(name string, o PutOptions) (Info, bool, error) {
	if o.Checksum == nil && o.If == (Condition{}) || o.Size < -1 {
		return Info{}, false, nil
	}
	have, err := b.stat(name)
	switch {
	case err != nil && !errs.IsCode(err, errs.NotFound):
		return Info{}, false, nil
	case err != nil && o.If.Version != 0, err == nil && o.If != (Condition{}):
		k := known{rec: Record{Info: have}}
		if err == nil {
			k.at = make([]place, 1)
		}
		if err := o.If.check(k); err != nil {
			return Info{}, false, err
		}
	}
	if err != nil || o.Checksum == nil || have.Checksum != *o.Checksum || o.Size >= 0 && o.Size != have.Size || !maps.Equal(o.Attrs, have.Attrs) {
		return Info{}, false, nil
	}
	if !o.Relaxed {
		err = b.settle(name)
	}
	return have, err == nil, err
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
