// Package index says where a member lies inside a shard.
//
//	shard on disk ──Build──▶ Index ──Lookup──▶ (offset, size) ──one pread──▶ the member's bytes
//	 headers only              │ ▲
//	               MarshalBinary Parse
//	                           ▼ │
//	                    file kept beside the shard (%ix)
//
// A shard is an archive; today a plain tar in any of its dialects (v7, ustar,
// GNU, PAX). It is read once, header by header, and payloads are jumped over.
// From then on a member costs one binary search and one read.
//
// Shards are hostile input. Invariants of every Index, whether built or parsed:
//
//   - each name passes names.CheckMember, and no two are equal;
//   - each range [Offset, Offset+Size) lies inside the shard;
//   - an Index never changes, so any number of goroutines may use one.
//
// What is in an Index: regular files whose payload is one range. A leading "./"
// is cut off ("./a/b" is the member "a/b"). When one name comes twice the later
// one counts, as when a tar is extracted. Everything else is left out and
// counted in Skipped: directories, links, devices, sparse files, names that
// would leave the place they are extracted to. A shard that isn't a whole,
// well-formed archive has no Index at all; Build then fails with errs.BadShard
// and says where.
//
// Only members replace members: a link or directory of the same name doesn't.
// One name may be both a member and a parent ("a" and "a/b"): tar can't extract
// that, but a look-up by name can serve both, so both are kept.
//
// In memory an Index is the very bytes of its kept form, 36 bytes a member
// beside its name; encoding.go has the layout.
package index

import (
	"iter"
	"time"
)

// Member is a file inside a shard: the bytes [Offset, Offset+Size) of it.
type Member struct {
	Name    string
	Offset  int64 // of the payload, from the shard's first byte
	Size    int64
	ModTime time.Time // UTC
}

// Format is a kind of archive. The numbers are in kept indexes: only ever added.
type Format uint32

// Tar is a plain tar archive of any dialect.
const Tar Format = 1

// Skipped counts what a shard holds beside its members.
type Skipped struct {
	Directories int64
	Links       int64 // symbolic and hard
	Devices     int64 // character and block devices, pipes
	Sparse      int64 // files with holes: their payload isn't one range
	BadNames    int64 // absolute, with "..", too long, not UTF-8, ...
	Shadowed    int64 // members that a later one of the same name replaces
	Other       int64 // entries of any other type: volume labels, dump directories, ...
}

const skippedFields = 7

// Total is the number of entries left out.
func (s Skipped) Total() int64 {
	return s.Directories + s.Links + s.Devices + s.Sparse + s.BadNames + s.Shadowed + s.Other
}

// Index is the members of one version of one shard. Its zero value isn't valid:
// Build or Parse makes one.
type Index struct {
	data  string // the kept form, whole; a string so that names are views of it
	n     int
	order int // where the archive order begins in data
	names int // where the names begin in data
}

// Len is the number of members.
func (x *Index) Len() int { return x.n }

// Format is the kind of archive that the shard is.
func (x *Index) Format() Format { return Format(u32(x.data, atFormat)) }

// Version is the shard's version that was given to Build.
func (x *Index) Version() uint64 { return u64(x.data, atVersion) }

// ShardSize is the shard's size in bytes.
func (x *Index) ShardSize() int64 { return int64(u64(x.data, atShardSize)) }

// Matches tells whether the index is one of the shard of this version and size.
// A kept index that doesn't match is stale: it is built anew.
func (x *Index) Matches(version uint64, size int64) bool {
	return x.Version() == version && x.ShardSize() == size
}

// Bytes is the memory that the index takes, for those who cache indexes by size.
func (x *Index) Bytes() int { return len(x.data) }

// Skipped tells what was left out.
func (x *Index) Skipped() Skipped {
	var s Skipped
	for i, p := range s.fields() {
		*p = int64(u64(x.data, atSkipped+8*i))
	}
	return s
}

// fields lists the counts in the order in which they are kept.
func (s *Skipped) fields() [skippedFields]*int64 {
	return [...]*int64{&s.Directories, &s.Links, &s.Devices, &s.Sparse, &s.BadNames, &s.Shadowed, &s.Other}
}

// Lookup finds a member by its exact name: O(log n), nothing allocated.
func (x *Index) Lookup(name string) (Member, bool) {
	i := x.Search(name)
	if i == x.n || x.name(i) != name {
		return Member{}, false
	}
	m := x.At(i)
	// The caller's copy: one that outlives the index shouldn't hold on to it.
	m.Name = name
	return m, true
}

// Search gives the first i for which At(i).Name >= name, or Len(). A listing by
// directory skips what lies under "d/" by searching for "d0" ('0' follows '/').
func (x *Index) Search(name string) int {
	lo, hi := 0, x.n
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if x.name(mid) < name {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// At is the i-th member in the order of names (by bytes), 0 <= i < Len(). Its
// name is a view of the index and keeps all of it in memory: a copy that is
// kept for long should be a strings.Clone.
func (x *Index) At(i int) Member {
	r := x.row(i)
	return Member{
		Name:    x.name(i),
		Offset:  int64(u64(x.data, r)),
		Size:    int64(u64(x.data, r+8)),
		ModTime: time.Unix(int64(u64(x.data, r+16)), int64(u32(x.data, r+24))).UTC(),
	}
}

// Sorted yields all members in the order of their names, compared by bytes.
func (x *Index) Sorted() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for i := range x.n {
			if !yield(x.At(i)) {
				return
			}
		}
	}
}

// All yields all members in the order in which they lie in the shard.
func (x *Index) All() iter.Seq[Member] {
	return func(yield func(Member) bool) {
		for i := range x.n {
			if !yield(x.At(int(u32(x.data, x.order+4*i)))) {
				return
			}
		}
	}
}

func (x *Index) row(i int) int { return headerSize + rowSize*i }

func (x *Index) name(i int) string {
	start := uint32(0)
	if i > 0 {
		start = u32(x.data, x.row(i-1)+28)
	}
	end := u32(x.data, x.row(i)+28)
	return x.data[x.names+int(start) : x.names+int(end)]
}
