package index

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// What a shard may have, checked before memory is taken. Below these limits
// memory is in proportion to the shard: an archive spends 512 bytes and more on
// each member besides a name that its header can't hold.
const (
	MaxMembers = 1 << 24
	MaxNames   = 1 << 30 // bytes of all names together
)

const op = "index"

type limits struct {
	members int
	names   int
}

// formats is how each kind of archive is recognized by its first block (all of
// it when it is shorter) and read. The first that matches is taken.
var formats = [...]struct {
	format Format
	match  func(head []byte) bool
	walk   func(*window, *builder) error
}{
	{Tar, looksTar, walkTar},
}

// foreign is what a file that no format matches most likely is: it makes the
// error worth reading.
var foreign = [...]struct{ magic, what string }{
	{"PK\x03\x04", "a zip archive"},
	{"PK\x05\x06", "a zip archive"},
	{"\x1f\x8b", "compressed by gzip"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd"},
	{"\x04\x22\x4d\x18", "compressed by lz4"},
	{"\xfd7zXZ\x00", "compressed by xz"},
	{"BZh", "compressed by bzip2"},
}

// Build reads the headers of the shard r of size bytes, front to back, and
// returns its index. version is kept with it, for Matches. Payloads are jumped
// over; neighbouring headers of small members are read together. Besides the
// members it holds one extended header at a time: up to 1 MiB, and some times
// that once it is taken apart.
//
// It fails with errs.BadShard, naming the byte, when the shard isn't a whole
// and well-formed archive or is over a limit; with the code of ctx's error when
// that ends; and with the code of the error of r when reading fails. The caller
// adds bucket and object.
//
// A shard without an end-of-archive marker is fine if it ends where a header
// could follow, as for GNU tar; so is one of zero bytes. What follows the marker
// counts for nothing. A global PAX header that gives names or sizes is refused, since
// each reader of archives takes it differently.
func Build(ctx context.Context, r io.ReaderAt, size int64, version uint64) (*Index, error) {
	return build(ctx, r, size, version, limits{members: MaxMembers, names: MaxNames})
}

func build(ctx context.Context, r io.ReaderAt, size int64, version uint64, lim limits) (*Index, error) {
	if size < 0 {
		return nil, errs.New(errs.InvalidArgument, op, fmt.Sprintf("a shard of %d bytes", size))
	}
	w := newWindow(r, size, ctx.Err)
	head, err := w.peek(blockSize)
	if err != nil {
		return nil, err
	}
	for _, f := range formats {
		if !f.match(head) {
			continue
		}
		b := builder{lim: lim}
		if err := f.walk(w, &b); err != nil {
			return nil, err
		}
		if err := ctx.Err(); err != nil {
			return nil, errs.Wrap(errs.CodeOf(err), op, err)
		}
		return b.finish(f.format, size, version), nil
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return nil, bad(0, "the shard is %s, not a plain tar", f.what)
		}
	}
	return nil, bad(0, "the shard doesn't begin with a whole tar header whose checksum is right")
}

// bad is the error for a shard that is wrong at a byte. It never quotes the
// archive: its text is hostile too.
func bad(at int64, format string, args ...any) *errs.Error {
	return errs.New(errs.BadShard, op, fmt.Sprintf("at byte %d: ", at)+fmt.Sprintf(format, args...))
}

// row is a member while the shard is read; its name lies in the builder's blob.
type row struct {
	offset, size int64
	sec          int64
	nsec         uint32
	nameAt       uint32
	nameLen      uint32
}

func (r *row) name(blob []byte) []byte { return blob[r.nameAt : r.nameAt+r.nameLen] }

// builder gathers what a walk over an archive finds.
type builder struct {
	lim     limits
	rows    []row // in the order of offsets
	blob    []byte
	skipped Skipped
}

// add takes a member, or counts it as left out if its name won't do. The caller
// has made sure that the range lies inside the shard and after those added before.
func (b *builder) add(name string, offset, size int64, mod time.Time) error {
	name = clean(name)
	if names.CheckMember(name) != nil {
		b.skipped.BadNames++
		return nil
	}
	if len(b.rows) >= b.lim.members {
		return bad(offset, "more than %d members", b.lim.members)
	}
	if len(name) > b.lim.names-len(b.blob) {
		return bad(offset, "the names of all members have more than %d bytes", b.lim.names)
	}
	b.rows = append(b.rows, row{
		offset: offset, size: size, sec: mod.Unix(), nsec: uint32(mod.Nanosecond()),
		nameAt: uint32(len(b.blob)), nameLen: uint32(len(name)),
	})
	b.blob = append(b.blob, name...)
	return nil
}

// clean cuts off what `tar cf x.tar .` puts before every name. Anything else
// that a name may need ("a/../b") is a reason to leave it out.
func clean(name string) string {
	for strings.HasPrefix(name, "./") {
		name = strings.TrimLeft(name[2:], "/")
	}
	return name
}

func (b *builder) finish(f Format, size int64, version uint64) *Index {
	sorted := make([]uint32, len(b.rows))
	for i := range sorted {
		sorted[i] = uint32(i)
	}
	slices.SortFunc(sorted, func(i, j uint32) int {
		return cmp.Or(bytes.Compare(b.rows[i].name(b.blob), b.rows[j].name(b.blob)), cmp.Compare(i, j))
	})
	// Of equal names the last is the one that lies last in the shard.
	kept := sorted[:0]
	for k, i := range sorted {
		if k+1 < len(sorted) && bytes.Equal(b.rows[i].name(b.blob), b.rows[sorted[k+1]].name(b.blob)) {
			b.skipped.Shadowed++
			continue
		}
		kept = append(kept, i)
	}
	const gone = ^uint32(0)
	order := make([]uint32, len(b.rows))
	for i := range order {
		order[i] = gone
	}
	for k, i := range kept {
		order[i] = uint32(k)
	}
	order = slices.DeleteFunc(order, func(k uint32) bool { return k == gone })
	return encode(version, size, f, b.skipped, b.rows, b.blob, kept, order)
}
