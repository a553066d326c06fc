package index

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

var mtime = time.Unix(1_700_000_000, 0)

// file is the header of a regular file.
func file(name string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: mtime}
}

// archive is a tar under construction.
type archive struct {
	t   testing.TB
	buf bytes.Buffer
	w   *tar.Writer
}

func newArchive(t testing.TB) *archive {
	a := &archive{t: t}
	a.w = tar.NewWriter(&a.buf)
	return a
}

func (a *archive) add(h *tar.Header, body string) *archive {
	a.t.Helper()
	h.Size = int64(len(body))
	if err := a.w.WriteHeader(h); err != nil {
		a.t.Fatal(err)
	}
	if _, err := io.WriteString(a.w, body); err != nil {
		a.t.Fatal(err)
	}
	return a
}

// open ends the last entry and returns the archive without an end marker.
func (a *archive) open() []byte {
	a.t.Helper()
	if err := a.w.Flush(); err != nil {
		a.t.Fatal(err)
	}
	return bytes.Clone(a.buf.Bytes())
}

func (a *archive) bytes() []byte {
	a.t.Helper()
	if err := a.w.Close(); err != nil {
		a.t.Fatal(err)
	}
	return bytes.Clone(a.buf.Bytes())
}

// header is one raw header block, changed by edit and given a right checksum.
func header(t testing.TB, h *tar.Header, edit func(b []byte)) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := tar.NewWriter(&buf).WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	b := buf.Bytes()[:blockSize]
	if edit != nil {
		edit(b)
	}
	seal(b)
	return b
}

func seal(b []byte) {
	copy(b[sumAt:sumEnd], "        ")
	sum := 0
	for _, c := range b[:blockSize] {
		sum += int(c)
	}
	copy(b[sumAt:sumEnd], fmt.Sprintf("%06o\x00 ", sum))
}

func pad(b string) []byte {
	return append([]byte(b), make([]byte, (blockSize-len(b)%blockSize)%blockSize)...)
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

func buildBytes(b []byte) (*Index, error) {
	return Build(context.Background(), bytes.NewReader(b), int64(len(b)), 7)
}

func mustBuild(t testing.TB, b []byte) *Index {
	t.Helper()
	x, err := buildBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, x, int64(len(b)))
	return x
}

// checkInvariants proves what the package promises of every Index.
func checkInvariants(t testing.TB, x *Index, size int64) {
	t.Helper()
	if x.ShardSize() != size {
		t.Fatalf("shard size %d, want %d", x.ShardSize(), size)
	}
	last, count := "", 0
	for m := range x.Sorted() {
		if err := names.CheckMember(m.Name); err != nil {
			t.Fatal(err)
		}
		if count > 0 && m.Name <= last {
			t.Fatalf("%q after %q", m.Name, last)
		}
		if m.Offset < 0 || m.Size < 0 || m.Offset > size || m.Size > size-m.Offset {
			t.Fatalf("%q: [%d, +%d) of %d", m.Name, m.Offset, m.Size, size)
		}
		if got, ok := x.Lookup(m.Name); !ok || got != m {
			t.Fatalf("Lookup(%q) = %v %v, want %v", m.Name, got, ok, m)
		}
		last = m.Name
		count++
	}
	var end int64
	inOrder := 0
	for m := range x.All() {
		if m.Offset < end {
			t.Fatalf("%q begins at %d, before %d", m.Name, m.Offset, end)
		}
		end = m.Offset + m.Size
		inOrder++
	}
	if count != x.Len() || inOrder != x.Len() {
		t.Fatalf("Len %d, %d sorted, %d in order", x.Len(), count, inOrder)
	}
}

// checkContents compares an index with what the members should be.
func checkContents(t testing.TB, x *Index, shard []byte, want map[string]string) {
	t.Helper()
	if x.Len() != len(want) {
		t.Errorf("%d members, want %d", x.Len(), len(want))
	}
	for name, body := range want {
		m, ok := x.Lookup(name)
		if !ok {
			t.Errorf("no %.60q", name)
		} else if got := shard[m.Offset : m.Offset+m.Size]; string(got) != body {
			t.Errorf("%.60q: %d bytes %.20q, want %d bytes %.20q", name, len(got), got, len(body), body)
		}
	}
}

func wantBad(t testing.TB, err error, text string) {
	t.Helper()
	var e *errs.Error
	if !errors.As(err, &e) || e.Code != errs.BadShard || e.Op != op {
		t.Fatalf("%v, want a bad shard", err)
	}
	if !strings.Contains(err.Error(), text) {
		t.Fatalf("%q doesn't say %q", err, text)
	}
}

func memberNames(seq func(func(Member) bool)) []string {
	var s []string
	for m := range seq {
		s = append(s, m.Name)
	}
	return s
}

func randomBody(r *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// mixed has an entry of every dialect and of every kind that archive/tar writes.
func mixed(t testing.TB) *archive {
	a := newArchive(t)
	a.add(file("plain.txt"), "hello")
	a.add(&tar.Header{Typeflag: tar.TypeDir, Name: "dir/", Mode: 0o755}, "")
	a.add(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "made for a test"}}, "")
	h := file(strings.Repeat("long/", 60) + "pax")
	h.Format = tar.FormatPAX
	a.add(h, strings.Repeat("p", 513))
	h = file(strings.Repeat("long/", 60) + "gnu")
	h.Format = tar.FormatGNU
	a.add(h, strings.Repeat("g", 1024))
	a.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: "sym", Linkname: "plain.txt"}, "")
	a.add(file("empty"), "")
	h = file("ustar")
	h.Format = tar.FormatUSTAR
	return a.add(h, "u")
}
