package peer

import "time"

// ObjectInfo describes an object.
type ObjectInfo struct {
	Name     string
	Size     int64             // bytes
	Version  uint64            // bigger with every write of the same name
	Checksum uint64            // xxh3-64 (seed 0) of the whole payload
	ModTime  time.Time         // when the cluster took it
	Attrs    map[string]string // what its writer said of it (names.CheckAttrs)
}

// ObjectName says which object.
type ObjectName struct{ Bucket, Object string }

// VersionInfo is what a node knows of a name: an object or the tombstone of one.
// Version 0 is nothing.
type VersionInfo struct {
	Version  uint64
	Deleted  bool
	Size     int64
	Checksum uint64
}

// MemberInfo describes a member of a shard.
type MemberInfo struct {
	Name    string // archpath
	Size    int64  // bytes
	ModTime time.Time
}

// GetOptions narrows a Get. The range has the meaning it has in a batch entry:
// (0,0) is the whole, Length −1 reaches to the end, a Start above 0 needs a Length.
type GetOptions struct {
	ArchPath      string // a member of the shard, with the range counting inside it
	Start, Length int64  // bytes
}

// ListOptions narrows a listing.
type ListOptions struct {
	Prefix     string // only names that begin with it
	Delimiter  string // "" or "/": names that have it after Prefix are folded into one prefix
	StartAfter string // only names greater than it, in byte order
	Limit      int    // entries a page, objects and prefixes together; 0: MaxListPage
	Token      string // a page's Token, opaque: go on where that page ended
	Tombstones bool   // ListAt only: what was deleted as well
}

// MaxListPage is the most entries in one page of a listing, MaxToken the most bytes
// of a page's token.
const (
	MaxListPage = 10_000
	MaxToken    = 4096
)

// ListPage is one page of a listing, sorted by name in byte order.
type ListPage struct {
	Objects  []ObjectInfo
	Prefixes []string     // with their trailing delimiter
	Deleted  []ObjectInfo // tombstones, where they were asked for: name, version and time
	Token    string       // of the next page; "" when this was the last

	// Where tombstones were asked for: prefixes that hold some, be there objects or not.
	DeletedPrefixes []string
}

// BucketInfo describes a bucket.
type BucketInfo struct {
	Name     string
	Provider string
	Created  time.Time
	Epoch    uint64 // of its record; grows with each change
	BucketProps
}
