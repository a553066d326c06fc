package index

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestBadShards(t *testing.T) {
	good := newArchive(t).add(file("a"), strings.Repeat("x", 700)).open()
	size := func(octal string) []byte {
		return header(t, file("b"), func(b []byte) { copy(b[124:136], octal) })
	}
	binary := func(first byte, rest string) []byte {
		return header(t, file("b"), func(b []byte) {
			clear(b[124:136])
			b[124] = first
			copy(b[136-len(rest):136], rest)
		})
	}
	meta := func(flag byte, body string) []byte {
		h := header(t, file("meta"), func(b []byte) {
			b[156] = flag
			copy(b[124:136], fmt.Sprintf("%011o\x00", len(body)))
		})
		return join(h, pad(body))
	}
	record := func(k, v string) string {
		for n := len(k) + len(v) + 3; ; n++ {
			if s := fmt.Sprintf("%d %s=%s\n", n, k, v); len(s) == n {
				return s
			}
		}
	}
	end := make([]byte, 1024)
	b := header(t, file("b"), nil)
	wrongSum := bytes.Clone(b)
	wrongSum[0] ^= 1
	for _, c := range []struct {
		name string
		tail []byte // after a member that ends at byte 1536
		want string
	}{
		{"garbage", bytes.Repeat([]byte("garbage!"), 64), "at byte 1536: wrong header checksum"},
		{"garbage before the end", join(bytes.Repeat([]byte("garbage!"), 64), end), "at byte 1536: wrong header checksum"},
		{"wrong checksum", join(wrongSum, end), "at byte 1536: wrong header checksum"},
		{"lone zero block", join(zeroBlock[:], b, end), "at byte 2048: data after half of an end marker"},
		{"part of a header", b[:511], "at byte 2047: the shard is truncated"},
		{"part of an end marker", end[:700], "at byte 2236: the shard is truncated"},
		{"no payload", size("00000000001\x00"), "at byte 2048: 1 bytes of payload, and the shard ends after 0"},
		{"payload past the end", join(size("00000004000\x00"), end), "at byte 2048: 2048 bytes of payload, and the shard ends after 1024"},
		{"8 GiB", join(size("77777777777\x00"), end), "8589934591 bytes of payload"},
		{"size no number", join(size("0000000000x\x00"), end), "at byte 1536: malformed header"},
		{"size 8 EiB", join(binary(0x80, "\x7f\xff\xff\xff\xff\xff\xff\xff"), end), "9223372036854775807 bytes of payload"},
		{"size over int64", join(binary(0x80, "\x80\x00\x00\x00\x00\x00\x00\x00"), end), "at byte 1536: malformed header"},
		{"size of 88 bits", join(binary(0x80, strings.Repeat("\x7f", 11)), end), "at byte 1536: malformed header"},
		{"size -1", join(header(t, file("b"), func(b []byte) { copy(b[124:136], strings.Repeat("\xff", 12)) }), end), "at byte 1536: malformed header"},
		{"negative payload of a meta header", join(header(t, file("b"), func(b []byte) { copy(b[124:136], strings.Repeat("\xff", 12)); b[156] = 'x' }), end), "malformed header"},
		{"pax size past the end", join(meta('x', record("size", "99999")), b, end), "99999 bytes of payload"},
		{"pax size 8 EiB", join(meta('x', record("size", "9223372036854775807")), b, end), "9223372036854775807 bytes of payload"},
		{"pax size -1", join(meta('x', record("size", "-1")), b, end), "malformed header"},
		{"pax size no number", join(meta('x', record("size", "1e3")), b, end), "malformed header"},
		{"pax record too long", join(meta('x', "999 path=x\n"), b, end), "malformed header"},
		{"pax record without a number", join(meta('x', "path=x\n"), b, end), "malformed header"},
		{"pax NUL in path", join(meta('x', record("path", "a\x00b")), b, end), "malformed header"},
		{"pax header and nothing", meta('x', record("path", "x")), "an extended header has no entry after it"},
		{"pax header and the marker", join(meta('x', record("path", "x")), end), "an extended header has no entry after it"},
		{"long name and nothing", meta('L', "name\x00"), "an extended header has no entry after it"},
		{"pax header over 1 MiB", join(meta('x', record("SHEAF.x", strings.Repeat("y", 1<<20))), b, end), "an extended header is longer than 1 MiB"},
		{"name over 1 MiB", join(meta('L', strings.Repeat("y", 1<<20+1)), b, end), "an extended header is longer than 1 MiB"},
		{"pax header of 8 GiB", join(header(t, file("m"), func(b []byte) { b[156] = 'x'; copy(b[124:136], "77777777777\x00") }), end), "truncated"},
		{"global path", join(meta('g', record("path", "x")), b, end), "a global header gives names or sizes"},
		{"global size", join(meta('g', record("size", "3")), b, end), "a global header gives names or sizes"},
		{"sparse of star", join(header(t, file("b"), func(b []byte) { b[156] = 'S' }), end), "at byte 1536: malformed header"},
		{"sparse map of 2^62 pieces", join(meta('x', record("GNU.sparse.major", "1")+record("GNU.sparse.minor", "0")),
			header(t, file("b"), func(b []byte) { copy(b[124:136], "00000001000\x00") }), pad("4611686018427387904\n"), end), "malformed header"},
	} {
		t.Run(c.name, func(t *testing.T) {
			x, err := buildBytes(join(good, c.tail))
			if err == nil {
				t.Fatalf("an index of %d members", x.Len())
			}
			wantBad(t, err, c.want)
		})
	}
}

