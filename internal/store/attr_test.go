package store

import (
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"sheaf/internal/errs"
)

func TestAttr(t *testing.T) {
	for _, a := range []attr{
		{},
		{version: math.MaxUint64, checksum: 1, size: math.MaxInt64, mtime: -1, name: "n"},
		{version: 1, name: strings.Repeat("n", 1024)},
	} {
		b := a.encode()
		if got, err := decodeAttr(b); err != nil || got != a {
			t.Errorf("%+v comes back as %+v, %v", a, got, err)
		}
		for i := range b {
			if _, err := decodeAttr(b[:i]); !errs.IsCode(err, errs.ChecksumMismatch) {
				t.Errorf("cut off after %d: %v", i, err)
			}
			b[i] ^= 0x10
			if _, err := decodeAttr(b); !errs.IsCode(err, errs.ChecksumMismatch) {
				t.Errorf("byte %d flipped: %v", i, err)
			}
			b[i] ^= 0x10
		}
	}
	// The bytes are on disks: they never change within a format.
	const golden = "010200000000000000030000000000000004000000000000000500000000000000" + "612f62"
	got := hex.EncodeToString(attr{version: 2, checksum: 3, size: 4, mtime: 5, name: "a/b"}.encode())
	if !strings.HasPrefix(got, golden) || len(got) != len(golden)+8 {
		t.Errorf("got  %s\nwant %s and 4 bytes", got, golden)
	}
	if _, err := decodeAttr(attr{size: -1}.encode()); !errs.IsCode(err, errs.ChecksumMismatch) {
		t.Errorf("a negative size: %v", err)
	}
}

func FuzzAttr(f *testing.F) {
	f.Add(attr{}.encode())
	f.Add(attr{version: 1, size: 7, name: "a/b"}.encode())
	f.Add([]byte{attrFormat})
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := decodeAttr(b)
		if err != nil {
			if !errs.IsCode(err, errs.ChecksumMismatch) {
				t.Fatal(err)
			}
			return
		}
		if got := string(a.encode()); got != string(b) {
			t.Fatalf("%x comes back as %x", b, got)
		}
	})
}
