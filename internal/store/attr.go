package store

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// attrKey is the one extended attribute of an object's file.
const attrKey = "user.sheaf"

// The attribute, little-endian: format (1 byte), version, xxh3-64 of the payload,
// size, time in nanoseconds (8 bytes each), the true name (only in the hashed place),
// and the low 4 bytes of the xxh3-64 of all that. Without a name it fits into an ext4
// inode of 256 bytes and costs no block.
const (
	attrFormat = 1
	attrFixed  = 1 + 4*8
	attrSum    = 4
	attrMax    = attrFixed + names.MaxObject + attrSum
)

// attr is what the attribute says.
type attr struct {
	version  uint64
	checksum uint64
	size     int64
	mtime    int64  // Unix nanoseconds
	name     string // "" in the plain place, where the path says it
}

func (a attr) info(name string) Info {
	return Info{Name: name, Size: a.size, Version: a.version, Checksum: a.checksum, ModTime: time.Unix(0, a.mtime)}
}

func (a attr) encode() []byte {
	b := make([]byte, 0, attrFixed+len(a.name)+attrSum)
	b = append(b, attrFormat)
	b = binary.LittleEndian.AppendUint64(b, a.version)
	b = binary.LittleEndian.AppendUint64(b, a.checksum)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.mtime))
	b = append(b, a.name...)
	return binary.LittleEndian.AppendUint32(b, uint32(xxh3.Hash(b)))
}

func decodeAttr(b []byte) (attr, error) {
	corrupt := func(why string) (attr, error) {
		return attr{}, errs.New(errs.ChecksumMismatch, "", "the attribute "+attrKey+" is corrupt: "+why)
	}
	switch {
	case len(b) < attrFixed+attrSum || len(b) > attrMax:
		return corrupt(fmt.Sprintf("%d bytes", len(b)))
	case b[0] != attrFormat:
		return corrupt(fmt.Sprintf("format %d is unknown", b[0]))
	}
	body := b[:len(b)-attrSum]
	if binary.LittleEndian.Uint32(b[len(body):]) != uint32(xxh3.Hash(body)) {
		return corrupt("its own checksum doesn't match")
	}
	a := attr{
		version:  binary.LittleEndian.Uint64(body[1:]),
		checksum: binary.LittleEndian.Uint64(body[9:]),
		size:     int64(binary.LittleEndian.Uint64(body[17:])),
		mtime:    int64(binary.LittleEndian.Uint64(body[25:])),
		name:     string(body[attrFixed:]),
	}
	if a.size < 0 {
		return corrupt("a negative size")
	}
	return a, nil
}

// readAttr gets and decodes the attribute through get, which is a bound Fgetxattr
// or Lgetxattr.
func readAttr(get func(dest []byte) (int, error)) (attr, error) {
	var buf [attrMax]byte
	n, err := get(buf[:])
	switch err {
	case nil:
		return decodeAttr(buf[:n])
	case unix.ENODATA:
		return attr{}, errs.New(errs.ChecksumMismatch, "", "the file has no attribute "+attrKey+", it wasn't put there by a store")
	case unix.ERANGE:
		return attr{}, errs.New(errs.ChecksumMismatch, "", "the attribute "+attrKey+" is corrupt: it is too long")
	}
	return attr{}, err
}
