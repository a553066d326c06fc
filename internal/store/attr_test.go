package store

import (
	"encoding/hex"
	"maps"
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
		{version: 1, custom: custom(t, map[string]string{"k": "v", "empty": "", "ü": "\x00"})},
		{version: 1, name: strings.Repeat("n", 1024), custom: custom(t, map[string]string{"k": strings.Repeat("v", MaxAttrs-5)})},
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

func custom(t *testing.T, attrs map[string]string) string {
	t.Helper()
	s, err := encodeCustom(attrs)
	if err != nil {
		t.Fatal(err)
	}
	if got := decodeCustom(s); !maps.Equal(got, attrs) {
		t.Fatalf("%v comes back as %v", attrs, got)
	}
	return s
}

func TestCustom(t *testing.T) {
	if s, err := encodeCustom(nil); s != "" || err != nil || decodeCustom("") != nil {
		t.Errorf("none: %q, %v", s, err)
	}
	if _, err := encodeCustom(map[string]string{"": "v"}); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("no name: %v", err)
	}
	if _, err := encodeCustom(map[string]string{"k": strings.Repeat("v", MaxAttrs-4)}); !errs.IsCode(err, errs.TooLarge) {
		t.Errorf("too long: %v", err)
	}
	const golden = "020200000000000000030000000000000004000000000000000500000000000000" + "0100" + "61" + "01006b" + "02007661" + "01006c" + "0000"
	got := hex.EncodeToString(attr{version: 2, checksum: 3, size: 4, mtime: 5, name: "a", custom: custom(t, map[string]string{"l": "", "k": "va"})}.encode())
	if !strings.HasPrefix(got, golden) || len(got) != len(golden)+8 {
		t.Errorf("got  %s\nwant %s and 4 bytes", got, golden)
	}
	for _, bad := range []string{"\x01\x00b\x00\x00\x01\x00a\x00\x00", "\x01\x00a\x00\x00\x01\x00a\x00\x00", "\x00\x00\x00\x00", "\x01", "\x02\x00a", "\x01\x00a\x05\x00v"} {
		if _, err := decodeAttr((attr{custom: bad}).encode()); !errs.IsCode(err, errs.ChecksumMismatch) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzAttr(f *testing.F) {
	f.Add(attr{}.encode())
	f.Add(attr{version: 1, size: 7, name: "a/b"}.encode())
	f.Add([]byte{attrFormat})
	f.Add(attr{version: 1, name: "a", custom: "\x01\x00k\x01\x00v"}.encode())
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
