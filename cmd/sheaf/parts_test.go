package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sheaf/internal/errs"
)

func TestParseRange(t *testing.T) {
	for _, c := range []struct {
		in            string
		start, length int64
	}{{"0:5", 0, 5}, {"7:1", 7, 1}, {"7:", 7, -1}, {"7:-1", 7, -1}, {"0:", 0, -1}} {
		if s, l, ok := parseRange(c.in); !ok || s != c.start || l != c.length {
			t.Errorf("%q: %d %d %v", c.in, s, l, ok)
		}
	}
	for _, in := range []string{"", "5", ":", ":5", "-1:5", "1:0", "1:-2", "a:1", "1:b", "1:2:3", "99999999999999999999:1"} {
		if s, l, ok := parseRange(in); ok {
			t.Errorf("%q: taken as %d %d", in, s, l)
		}
	}
}

func TestObjectName(t *testing.T) {
	for _, c := range []struct{ prefix, rel, want string }{{"", "a/b", "a/b"}, {"p", "a", "p/a"}, {"p/", "a", "p/a"}, {"p/q", "a/b", "p/q/a/b"}} {
		if got := (putTreeOptions{Prefix: c.prefix}).objectName(c.rel); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestEscapePath(t *testing.T) {
	for in, want := range map[string]string{"/mnt/sheaf": "mnt-sheaf", "/": "", "/a b/c-d": "a%20b-c%2Dd", "/x.y/é": "x.y-%C3%A9", "/.x": "%2Ex"} {
		if got := escapePath(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if got := escapePath("/" + strings.Repeat("x/", 1000)); len(got) != maxEscaped {
		t.Errorf("%d bytes", len(got))
	}
}

func TestAnswer(t *testing.T) {
	if err := parseAnswer(formatAnswer(nil)); err != nil {
		t.Error(err)
	}
	err := parseAnswer(formatAnswer(errs.New(errs.Unavailable, "mount", "gone")))
	var told *relayed
	if !errors.As(err, &told) || told.status != errs.ExitUnavailable || told.msg != "mount: unavailable: gone" {
		t.Errorf("%+v", err)
	}
	for _, s := range []string{"", "ok", "5 cut", "what\n", "0 fine\n", "\n"} {
		if err := parseAnswer(s); !errors.Is(err, errNoAnswer) {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestMountOptions(t *testing.T) {
	var o mountOptions
	for _, opt := range []string{"ro", "allow_other", "cache_dir=/c", "certs=/k", "x-systemd.automount", "_netdev"} {
		if !o.apply(opt) {
			t.Errorf("%s refused", opt)
		}
	}
	if !o.AllowOther || o.CacheDir != "/c" || o.Client.Certs != "/k" {
		t.Errorf("%+v", o)
	}
	if o.apply("writeback") {
		t.Error("an unknown option is taken")
	}
}

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 entries", 1: "1 entry", 2: "2 entries"} {
		if got := plural(n, "entry", "entries"); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 3 << 30: "3.0 GiB"} {
		if got := formatBytes(n); got != want {
			t.Errorf("%d: %s", n, got)
		}
	}
}

func TestSpool(t *testing.T) {
	var s spool
	defer s.close()
	for _, size := range []int{0, 1, spoolMemory, spoolMemory + 1, 3 * spoolMemory, 10, spoolMemory + 5} {
		if err := s.reset(); err != nil {
			t.Fatal(err)
		}
		want := make([]byte, size)
		r := rand.New(rand.NewPCG(1, uint64(size)))
		for i := range want {
			want[i] = byte(r.Uint32())
		}
		for rest := want; len(rest) > 0; {
			n := min(len(rest), 300_000)
			if _, err := s.Write(rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		var got bytes.Buffer
		if err := s.copyTo(&got); err != nil {
			t.Fatal(err)
		}
		if s.size != int64(size) || !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%d bytes: %d came back of %d", size, got.Len(), s.size)
		}
	}
}

func TestOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	read := func() string {
		b, _ := os.ReadFile(path)
		return string(b)
	}
	write := func(text string, fails error) {
		t.Helper()
		o, err := createOutput(path)
		if err != nil {
			t.Fatal(err)
		}
		before := read()
		if _, err := o.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if read() != before {
			t.Error("the file changed before it was whole")
		}
		if err := o.finish(fails); !errors.Is(err, fails) {
			t.Error(err)
		}
	}
	write("one", nil)
	if read() != "one" {
		t.Error(read())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	write("two", errors.New("no"))
	if read() != "one" {
		t.Error(read())
	}
	// A link's target is replaced, the link stays.
	link := filepath.Join(dir, "link")
	if err := os.Symlink("f", link); err != nil {
		t.Fatal(err)
	}
	o, err := createOutput(link)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Write([]byte("three")); err != nil {
		t.Fatal(err)
	}
	if err := o.finish(nil); err != nil || read() != "three" {
		t.Error(err, read())
	}
	if fi, err := os.Lstat(link); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Error("the link is gone")
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error("the rights changed", fi.Mode())
	}
	// A device is written as it is.
	if o, err = createOutput(os.DevNull); err != nil {
		t.Fatal(err)
	}
	if err := o.finish(nil); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(os.DevNull); err != nil || fi.Mode().IsRegular() {
		t.Fatal("the null device was replaced")
	}
	if _, err := createOutput(dir); !errs.IsCode(err, errs.IsDirectory) {
		t.Error(err)
	}
	if names, _ := filepath.Glob(filepath.Join(dir, ".sheaf-*")); len(names) > 0 {
		t.Error("left behind:", names)
	}
}

func TestNodesFor(t *testing.T) {
	dir := t.TempDir()
	if n, err := nodesFor(dir, 0); n != 1 || err != nil {
		t.Error(n, err)
	}
	for _, n := range []string{"n1", "n2"} {
		if err := os.Mkdir(filepath.Join(dir, n), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for want, got := range map[int]int{0: 2, 2: 2, 3: 3} {
		if n, err := nodesFor(dir, want); n != got || err != nil {
			t.Error(want, n, err)
		}
	}
	if _, err := nodesFor(dir, 1); !errs.IsCode(err, errs.InvalidArgument) {
		t.Error(err)
	}
}
