package store

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

func TestFlippedByte(t *testing.T) {
	for _, size := range []int{1, 1000, bufferSize, bufferSize + 1} {
		s := newStore(t, 1)
		put(t, s, "o", strings.Repeat("x", size))
		f, err := os.OpenFile(diskPath(t, s, "o"), os.O_RDWR, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("y"), int64(size/2))
		must(t, err)
		must(t, f.Close())
		_, _, err = get(s, "o")
		wantCode(t, err, errs.ChecksumMismatch)
		o, err := s.Open("b", "o")
		must(t, err)
		wantCode(t, o.Verify(t.Context()), errs.ChecksumMismatch)
		_, err = o.WriteTo(io.Discard)
		wantCode(t, err, errs.ChecksumMismatch)
		r := o.VerifyReader()
		io.Copy(io.Discard, r)
		_, err = r.Read(make([]byte, 1))
		wantCode(t, err, errs.ChecksumMismatch)
		// Cut off while it is open.
		must(t, os.Truncate(diskPath(t, s, "o"), int64(size/2)))
		wantCode(t, o.Verify(t.Context()), errs.ChecksumMismatch)
		must(t, o.Close())
	}
}

func TestVerifyCanceled(t *testing.T) {
	s := newStore(t, 1)
	put(t, s, "o", "x")
	o, err := s.Open("b", "o")
	must(t, err)
	defer o.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantCode(t, o.Verify(ctx), errs.Canceled)
}

// What isn't an object gives a clear error, isn't listed from the next check on, and can be
// replaced or deleted.
func TestUnsound(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(path string) error
		say   string
	}{
		{"truncated", func(p string) error { return os.Truncate(p, 3) }, "the file has 3 bytes, 4 were written"},
		{"longer", func(p string) error { return os.Truncate(p, 5) }, "the file has 5 bytes, 4 were written"},
		{"no attribute", func(p string) error { return unix.Removexattr(p, attrKey) }, "no attribute"},
		{"garbage", func(p string) error { return unix.Setxattr(p, attrKey, []byte("garbage"), 0) }, "corrupt"},
		{"huge", func(p string) error { return unix.Setxattr(p, attrKey, make([]byte, attrMax+1), 0) }, "corrupt"},
		{"another's", func(p string) error {
			return unix.Setxattr(p, attrKey, attr{size: 4, name: "other"}.encode(), 0)
		}, `belongs to the object "other"`},
		{"link", func(p string) error { os.Remove(p); return os.Symlink("/etc/passwd", p) }, "regular"},
		{"fifo", func(p string) error { os.Remove(p); return unix.Mkfifo(p, 0o644) }, "regular"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, 1)
			put(t, s, "d/o", "body")
			path := diskPath(t, s, "d/o")
			must(t, c.spoil(path))
			_, err := s.Open("b", "d/o")
			wantCode(t, err, errs.ChecksumMismatch)
			if !strings.Contains(err.Error(), c.say) {
				t.Errorf("%v doesn't say %q", err, c.say)
			}
			_, err = s.Stat("b", "d/o")
			wantCode(t, err, errs.ChecksumMismatch)
			if c.name != "truncated" && c.name != "longer" {
				s = crash(t, s)
				for _, delimiter := range []string{"", "/"} {
					page, err := s.List(t.Context(), "b", ListOptions{Delimiter: delimiter})
					if err != nil || len(page.Objects)+len(page.Prefixes) != 0 {
						t.Errorf("listed: %+v, %v", page, err)
					}
				}
				if empty, err := s.Empty("b"); !empty || err != nil {
					t.Errorf("empty: %v, %v", empty, err)
				}
			}
			put(t, s, "d/o", "newer")
			wantBody(t, s, "d/o", "newer")
			must(t, c.spoil(path))
			del(t, s, "d/o")
			if got := files(t, s); len(got) != 0 {
				t.Errorf("left: %q", got)
			}
		})
	}
}

func BenchmarkOpenReadAt10K(b *testing.B) {
	s := newStore(b, 1)
	put(b, s, "d/o", strings.Repeat("x", 10<<10))
	buf := make([]byte, 10<<10)
	b.SetBytes(10 << 10)
	b.ReportAllocs()
	for b.Loop() {
		o, err := s.Open("b", "d/o")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := o.ReadAt(buf, 0); err != nil {
			b.Fatal(err)
		}
		o.Close()
	}
}

func BenchmarkNotFound(b *testing.B) {
	s := newStore(b, 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Stat("b", "d/o"); !errs.IsCode(err, errs.NotFound) {
			b.Fatal(err)
		}
	}
}
