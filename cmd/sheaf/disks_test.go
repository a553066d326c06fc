package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDisks takes a node's disk out of use and into it again; copies on the other node
// serve meanwhile.
func TestDisks(t *testing.T) {
	u := newUser(t)
	u.run("cert", "init")
	disk1, disk2 := t.TempDir(), t.TempDir()
	n1 := u.serve(disk1, "127.0.0.1:0", "--dir", disk2, "--name", "n1")
	u.serve(t.TempDir(), "127.0.0.1:0", "--name", "n2", "--join", n1.ready())
	u = u.with("SHEAF_ENDPOINT=" + n1.ready())
	u.run("bucket", "create", "b", "--copies", "2")
	src := t.TempDir()
	for i := range 20 {
		if err := os.WriteFile(filepath.Join(src, fmt.Sprintf("f%02d", i)), []byte(noise(uint64(i), 1+i*977)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.run("put", "-r", src, "b")
	u.run("cluster", "status", "--wait")
	whole := func() {
		t.Helper()
		u.sh(`cd "$1"; for f in *; do "$SHEAF" get "b/$f" | cmp - "$f"; done; diff <(ls) <("$SHEAF" ls -r b)`, src)
	}
	type disk struct {
		Node, Dir, ID, Error string
		Enabled              bool
		Total, Objects       uint64
	}
	disks := func(args ...string) (all []disk) {
		t.Helper()
		for _, line := range lines(u.run(append([]string{"cluster", "mountpaths", "--json"}, args...)...)) {
			var d disk
			if err := json.Unmarshal([]byte(line), &d); err != nil {
				t.Fatal(err)
			}
			all = append(all, d)
		}
		return all
	}
	all := disks()
	if len(all) != 3 || all[0].Node != "n1" || all[0].Dir != disk1 || all[1].Dir != disk2 || all[0].Objects+all[1].Objects != 20 || all[2].Objects != 20 {
		t.Errorf("%+v", all)
	}
	for _, d := range all {
		if !d.Enabled || d.ID == "" || d.Total == 0 {
			t.Errorf("%+v", d)
		}
	}

	u.run("cluster", "mountpath", "disable", "n1", disk2)
	if got := u.run("cluster", "status"); !strings.Contains(got, "n1: mountpath "+disk2+" is disabled: ") {
		t.Errorf("%q", got)
	}
	if d := disks("n1"); len(d) != 2 || !d[0].Enabled || d[1].Enabled || d[1].Error == "" {
		t.Errorf("%+v", d)
	}
	whole()

	u.run("cluster", "mountpath", "enable", "n1", disk2)
	u.run("cluster", "status", "--wait")
	whole()
	if d := disks("n1"); len(d) != 2 || !d[1].Enabled || d[1].Error != "" {
		t.Errorf("%+v", d)
	}
	if rows := lines(u.run("cluster", "mountpaths", "n1")); len(rows) != 3 || strings.Count(strings.Join(rows, "\n"), "  yes  ") != 2 {
		t.Errorf("%q", rows)
	}
	u.fails(3, []string{`no node "n9"`}, "cluster", "mountpath", "disable", "n9", disk2)
	u.fails(3, []string{"/none"}, "cluster", "mountpath", "disable", "n1", "/none")
	certs := t.TempDir()
	u.run("cert", "issue", "--role", "writer", "--name", "w", "--out", certs)
	u.fails(4, []string{"writer", "admin"}, "cluster", "mountpath", "disable", "n1", disk2, "--certs", certs)
}