func TestNotATar(t *testing.T) {
	var zipped bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	if _, err := io.CopyN(gz, rand.NewChaCha8([32]byte{}), 5000); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ data, want string }{
		{zipped.String(), "at byte 0: the shard is compressed by gzip"},
		{"PK\x03\x04" + strings.Repeat("z", 600), "a zip archive"},
		{"\x28\xb5\x2f\xfd tiny", "compressed by zstd"},
		{"BZh9", "compressed by bzip2"},
		{"x", "doesn't begin with a whole tar header"},
		{strings.Repeat("x", 5000), "doesn't begin with a whole tar header"},
		{string(zeroBlock[:100]), "doesn't begin with a whole tar header"},
	} {
		_, err := buildBytes([]byte(c.data))
		wantBad(t, err, c.want)
	}
	// What a member is called says nothing about the shard.
	for _, f := range foreign {
		if b := newArchive(t).add(&tar.Header{Typeflag: tar.TypeReg, Name: "x"}, "x").bytes(); len(b) > 0 {
			copy(b, f.magic)
			seal(b)
			mustBuild(t, b)
		}
	}
}

// Cut at each byte: a shard is whole only where a header could follow, or at
// half of the end marker.
func TestTruncated(t *testing.T) {
	full := mixed(t).bytes()
	whole := mustBuild(t, full)
	var ends []int64 // of whole entries, with their padding
	tr := entries{b: full}
	for {
		end, ok := tr.next()
		if !ok {
			break
		}
		ends = append(ends, end)
	}
	marker := ends[len(ends)-1]
	if int64(len(full)) != marker+1024 {
		t.Fatalf("%d bytes, the marker at %d", len(full), marker)
	}
	fine := map[int64]bool{0: true, marker + 512: true, marker + 1024: true}
	for _, end := range ends {
		fine[end] = true
	}
	for cut := range int64(len(full)) + 1 {
		x, err := buildBytes(full[:cut])
		if !fine[cut] {
			if err == nil {
				t.Fatalf("cut at %d: an index of %d members", cut, x.Len())
			}
			wantBad(t, err, "at byte ")
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		checkInvariants(t, x, cut)
		for m := range x.All() {
			if w, _ := whole.Lookup(m.Name); w != m {
				t.Fatalf("cut at %d: %v, want %v", cut, m, w)
			}
		}
	}
}

// entries walks an archive by the size field of each raw header alone.
type entries struct {
	b  []byte
	at int64
}

// next gives the end of the next entry with its padding, meta headers included.
func (e *entries) next() (int64, bool) {
	for {
		h := e.b[e.at:]
		if h[0] == 0 {
			return 0, false
		}
		var size int64
		if _, err := fmt.Sscanf(string(h[124:135]), "%o", &size); err != nil {
			return 0, false
		}
		e.at += blockSize + (size+blockSize-1)/blockSize*blockSize
		if flag := h[156]; flag != 'x' && flag != 'L' && flag != 'K' {
			return e.at, true
		}
	}
}

func TestFlippedBits(t *testing.T) {
	full := mixed(t).bytes()
	r := rand.New(rand.NewPCG(8, 9))
	for range 5_000 {
		b := bytes.Clone(full)
		for range 1 + r.IntN(3) {
			at := r.IntN(len(b))
			b[at] ^= byte(1 + r.IntN(255))
			if r.IntN(2) == 0 {
				// Lets the change pass the checksum if it hit a header.
				if h := b[at/blockSize*blockSize:]; h[0] != 0 {
					seal(h)
				}
			}
		}
		if x, err := buildBytes(b); err != nil {
			wantBad(t, err, "at byte ")
		} else {
			checkInvariants(t, x, int64(len(b)))
		}
	}
}
