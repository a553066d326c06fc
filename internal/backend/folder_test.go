package backend

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

func TestFolderRoots(t *testing.T) {
	base := t.TempDir()
	for _, d := range []string{"allowed/data", "allowedbeside", "secret"} {
		if err := os.MkdirAll(filepath.Join(base, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(base, "secret"), filepath.Join(base, "allowed/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(base, "allowed"), filepath.Join(base, "root")); err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(base, "allowed")
	for _, c := range []struct {
		dir  string
		o    Options
		want errs.Code
	}{
		{"allowed/data", Options{}, errs.PermissionDenied},
		{"allowed/data", Options{Roots: []string{root}}, errs.OK},
		{"allowed", Options{Roots: []string{root}}, errs.OK},
		{"allowed/data", Options{Roots: []string{filepath.Join(base, "root")}}, errs.OK},
		{"allowedbeside", Options{Roots: []string{root}}, errs.PermissionDenied},
		{"secret", Options{Roots: []string{root}}, errs.PermissionDenied},
		{"allowed/link", Options{Roots: []string{root}}, errs.PermissionDenied},
		{"secret", Options{AnyFolder: true}, errs.OK},
		{"nothing", Options{AnyFolder: true}, errs.NotFound},
		{"secret", Options{Roots: []string{"relative"}}, errs.InvalidArgument},
	} {
		b, err := Open(t.Context(), "file://"+filepath.Join(base, c.dir), c.o)
		if errs.CodeOf(err) != c.want {
			t.Errorf("%s with %+v: %v, want %v", c.dir, c.o, err, c.want)
		}
		if b != nil {
			_ = b.Close()
		}
	}
}

func TestFolderStaysInside(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o644); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"out": filepath.Join(outside, "secret"), "up": "../" + filepath.Base(outside), "in": "file", "loop": "."} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, workPrefix+"old")
	if err := os.WriteFile(old, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	day := time.Now().Add(-2 * workAge)
	if err := os.Chtimes(old, day, day); err != nil {
		t.Fatal(err)
	}
	b := open(t, "file://"+dir, Options{AnyFolder: true})
	put(t, b, "file", []byte("f"))
	if err := os.WriteFile(filepath.Join(dir, workPrefix+"new"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	names, _ := pages(t, b, ListOptions{})
	if !slices.Equal(names, []string{"file", "in"}) {
		t.Errorf("the listing shows %q", names)
	}
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Error("an old work file is still there")
	}
	for _, name := range []string{"out", "up/secret", "pipe", workPrefix + "new", "a//b", "/file", "dir/"} {
		if p, _, err := get(b, t, name, 0, -1, ""); err == nil {
			t.Errorf("%s gives %q", name, p)
		}
	}
	for _, name := range []string{"up/x", "a//b", "/x", "x/", workPrefix + "x", "file/x", strings.Repeat("x", 300)} {
		_, err := b.Put(t.Context(), name, strings.NewReader("x"), PutOptions{Size: 1})
		if code := errs.CodeOf(err); code != errs.InvalidArgument && code != errs.PermissionDenied {
			t.Errorf("put %s: %v", name, err)
		}
	}
	all, err := os.ReadDir(outside)
	if err != nil || len(all) != 1 {
		t.Errorf("outside lie %v, %v", all, err)
	}
}
