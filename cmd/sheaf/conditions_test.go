package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// statJSON is what 'sheaf stat --json' gives.
type statJSON struct {
	Bucket, Name, Checksum, Version string
	Size                            int64
	Attrs                           map[string]string
}

func statOf(t *testing.T, text string) (s statJSON) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return s
}

func testConditions(t *testing.T, u *user) {
	u.run("bucket", "create", "co", "--copies", "2")
	put := func(content string, args ...string) statJSON {
		t.Helper()
		return statOf(t, u.pipe(content, append([]string{"put", "-", "--json"}, args...)...))
	}
	first := put("one", "co/x", "--if-absent", "--attr", "label=cat", "--attr", "note=a=b")
	if want := statOf(t, u.run("stat", "--json", "co/x")); first.Version != want.Version || first.Size != 3 || first.Checksum != want.Checksum ||
		!maps.Equal(want.Attrs, map[string]string{"label": "cat", "note": "a=b"}) {
		t.Errorf("put says %+v, stat %+v", first, want)
	}
	if got := u.run("stat", "co/x"); !strings.Contains(got, "attr:      label=cat\nattr:      note=a=b\n") {
		t.Errorf("%q", got)
	}
	other := u.file("other", "other")
	u.fails(1, []string{"co/x", "already exists"}, "put", other, "co/x", "--if-absent")
	second := put("two", "co/x", "--if-version", first.Version)
	if second.Version == first.Version || len(second.Attrs) != 0 {
		t.Errorf("%+v after %+v", second, first)
	}
	u.fails(1, []string{"co/x", "version mismatch"}, "put", other, "co/x", "--if-version", first.Version)
	u.fails(3, []string{"co/none", "not found"}, "put", other, "co/none", "--if-version", first.Version)
	if got := u.run("get", "co/x"); got != "two" {
		t.Errorf("%q", got)
	}

	// Append makes what isn't there, adds to what is, and minds the version.
	a := put("first ", "co/log", "--append")
	a = put("second", "co/log", "--append", "--if-version", a.Version)
	if got := u.run("get", "co/log"); got != "first second" || a.Size != int64(len(got)) {
		t.Errorf("%q, %+v", got, a)
	}
	u.fails(1, []string{"version mismatch"}, "put", other, "co/log", "--append", "--if-version", first.Version)

	u.fails(1, []string{"version mismatch"}, "rm", "co/x", "--if-version", first.Version)
	u.run("rm", "co/x", "--if-version", second.Version)
	u.fails(3, []string{"not found"}, "rm", "co/x", "--if-version", second.Version)
	u.fails(3, []string{"not found"}, "get", "co/x")

	// A folder with attributes; a second time nothing of it is absent.
	dir := t.TempDir()
	for _, f := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.run("put", "-r", dir, "co/tree", "--attr", "set=1", "--if-absent")
	if got := statOf(t, u.run("stat", "--json", "co/tree/b")); got.Attrs["set"] != "1" {
		t.Errorf("%+v", got)
	}
	if r := u.try("put", "-r", dir, "co/tree", "--if-absent"); r.status != 1 || !strings.Contains(r.err, "already exists") {
		t.Errorf("%+v", r)
	}
	u.fails(2, []string{"attributes"}, "put", other, "co/y", "--attr", "k="+strings.Repeat("v", 5000))
}

func testCopyMove(t *testing.T, u *user) {
	u.run("bucket", "create", "cm")
	u.run("bucket", "create", "cm2")
	u.pipe("content", "put", "-", "cm/d/x", "--attr", "k=v")
	from := statOf(t, u.run("stat", "--json", "cm/d/x"))

	made := statOf(t, u.run("cp", "cm/d/x", "cm2/y", "--json"))
	if got := statOf(t, u.run("stat", "--json", "cm2/y")); got.Checksum != from.Checksum || got.Attrs["k"] != "v" || got.Version != made.Version || made.Name != "y" {
		t.Errorf("%+v is the copy of %+v; cp said %+v", got, from, made)
	}
	u.run("cp", "cm/d/x", "cm2/e/")
	if got := u.run("get", "cm2/e/x") + u.run("get", "cm/d/x"); got != "contentcontent" {
		t.Errorf("%q", got)
	}
	u.fails(1, []string{"cm2/y", "already exists"}, "cp", "cm/d/x", "cm2/y", "--if-absent")
	u.fails(1, []string{"cm2/y", "version mismatch"}, "mv", "cm/d/x", "cm2/y", "--if-version", "7")
	u.run("cp", "cm/d/x", "cm2/y", "--if-version", made.Version)
	u.fails(2, []string{"same object"}, "mv", "cm/d/x", "cm/d/x")
	u.fails(3, []string{"cm/none", "not found"}, "cp", "cm/none", "cm2/z")
	u.fails(3, []string{"cmx", "bucket not found"}, "cp", "cm/d/x", "cmx/z")
	u.fails(2, []string{"member"}, "cp", "cm/s.tar@/m", "cm/y")

	u.run("mv", "cm/d/x", "cm/moved")
	if got := u.run("get", "cm/moved"); got != "content" {
		t.Errorf("%q", got)
	}
	u.fails(3, []string{"cm/d/x", "not found"}, "mv", "cm/d/x", "cm/moved")

	// A tree: the object that the prefix names goes too, its neighbours stay.
	u.pipe("t", "put", "-", "cm/t")
	u.pipe("near", "put", "-", "cm/ta")
	var want []string
	for i := range 20 {
		u.pipe(fmt.Sprint(i), "put", "-", fmt.Sprintf("cm/t/%02d/f", i))
		want = append(want, fmt.Sprintf("new/%02d/f", i))
	}
	want = append([]string{"new"}, want...)
	r := u.try("cp", "-r", "cm/t", "cm2/new")
	if r.status != 0 || r.err != "copied 21 objects\n" {
		t.Errorf("%+v", r)
	}
	tree := func() []string { return lines(u.run("ls", "-r", "cm2/new")) }
	if got := tree(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if r := u.try("mv", "-r", "cm/t/", "cm2/new"); r.status != 0 || r.err != "moved 20 objects\n" {
		t.Errorf("%+v", r)
	}
	if got := lines(u.run("ls", "-r", "cm")); !slices.Equal(got, []string{"moved", "t", "ta"}) {
		t.Errorf("%q", got)
	}
	if got := tree(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := u.run("get", "cm2/new/07/f"); got != "7" {
		t.Errorf("%q", got)
	}
	u.run("mv", "-r", "cm/", "cm2/all")
	if got := u.run("ls", "-r", "cm") + u.run("ls", "-r", "cm2/all"); got != "all/moved\nall/t\nall/ta\n" {
		t.Errorf("%q", got)
	}
	for _, to := range []string{"cm2/new", "cm2/new/x", "cm2/", "cm2/new/"} {
		u.fails(2, []string{"lie in each other"}, "cp", "-r", "cm2/new", to)
	}
	u.fails(3, []string{"nothing of that name"}, "mv", "-r", "cm2/none", "cm/x")
	u.fails(2, []string{"is a bucket"}, "cp", "-r", "cm2", "cm/x")
}
