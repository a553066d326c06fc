package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func testRemote(t *testing.T, u *user) {
	dir := t.TempDir()
	for _, name := range []string{"x/a", "x/b", "y"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("is "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.run("bucket", "create", "re", "--backend", "file://"+dir)
	kept := func(name string) bool {
		return statOf(t, u.run("stat", "--json", "re/"+name)).Checksum != "0000000000000000"
	}
	if got := u.run("ls", "-r", "re"); strings.Join(strings.Fields(got), " ") != "x/a x/b y" {
		t.Errorf("%q", got)
	}
	if got := u.run("get", "re/x/a"); got != "is x/a" {
		t.Errorf("%q", got)
	}
	u.run("bucket", "prefetch", "re")
	waitFor(t, "the prefetch", func() bool { return kept("x/a") && kept("x/b") && kept("y") })
	u.run("evict", "re/y", "re/none")
	u.run("evict", "-r", "re/x")
	if kept("x/a") || kept("x/b") || kept("y") {
		t.Error("evicted objects are still kept")
	}
	if got := u.run("get", "re/y"); got != "is y" {
		t.Errorf("%q", got)
	}
	u.pipe("new", "put", "-", "re/z")
	if got, err := os.ReadFile(filepath.Join(dir, "z")); err != nil || string(got) != "new" {
		t.Errorf("%q, %v", got, err)
	}
	u.run("rm", "re/z")
	if _, err := os.Stat(filepath.Join(dir, "z")); !os.IsNotExist(err) {
		t.Errorf("after rm: %v", err)
	}
	u.fails(2, []string{"credentials"}, "bucket", "create", "bad", "--backend", "s3://user:hunter2@x")
	u.run("bucket", "rm", "re")
	if _, err := os.Stat(filepath.Join(dir, "y")); err != nil {
		t.Errorf("the backend's object went with the bucket: %v", err)
	}
}
