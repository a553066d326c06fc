package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"
)

// Keys of a catalog: a space, the bucket, NUL, the name. Buckets have no NUL, so that
// names of one bucket lie together in byte order. Live records and tombstones have a
// space each: a listing doesn't pass the tombstones, and those who want them don't pass
// the objects.
const (
	spaceMeta byte = 'm'
	spaceLive byte = 'o'
	spaceTomb byte = 't'
)

// Where an object's file lies on its mountpath.
const (
	placePlain  uint8 = 0
	placeHashed uint8 = 1
)

var (
	keyOwner = []byte{spaceMeta, 'o'} // the mountpath's identity
	keyClean = []byte{spaceMeta, 'c'} // there after a close: the mark, and the number of live records
)

func liveKey(bucket, name string) []byte { return catalogKey(spaceLive, bucket, name) }
func tombKey(bucket, name string) []byte { return catalogKey(spaceTomb, bucket, name) }

func catalogKey(space byte, bucket, name string) []byte {
	k := make([]byte, 0, 2+len(bucket)+len(name))
	k = append(k, space)
	k = append(k, bucket...)
	k = append(k, 0)
	return append(k, name...)
}

// bucketBounds gives the first key of a bucket and the first after it.
func bucketBounds(space byte, bucket string) (low, high []byte) {
	low = catalogKey(space, bucket, "")
	high = bytes.Clone(low)
	high[len(high)-1] = 1
	return low, high
}

func keyBucket(key []byte) (string, error) {
	i := bytes.IndexByte(key, 0)
	if i < 1 {
		return "", fmt.Errorf("%w: a key of no bucket", errDamaged)
	}
	return string(key[1:i]), nil
}

// Values: a format, the version, the time; of live records also place, size, checksum and
// the custom attributes as the file's attribute has them. Integers are varints, the
// checksum is little-endian.
const valueFormat = 1

func encodeLive(r Record, place uint8) []byte {
	custom, err := encodeCustom(r.Attrs)
	if err != nil {
		// They came out of a file's attribute or passed Stage: they fit.
		custom = ""
	}
	b := make([]byte, 0, 40+len(custom))
	b = append(b, valueFormat)
	b = binary.AppendUvarint(b, r.Version)
	b = binary.AppendVarint(b, r.ModTime.UnixNano())
	b = append(b, place)
	b = binary.AppendUvarint(b, uint64(r.Size))
	b = binary.LittleEndian.AppendUint64(b, r.Checksum)
	return append(b, custom...)
}

func decodeLive(name string, b []byte) (r Record, place uint8, err error) {
	r, b, err = decodeHead(name, b)
	if err != nil {
		return r, 0, err
	}
	bad := func() (Record, uint8, error) {
		return Record{}, 0, fmt.Errorf("%w: the record of %q is cut off", errDamaged, name)
	}
	if len(b) < 1 {
		return bad()
	}
	place, b = b[0], b[1:]
	size, n := binary.Uvarint(b)
	if n <= 0 || len(b) < n+8 {
		return bad()
	}
	r.Size = int64(size)
	r.Checksum = binary.LittleEndian.Uint64(b[n:])
	r.Attrs = decodeCustom(string(b[n+8:]))
	return r, place, nil
}

func encodeTomb(r Record) []byte {
	b := binary.AppendUvarint([]byte{valueFormat}, r.Version)
	return binary.AppendVarint(b, r.ModTime.UnixNano())
}

func decodeTomb(name string, b []byte) (Record, error) {
	r, _, err := decodeHead(name, b)
	r.Deleted = true
	return r, err
}

func decodeHead(name string, b []byte) (r Record, rest []byte, err error) {
	if len(b) < 1 || b[0] != valueFormat {
		return r, nil, fmt.Errorf("%w: the record of %q has an unknown format", errDamaged, name)
	}
	version, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return r, nil, fmt.Errorf("%w: the record of %q is cut off", errDamaged, name)
	}
	b = b[1+n:]
	mtime, n := binary.Varint(b)
	if n <= 0 {
		return r, nil, fmt.Errorf("%w: the record of %q is cut off", errDamaged, name)
	}
	return Record{Info: Info{Name: name, Version: version, ModTime: time.Unix(0, mtime)}}, b[n:], nil
}

// pastPrefix gives the first key that doesn't begin with k, which isn't all 0xff: it
// begins with a space.
func pastPrefix(k []byte) []byte {
	k = bytes.Clone(k)
	for i := len(k) - 1; ; i-- {
		if k[i] < 0xff {
			k[i]++
			return k[:i+1]
		}
	}
}
