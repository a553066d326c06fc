package peer

import "time"

// ObjectInfo describes an object.
type ObjectInfo struct {
	Name     string
	Size     int64     // bytes
	Version  uint64    // bigger with every write of the same name
	Checksum uint64    // xxh3-64 (seed 0) of the whole payload
	ModTime  time.Time // when the cluster took it
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
	StartAfter string // only names greater than it, in byte order; a page's Token
	Limit      int    // entries a page, objects and prefixes together; 0: MaxListPage
}

// MaxListPage is the most entries in one page of a listing.
const MaxListPage = 10_000

// ListPage is one page of a listing, sorted by name in byte order.
type ListPage struct {
	Objects  []ObjectInfo
	Prefixes []string // with their trailing delimiter
	Token    string   // StartAfter of the next page; "" when this was the last
}

// BucketInfo describes a bucket.
type BucketInfo struct {
	Name     string
	Provider string
	Created  time.Time
	Epoch    uint64 // of its record; grows with each change
	BucketProps
}
