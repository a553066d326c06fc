package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// serve starts a node of its own process on dir.
func (u *user) serve(dir, listen string, more ...string) *service {
	u.t.Helper()
	return u.start(append([]string{"serve", "--dir", dir, "--listen", listen}, more...)...)
}

func TestServe(t *testing.T) {
	u := newUser(t)
	u.fails(3, []string{"node.crt", "sheaf cert init"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0")
	u.run("cert", "init")

	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := []*service{u.serve(dirs[0], "127.0.0.1:0", "--name", "alpha")}
	first := nodes[0].ready()
	nodes = append(nodes, u.serve(dirs[1], "127.0.0.1:0", "--name", "beta", "--join", first))
	// The last has two disks, answers to a name it was not given, and logs JSON.
	nodes = append(nodes, u.serve(dirs[2]+"/d0", "127.0.0.1:0", "--dir", dirs[2]+"/d1,x", "--join", "127.0.0.1:1", "--join", first, "--admin", "", "--log-format", "json"))
	u = u.with("SHEAF_ENDPOINT=" + first)
	rows := lines(u.run("cluster", "status", "--wait"))
	if len(rows) != 4 || strings.Fields(rows[1])[0] != "alpha" || strings.Count(strings.Join(rows, "\n"), " up ") != 3 {
		t.Fatalf("%q", rows)
	}
	if !exists(dirs[2] + "/d1,x") {
		t.Error("a comma in a folder's name ended it")
	}
	if s := nodes[2].stderr(); !strings.HasPrefix(s, `{"time":`) {
		t.Errorf("%q", s)
	}

	u.run("bucket", "create", "b")
	src := t.TempDir()
	for i := range 50 {
		if err := os.WriteFile(filepath.Join(src, fmt.Sprint("f", i)), []byte(noise(uint64(i), 1+i*311)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	u.run("put", "-r", src, "b")
	all := lines(u.run("ls", "-r", "b"))
	check := func() {
		t.Helper()
		if got := lines(u.run("ls", "-r", "b")); !slices.Equal(got, all) || len(all) != 50 {
			t.Errorf("%q, want %q", got, all)
		}
		u.sh(`cd "$1"; for f in *; do "$SHEAF" get "b/$f" | cmp - "$f"; done`, src)
		// The node that assembles may only now learn that its connection to a killed one is dead.
		waitFor(t, "a whole batch", func() bool {
			r := u.exec(nil, "bash", "-euo", "pipefail", "-c", `cd "$1"; for f in *; do echo "b/$f"; done | "$SHEAF" batch --quiet - | tar x -C "$2"; diff -r "$1" "$2/b"`,
				"sh", src, t.TempDir())
			if r.status != 0 && !strings.Contains(r.err, "sender lost") {
				t.Fatalf("%+v", r)
			}
			return r.status == 0
		})
	}
	check()

	// A node that is killed is down; started anew on its folder it is back with its objects.
	addr := nodes[1].ready()
	nodes[1].stop(syscall.SIGKILL)
	r := u.try("cluster", "status")
	if r.status != 5 || !strings.Contains(r.err, "1 of 3 nodes down: beta (") || strings.Count(r.out, " up ") != 2 || !strings.Contains(r.out, " down ") {
		t.Errorf("%+v", r)
	}
	if r := u.try("cluster", "status", "--json"); r.status != 5 || !strings.Contains(r.out, `"state":"down","error":"`) {
		t.Errorf("%+v", r)
	}
	nodes[1] = u.serve(dirs[1], addr)
	u.run("cluster", "status")
	check()

	// The same at another address.
	nodes[1].stop(syscall.SIGKILL)
	nodes[1] = u.serve(dirs[1], "127.0.0.1:0", "--join", first)
	u.run("cluster", "status")
	check()

	for _, n := range nodes {
		if s := n.stop(syscall.SIGTERM); s != 0 {
			t.Errorf("status %d\n%s", s, n.stderr())
		}
	}
	u.fails(5, []string{"no cluster answers at " + first}, "ls")
}

func TestServeRefuses(t *testing.T) {
	u := newUser(t)
	u.run("cert", "init")
	dir := t.TempDir()
	n := u.serve(dir, "127.0.0.1:0", "--name", "n")
	u.fails2(4, []string{n.ready(), "address already in use"}, "serve", "--dir", t.TempDir(), "--listen", n.ready())
	u.fails2(4, []string{dir, "in use"}, "serve", "--dir", dir, "--listen", "127.0.0.1:0")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	u.fails2(4, []string{"admin", "address already in use"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--admin", ln.Addr().String())
	u.fails2(1, []string{`"n"`, "already exists"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--join", n.ready(), "--name", "n")
	u.fails2(2, []string{"host:port"}, "serve", "--dir", t.TempDir(), "--listen", "nonsense")
	u.fails2(2, []string{"advertise"}, "serve", "--dir", t.TempDir(), "--listen", "0.0.0.0:0")
	u.fails2(2, []string{"log level"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--log-level", "loud")
	u.fails2(2, []string{"log format"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--log-format", "xml")
	u.fails2(2, []string{"--rebalance-rate", `"fast"`}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--rebalance-rate", "fast")
	u.fails2(2, []string{"--scrub-rate", "never end"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--scrub-rate", "0")
	u.fails2(2, []string{"--scrub-every", `"-1h"`}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--scrub-every", "-1h")
	// A reader or writer can't pose as a node.
	certs := t.TempDir()
	u.run("cert", "issue", "--role", "writer", "--name", "w", "--out", certs)
	u.sh(`cd "$1"; mv client.crt node.crt; mv client.key node.key`, certs)
	u.fails2(4, []string{"writer"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--certs", certs)
	// One of another CA isn't let in.
	u.run("cert", "init", "--certs", certs+"/alien")
	u.fails2(4, []string{"permission denied"}, "serve", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--certs", certs+"/alien", "--join", n.ready())
}

// fails2 is fails for a command that may log before its error.
func (u *user) fails2(status int, words []string, args ...string) {
	u.t.Helper()
	r := u.try(args...)
	l := lines(r.err)
	r.err = l[len(l)-1] + "\n"
	u.check(r, status, words)
}

func TestUp(t *testing.T) {
	u := newUser(t)
	endpoint := filepath.Join(u.home, "endpoint")
	up := u.start("up", "--listen", "127.0.0.1:0", "--nodes", "2")
	if b, err := os.ReadFile(endpoint); err != nil || string(b) != up.ready()+"\n" {
		t.Errorf("%q %v", b, err)
	}
	u.run("bucket", "create", "b")
	u.pipe("kept", "put", "-", "b/x")

	// The folder is taken, and so is the port; nothing of the failed one stays, all of the first does.
	u.fails2(4, []string{"in use"}, "up", "--listen", "127.0.0.1:0")
	u.fails2(4, []string{"address already in use"}, "up", "--listen", up.ready(), "--dir", t.TempDir())
	u.fails2(3, []string{"no such directory"}, "up", "--listen", "127.0.0.1:0", "--dir", t.TempDir(), "--mount", "/nonexistent")
	u.fails2(2, []string{"2 nodes"}, "up", "--listen", "127.0.0.1:0", "--nodes", "1")
	u.fails2(2, []string{"host:port"}, "up", "--listen", "x", "--dir", t.TempDir())
	if b, _ := os.ReadFile(endpoint); string(b) != up.ready()+"\n" {
		t.Errorf("%q", b)
	}
	if got := u.run("get", "b/x"); got != "kept" {
		t.Errorf("%q", got)
	}
	if s := up.stop(syscall.SIGINT); s != 0 || exists(endpoint) {
		t.Errorf("status %d, endpoint there: %v\n%s", s, exists(endpoint), up.stderr())
	}

	// Without --nodes it is what the folder has; another cluster's endpoint is left alone.
	up = u.start("up", "--listen", "127.0.0.1:0")
	if len(up.lines) != 3 {
		t.Errorf("%q", up.lines)
	}
	if got := u.run("get", "b/x"); got != "kept" {
		t.Errorf("%q", got)
	}
	if err := os.WriteFile(endpoint, []byte("10.0.0.1:7070\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s := up.stop(syscall.SIGTERM); s != 0 || !exists(endpoint) {
		t.Errorf("status %d\n%s", s, up.stderr())
	}
	// A second one, at the moment of the start: stopped before it is ready.
	s, _ := newUser(t).launch("up", "--listen", "127.0.0.1:0", "--nodes", "3")
	s.signal(syscall.SIGTERM)
	if !s.gone(hang) {
		t.Error("goes on after SIGTERM")
	}
}
