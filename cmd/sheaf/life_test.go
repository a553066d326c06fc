package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestClusterLife goes through what an operator does: nodes are lost, come back, join
// and leave, and all the while every object is there.
func TestClusterLife(t *testing.T) {
	u := newUser(t)
	u.run("cert", "init")
	first := u.serve(t.TempDir(), "127.0.0.1:0", "--name", "n1")
	dirs := map[string]string{}
	nodes := map[string]*service{"n1": first}
	join := func(name string) {
		t.Helper()
		dirs[name] = t.TempDir()
		nodes[name] = u.serve(dirs[name], "127.0.0.1:0", "--name", name, "--join", first.ready())
	}
	join("n2")
	join("n3")
	// Of the first alone: each command would wait in vain for one that is gone and stands before it.
	u = u.with("SHEAF_ENDPOINT=" + first.ready())

	u.run("bucket", "create", "b", "--copies", "2")
	src := t.TempDir()
	for i := range 40 {
		if err := os.WriteFile(filepath.Join(src, fmt.Sprintf("f%02d", i)), []byte(noise(uint64(i), 1+i*977)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.run("put", "-r", src, "b")
	whole := func(after string) {
		t.Helper()
		r := u.exec(nil, "bash", "-euo", "pipefail", "-c", `cd "$1"; for f in *; do "$SHEAF" get "b/$f" | cmp - "$f"; done; diff <(ls) <("$SHEAF" ls -r b)`, "sh", src)
		if r.status != 0 {
			t.Fatalf("after %s: %+v", after, r)
		}
	}
	states := func() (all []string) {
		t.Helper()
		var m struct {
			Nodes []struct{ Name, State string }
		}
		if err := json.Unmarshal([]byte(u.run("cluster", "map", "--json")), &m); err != nil {
			t.Fatal(err)
		}
		for _, n := range m.Nodes {
			all = append(all, n.Name+" "+n.State)
		}
		return all
	}
	u.run("cluster", "status", "--wait")
	whole("the PUTs")

	// One node is lost: all is there, and a write too, once the others know of it.
	nodes["n3"].stop(syscall.SIGKILL)
	waitFor(t, "n3 to count as down", func() bool { return slices.Contains(states(), "n3 down") })
	whole("the loss of a node")
	u.pipe("meanwhile", "put", "-", "b/f00")
	u.run("rm", "b/f01")
	for f, content := range map[string]string{"f00": "meanwhile", "f01": ""} {
		if err := os.WriteFile(filepath.Join(src, f), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(src, "f01")); err != nil {
		t.Fatal(err)
	}
	if r := u.try("cluster", "status"); r.status != 5 || !strings.Contains(r.err, "1 of 3 nodes down: n3 (") {
		t.Errorf("%+v", r)
	}

	// It comes back, at another address: what was written is there, what was deleted isn't.
	nodes["n3"] = u.serve(dirs["n3"], "127.0.0.1:0", "--join", first.ready())
	u.run("cluster", "status", "--wait")
	whole("the return of a node")
	u.fails(3, []string{"not found"}, "--endpoint", nodes["n3"].ready(), "get", "b/f01")

	// A fourth comes, and gets its share; then the second leaves and is stopped.
	join("n4")
	u.run("cluster", "status", "--wait")
	whole("a node that joined")
	var s struct {
		Settled bool
		Nodes   []struct {
			Name      string
			Settled   bool
			Reconcile *struct{ Finished string }
		}
	}
	if err := json.Unmarshal([]byte(u.run("cluster", "status", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.Nodes {
		if !n.Settled || n.Reconcile == nil || n.Reconcile.Finished == "" {
			t.Errorf("%+v", n)
		}
	}
	if len(s.Nodes) != 4 || !s.Settled {
		t.Errorf("%+v", s)
	}
	u.run("cluster", "rebalance", "--wait")
	u.run("cluster", "leave", "n2", "--wait")
	if got := states(); !slices.Equal(got, []string{"n1 up", "n2 left", "n3 up", "n4 up"}) {
		t.Errorf("%q", got)
	}
	if status := nodes["n2"].stop(syscall.SIGTERM); status != 0 {
		t.Errorf("status %d\n%s", status, nodes["n2"].stderr())
	}
	u.run("cluster", "status", "--wait")
	whole("a node that left")
	u.run("cluster", "leave", "n2")
	u.fails(3, []string{`no node "n9"`, "sheaf cluster map"}, "cluster", "leave", "n9")
	u.fails(3, []string{`no node "n9"`}, "cluster", "rebalance", "n9")

	// The third is gone for good: the cluster is told so, and goes on with the rest.
	nodes["n3"].stop(syscall.SIGKILL)
	waitFor(t, "n3 to count as down", func() bool { return slices.Contains(states(), "n3 down") })
	u.fails(5, []string{"n3"}, "cluster", "leave", "n3")
	u.run("cluster", "leave", "n3", "--force")
	u.run("cluster", "status", "--wait")
	if got := states(); !slices.Equal(got, []string{"n1 up", "n2 left", "n3 left", "n4 up"}) {
		t.Errorf("%q", got)
	}
	whole("a node that is gone for good")

	// With a writer's certificate none of this can be done.
	certs := t.TempDir()
	u.run("cert", "issue", "--role", "writer", "--name", "w", "--out", certs)
	for _, args := range [][]string{{"cluster", "leave", "n4"}, {"cluster", "rebalance"}, {"cluster", "leave", "n4", "--force"}} {
		u.fails(4, []string{"writer", "admin"}, append(args, "--certs", certs)...)
	}
	u.run("cluster", "status", "--certs", certs)
}
