package store

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
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
// inode of 256 bytes and costs no block. An object with attributes of its own has the
// second format: the length of the name (2 bytes) before it, and the attributes after
// it, each key and value with its length (2 bytes) before it, in the order of the keys.
const (
	attrFormat = 1
	attrCustom = 2 // the format with custom attributes
	attrFixed  = 1 + 4*8
	attrLen    = 2
	attrSum    = 4
	attrMax    = attrFixed + attrLen + names.MaxObject + MaxAttrs + attrSum
)

// MaxAttrs bounds the custom attributes of an object: their bytes, and 4 for each.
// With the longest name that still fits into the one block that ext4 has for a file's
// attributes.
const MaxAttrs = 2048

// attr is what the attribute says.
type attr struct {
	version  uint64
	checksum uint64
	size     int64
	mtime    int64  // Unix nanoseconds
	name     string // "" in the plain place, where the path says it
	custom   string // the custom attributes, encoded
}

func (a attr) info(name string) Info {
	return Info{Name: name, Size: a.size, Version: a.version, Checksum: a.checksum, ModTime: time.Unix(0, a.mtime), Attrs: decodeCustom(a.custom)}
}

// encodeCustom encodes custom attributes, which must fit.
func encodeCustom(attrs map[string]string) (string, error) {
	var b []byte
	for _, k := range slices.Sorted(maps.Keys(attrs)) {
		v := attrs[k]
		if k == "" {
			return "", errs.New(errs.InvalidArgument, "", "an attribute without a name")
		}
		if len(b)+2*attrLen+len(k)+len(v) > MaxAttrs {
			return "", errs.New(errs.TooLarge, "", fmt.Sprintf("the attributes have more than %d bytes", MaxAttrs))
		}
		b = binary.LittleEndian.AppendUint16(b, uint16(len(k)))
		b = append(b, k...)
		b = binary.LittleEndian.AppendUint16(b, uint16(len(v)))
		b = append(b, v...)
	}
	return string(b), nil
}

// decodeCustom is the reverse, nil for none. What eachCustom refuses it cuts off.
func decodeCustom(s string) map[string]string {
	if s == "" {
		return nil
	}
	attrs := map[string]string{}
	eachCustom(s, func(k, v string) { attrs[k] = v })
	return attrs
}

// eachCustom gives the attributes in their order; it is false for bytes that
// encodeCustom doesn't make.
func eachCustom(s string, f func(k, v string)) bool {
	text := func() (t string, ok bool) {
		if len(s) < attrLen {
			return "", false
		}
		n := int(s[0]) | int(s[1])<<8
		if s = s[attrLen:]; len(s) < n {
			return "", false
		}
		t, s = s[:n], s[n:]
		return t, true
	}
	for last := ""; s != ""; {
		k, ok := text()
		if !ok || k <= last {
			return false
		}
		v, ok := text()
		if !ok {
			return false
		}
		f(k, v)
		last = k
	}
	return true
}

func (a attr) encode() []byte {
	b := make([]byte, 0, attrFixed+attrLen+len(a.name)+len(a.custom)+attrSum)
	if b = append(b, attrFormat); a.custom != "" {
		b[0] = attrCustom
	}
	b = binary.LittleEndian.AppendUint64(b, a.version)
	b = binary.LittleEndian.AppendUint64(b, a.checksum)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.size))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.mtime))
	if a.custom != "" {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(a.name)))
	}
	b = append(append(b, a.name...), a.custom...)
	return binary.LittleEndian.AppendUint32(b, uint32(xxh3.Hash(b)))
}

func decodeAttr(b []byte) (attr, error) {
	corrupt := func(why string) (attr, error) {
		return attr{}, errs.New(errs.ChecksumMismatch, "", "the attribute "+attrKey+" is corrupt: "+why)
	}
	switch {
	case len(b) < attrFixed+attrSum || len(b) > attrMax:
		return corrupt(fmt.Sprintf("%d bytes", len(b)))
	case b[0] != attrFormat && b[0] != attrCustom:
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
	if b[0] == attrCustom {
		if len(a.name) < attrLen {
			return corrupt("it is cut off")
		}
		n := int(a.name[0]) | int(a.name[1])<<8
		rest := a.name[attrLen:]
		if n > len(rest) {
			return corrupt("a name that is longer than it")
		}
		a.name, a.custom = rest[:n], rest[n:]
		if a.custom == "" || !eachCustom(a.custom, func(_, _ string) {}) {
			return corrupt("its custom attributes")
		}
	}
	switch {
	case a.size < 0:
		return corrupt("a negative size")
	case len(a.name) > names.MaxObject || len(a.custom) > MaxAttrs:
		return corrupt("it is too long")
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
