package index

import (
	"encoding"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// The kept form of an index. All numbers are little endian.
//
//	at  size
//	 0     8  magic "sheafidx"
//	 8     4  version of this layout
//	12     4  Format of the shard
//	16     8  the shard's version
//	24     8  the shard's size
//	32     4  n, the number of members
//	36     4  bytes of all names
//	40  7×8   Skipped, field by field
//	96  n×32  a row for each member, in the order of names:
//	            offset 8, size 8, mtime in seconds 8 and nanoseconds 4,
//	            end of its name among the names 4 (it begins where the one before ends)
//	    n×4   the rows' numbers in the order of offsets
//	          the names, one after the other
//	       8  xxh3-64 of all the above
//
// There is one way only to write an index: what Parse accepts, MarshalBinary
// gives back byte for byte.
const (
	magic  = "sheafidx"
	layout = 1

	atLayout    = 8
	atFormat    = 12
	atVersion   = 16
	atShardSize = 24
	atMembers   = 32
	atNames     = 36
	atSkipped   = 40
	headerSize  = 96
	rowSize     = 32
	orderSize   = 4
	sumSize     = 8
)

// ErrRebuild is in the chain of every error of Parse: the kept index is damaged
// or of another layout, says nothing about the shard, and is to be built anew.
var ErrRebuild = errors.New("the kept index must be built anew")

var (
	_ encoding.BinaryMarshaler = (*Index)(nil)
	_ encoding.BinaryAppender  = (*Index)(nil)
)

// MarshalBinary gives the form to keep beside the shard. The error is always nil.
func (x *Index) MarshalBinary() ([]byte, error) { return []byte(x.data), nil }

// AppendBinary is MarshalBinary into a buffer. The error is always nil.
func (x *Index) AppendBinary(b []byte) ([]byte, error) { return append(b, x.data...), nil }

// encode writes rows, whose names lie in blob. sorted lists the rows to keep in
// the order of names; order lists positions in sorted in the order of offsets.
func encode(version uint64, size int64, f Format, skipped Skipped, rows []row, blob []byte, sorted, order []uint32) *Index {
	total := 0
	for _, i := range sorted {
		total += int(rows[i].nameLen)
	}
	var b strings.Builder
	b.Grow(headerSize + (rowSize+orderSize)*len(sorted) + total + sumSize)

	le := binary.LittleEndian
	p := make([]byte, 0, headerSize)
	p = append(p, magic...)
	p = le.AppendUint32(p, layout)
	p = le.AppendUint32(p, uint32(f))
	p = le.AppendUint64(p, version)
	p = le.AppendUint64(p, uint64(size))
	p = le.AppendUint32(p, uint32(len(sorted)))
	p = le.AppendUint32(p, uint32(total))
	for _, c := range skipped.fields() {
		p = le.AppendUint64(p, uint64(*c))
	}
	b.Write(p)

	end := uint32(0)
	for _, i := range sorted {
		r := &rows[i]
		end += r.nameLen
		p = le.AppendUint64(p[:0], uint64(r.offset))
		p = le.AppendUint64(p, uint64(r.size))
		p = le.AppendUint64(p, uint64(r.sec))
		p = le.AppendUint32(p, r.nsec)
		p = le.AppendUint32(p, end)
		b.Write(p)
	}
	for _, i := range order {
		b.Write(le.AppendUint32(p[:0], i))
	}
	for _, i := range sorted {
		b.Write(rows[i].name(blob))
	}
	b.Write(le.AppendUint64(p[:0], xxh3.HashString(b.String())))
	return view(b.String(), len(sorted))
}

func view(data string, n int) *Index {
	order := headerSize + rowSize*n
	return &Index{data: data, n: n, order: order, names: order + orderSize*n}
}

// Parse reads what MarshalBinary gave. b isn't kept. It allocates len(b) bytes,
// and only once b's checksum is right; then it checks every invariant of an
// Index, since a checksum keeps out accidents but not intent. Every error has
// ErrRebuild in its chain.
func Parse(b []byte) (*Index, error) {
	if len(b) < headerSize+sumSize {
		return nil, unusable("%d bytes are no index", len(b))
	}
	if string(b[:len(magic)]) != magic {
		return nil, unusable("not an index")
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[atLayout:]); v != layout {
		return nil, unusable("layout %d, this build reads %d", v, layout)
	}
	if f := Format(le.Uint32(b[atFormat:])); f != Tar {
		return nil, unusable("unknown shard format %d", f)
	}
	n, blob := int64(le.Uint32(b[atMembers:])), int64(le.Uint32(b[atNames:]))
	if n > MaxMembers || blob > MaxNames {
		return nil, unusable("%d members with %d bytes of names are over the limit", n, blob)
	}
	if want := headerSize + (rowSize+orderSize)*n + blob + sumSize; int64(len(b)) != want {
		return nil, unusable("%d bytes where its header says %d", len(b), want)
	}
	body := b[:len(b)-sumSize]
	if xxh3.Hash(body) != le.Uint64(b[len(body):]) {
		return nil, unusable("wrong checksum")
	}
	x := view(string(b), int(n))
	if err := x.check(); err != nil {
		return nil, err
	}
	return x, nil
}

// check proves the invariants of an index of the right length. It looks at
// everything, so that nothing read later needs to be doubted.
func (x *Index) check() error {
	size := x.ShardSize()
	if size < 0 {
		return unusable("a shard of %d bytes", size)
	}
	// The sum can't overflow: each part is compared with what the others left.
	left := uint64(size)
	for i := range skippedFields {
		c := u64(x.data, atSkipped+8*i)
		if c > left {
			return unusable("more entries left out than the shard has bytes")
		}
		left -= c
	}
	start, before := uint32(0), ""
	limit := uint32(len(x.data) - sumSize - x.names)
	for i := range x.n {
		r := x.row(i)
		off, length := u64(x.data, r), u64(x.data, r+8)
		if off > uint64(size) || length > uint64(size)-off {
			return unusable("row %d: %d bytes from %d aren't in a shard of %d", i, length, off, size)
		}
		if nsec := u32(x.data, r+24); nsec >= 1e9 {
			return unusable("row %d: %d nanoseconds", i, nsec)
		}
		end := u32(x.data, r+28)
		if end < start || end > limit {
			return unusable("row %d: its name ends at %d of %d", i, end, limit)
		}
		name := x.data[x.names+int(start) : x.names+int(end)]
		if err := names.CheckMember(name); err != nil {
			return unusable("row %d: %v", i, err)
		}
		if i > 0 && name <= before {
			return unusable("row %d isn't in the order of names", i)
		}
		start, before = end, name
	}
	if start != limit {
		return unusable("%d bytes of names belong to nobody", limit-start)
	}
	// Rising (offset, row) pairs are all different, so n of them are a
	// permutation: no table is needed to see that.
	var last, lastOff uint64
	for i := range x.n {
		k := uint64(u32(x.data, x.order+4*i))
		if k >= uint64(x.n) {
			return unusable("the order of offsets names row %d of %d", k, x.n)
		}
		off := u64(x.data, x.row(int(k)))
		if i > 0 && (off < lastOff || off == lastOff && k <= last) {
			return unusable("row %d isn't in the order of offsets", k)
		}
		last, lastOff = k, off
	}
	return nil
}

func unusable(format string, args ...any) error {
	return &errs.Error{Code: errs.BadShard, Op: op, Msg: "kept index: " + fmt.Sprintf(format, args...), Err: ErrRebuild}
}

// Both are one load each: the compiler joins them.

func u32(s string, at int) uint32 {
	s = s[at : at+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func u64(s string, at int) uint64 {
	s = s[at : at+8]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
