package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/zeebo/xxh3"
)

// noise gives n bytes that don't repeat.
func noise(seed uint64, n int) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return string(b)
}

// tarOf makes an archive of name, content, name, content, …
func tarOf(t *testing.T, parts ...string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := 0; i < len(parts); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: parts[i], Size: int64(len(parts[i+1])), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, parts[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func lines(s string) []string { return strings.Split(strings.TrimSuffix(s, "\n"), "\n") }

// TestObjects goes through the life of objects as a user would, on three nodes.
func TestObjects(t *testing.T) {
	u := newUser(t)
	up := u.start("up", "--nodes", "3", "--listen", "127.0.0.1:0")
	if len(up.lines) != 4 || !strings.HasPrefix(up.lines[0], "node n1 "+up.ready()+" admin http://127.0.0.1:") || !strings.HasPrefix(up.lines[2], "node n3 ") {
		t.Fatalf("%q", up.lines)
	}
	sub := func(name string, fn func(t *testing.T, u *user)) {
		t.Run(name, func(t *testing.T) {
			v := *u
			v.t = t
			fn(t, &v)
		})
	}
	sub("buckets", testBuckets)
	sub("put and get", testPutGet)
	sub("ranges and members", testRanges)
	sub("output file", testOutputFile)
	sub("put tree", testPutTree)
	sub("ls", testLs)
	sub("rm", testRm)
	sub("endpoint and certs", func(t *testing.T, u *user) { testClientFlags(t, u, up.ready()) })
	sub("bucket properties", testBucketProps)
	sub("conditions", testConditions)
	sub("remote", testRemote)
	sub("cp and mv", testCopyMove)
	sub("roles", testRoles)
	sub("cluster", testCluster)
	sub("tar", testTar)
	sub("frames", testFrames)
	sub("manifests", testManifests)
	sub("usage", testUsage)
	if s := up.stderr(); s != "" {
		t.Errorf("on stderr of up:\n%s", s)
	}
	sub("pipes and signals", testPipes)
}

func testBuckets(t *testing.T, u *user) {
	u.run("bucket", "create", "b1")
	u.run("bucket", "create", "a1")
	if got := u.run("bucket", "ls"); got != "a1\nb1\n" {
		t.Errorf("%q", got)
	}
	if got := u.run("ls"); got != "a1\nb1\n" {
		t.Errorf("%q", got)
	}
	var b struct{ Name, Provider, Created string }
	if err := json.Unmarshal([]byte(lines(u.run("ls", "--json"))[0]), &b); err != nil || b.Name != "a1" || b.Provider != "sheaf" || b.Created == "" {
		t.Errorf("%+v %v", b, err)
	}
	if err := json.Unmarshal([]byte(u.run("bucket", "show", "--json", "b1")), &b); err != nil || b.Name != "b1" {
		t.Errorf("%+v %v", b, err)
	}
	if got := u.run("bucket", "show", "b1"); !strings.Contains(got, "provider:    sheaf\n") {
		t.Errorf("%q", got)
	}
	u.fails(1, []string{"b1", "already exists"}, "bucket", "create", "b1")
	u.fails(2, []string{"letters, digits"}, "bucket", "create", "no/slash")
	u.fails(3, []string{"none", "bucket not found"}, "bucket", "show", "none")
	u.fails(3, []string{"none", "bucket not found"}, "bucket", "rm", "none")
	u.fails(3, []string{"none", "bucket not found"}, "ls", "none")
	u.fails(3, []string{"none", "bucket not found"}, "get", "none/x")
	u.fails(3, []string{"none", "bucket not found"}, "put", os.Args[0], "none/x")
	u.pipe("x", "put", "-", "b1/x")
	u.fails(4, []string{"b1", "not empty"}, "bucket", "rm", "b1")
	u.run("bucket", "rm", "b1", "--force")
	u.run("bucket", "rm", "a1")
	if got := u.run("bucket", "ls"); got != "" {
		t.Errorf("%q", got)
	}
}

func testPutGet(t *testing.T, u *user) {
	u.run("bucket", "create", "pg")
	for i, size := range []int{0, 1, 65536, 3_000_001} {
		content := noise(uint64(i), size)
		name := fmt.Sprintf("pg/f%d", i)
		u.run("put", u.file("src", content), name)
		if got := u.run("get", name); got != content {
			t.Errorf("%d bytes: %d came back", size, len(got))
		}
		u.pipe(content, "put", "-", name+"-stdin")
		if got := u.run("get", name+"-stdin"); got != content {
			t.Errorf("%d bytes from stdin: %d came back", size, len(got))
		}
		var s struct {
			Bucket, Name, Checksum, Version, Modified string
			Size                                      int64
		}
		if err := json.Unmarshal([]byte(u.run("stat", name, "--json")), &s); err != nil || s.Size != int64(size) || s.Bucket != "pg" || s.Name != name[3:] ||
			s.Checksum != fmt.Sprintf("%016x", xxh3.HashString(content)) || s.Version == "" || s.Modified == "" {
			t.Errorf("%+v %v", s, err)
		}
	}
	u.run("put", u.file("own.bin", "1"), "pg/")
	u.run("put", u.file("own.bin", "2"), "pg/d/e/")
	if got := u.run("get", "pg/own.bin") + u.run("get", "pg/d/e/own.bin"); got != "12" {
		t.Errorf("%q", got)
	}
	u.run("put", u.file("own.bin", "second"), "pg/own.bin")
	if got := u.run("get", "pg/own.bin"); got != "second" {
		t.Errorf("%q", got)
	}
	odd := "pg/ü \"q\"\n%2f'"
	u.pipe("odd", "put", "-", odd)
	if got := u.run("get", odd); got != "odd" {
		t.Errorf("%q", got)
	}
	u.fails(3, []string{"pg/none", "not found"}, "get", "pg/none")
	u.fails(3, []string{"pg/none", "not found"}, "stat", "pg/none")
	u.fails(3, []string{"no such file"}, "put", "/nonexistent/file", "pg/x")
	u.fails(1, []string{"is a directory", "-r"}, "put", "/", "pg/x")
	u.fails(2, []string{"pg/"}, "put", os.Args[0], "pg")
	u.fails(2, []string{"stdin has no name"}, "put", "-", "pg/")
	u.fails(2, []string{`".."`}, "put", os.Args[0], "pg/a/../b")
	u.fails(2, []string{"member"}, "put", os.Args[0], "pg/s.tar@/m")
	u.fails(2, []string{"names no object"}, "get", "pg")
	u.fails(2, []string{"bucket", "empty"}, "get", "/x")
}

func testRanges(t *testing.T, u *user) {
	u.run("bucket", "create", "rg")
	content := noise(7, 100_000)
	u.run("put", u.file("x", content), "rg/x")
	shard := tarOf(t, "a/one.txt", "first", "two.bin", content, "empty", "")
	u.run("put", u.file("s.tar", shard), "rg/")
	for _, c := range []struct{ name, rng, want string }{
		{"rg/x", "0:1", content[:1]}, {"rg/x", "0:100000", content}, {"rg/x", "5:", content[5:]}, {"rg/x", "99999:-1", content[99999:]}, {"rg/x", "70000:100", content[70000:70100]},
		{"rg/s.tar@/two.bin", "70000:100", content[70000:70100]}, {"rg/s.tar@/a/one.txt", "1:3", "irs"}, {"rg/s.tar@/a/one.txt", "0:", "first"},
	} {
		if got := u.run("get", c.name, "--range", c.rng); got != c.want {
			t.Errorf("%s %s: %d bytes, want %d", c.name, c.rng, len(got), len(c.want))
		}
	}
	if got := u.run("get", "rg/s.tar@/a/one.txt") + u.run("get", "rg/s.tar@/empty"); got != "first" {
		t.Errorf("%q", got)
	}
	if got := u.run("get", "rg/s.tar"); got != shard {
		t.Error("the shard itself changed")
	}
	if got := u.run("stat", "rg/s.tar@/a/one.txt"); !strings.Contains(got, "size:      5\n") || !strings.Contains(got, "member:    a/one.txt\n") {
		t.Errorf("%q", got)
	}
	u.fails(3, []string{"rg/s.tar@/none", "not found"}, "get", "rg/s.tar@/none")
	u.fails(3, []string{"rg/s.tar@/none", "not found"}, "stat", "rg/s.tar@/none")
	u.fails(1, []string{"range not satisfiable"}, "get", "rg/x", "--range", "100001:5")
	u.fails(1, []string{"range not satisfiable"}, "get", "rg/x", "--range", "5:100000")
	for _, r := range []string{"", "5", "a:b", "0:0", "-3:4", "1:-2"} {
		u.fails(2, []string{"START:LENGTH"}, "get", "rg/x", "--range", r)
	}
}

func testOutputFile(t *testing.T, u *user) {
	u.run("bucket", "create", "of")
	u.pipe("new", "put", "-", "of/x")
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	u.run("get", "of/x", "-o", path)
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("%q", b)
	}
	u.fails(3, []string{"of/none"}, "get", "of/none", "-o", path)
	u.fails(3, []string{"of/none"}, "get", "of/none", "-o", filepath.Join(dir, "other"))
	u.fails(3, []string{"of/none"}, "batch", u.file("m", "of/x\nof/none\n"), "-o", path)
	u.fails(1, []string{"is a directory"}, "get", "of/x", "-o", dir)
	u.fails(3, []string{"no such file"}, "get", "of/x", "-o", filepath.Join(dir, "no", "such"))
	u.run("get", "of/x", "-o", os.DevNull)
	if got := u.run("get", "of/x", "-o", "-"); got != "new" {
		t.Errorf("%q", got)
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "new" {
		t.Errorf("a failure changed the file: %q", b)
	}
}

func testPutTree(t *testing.T, u *user) {
	u.run("bucket", "create", "tree")
	dir := t.TempDir()
	var want []string
	var bytes int
	for i := range 60 {
		name := fmt.Sprintf("d%d/e%d/f%02d", i%3, i%2, i)
		content := noise(uint64(i), i*997)
		bytes += len(content)
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	slices.Sort(want)
	for _, link := range []string{"link", "d0/loop"} {
		if err := os.Symlink(dir, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := u.try("put", "-r", dir, "tree/pre/fix")
	for _, w := range []string{dir + "/link: a symbolic link\n", dir + "/d0/loop: a symbolic link\n", dir + "/fifo: a named pipe\n",
		fmt.Sprintf("60 files, %d bytes in ", bytes), ", 3 left out\n"} {
		if !strings.Contains(r.err, w) {
			t.Errorf("no %q", w)
		}
	}
	if r.status != 0 || r.out != "" || strings.ContainsAny(r.err, "\r\x1b") {
		t.Errorf("%+v", r)
	}
	got := lines(u.run("ls", "-r", "tree"))
	for i, n := range want {
		want[i] = "pre/fix/" + n
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	u.sh(`cd "$1"; find . -type f | while read -r f; do "$SHEAF" get "tree/pre/fix/${f#./}" | cmp - "$f"; done`, dir)
	// The folder may be named through a link; without a prefix the names are those below it.
	u.run("bucket", "create", "tree2")
	u.run("put", "-r", filepath.Join(dir, "link"), "tree2")
	if got := lines(u.run("ls", "-r", "tree2")); len(got) != 60 || "pre/fix/"+got[0] != want[0] {
		t.Errorf("%q", got)
	}
	bad := t.TempDir()
	if err := os.WriteFile(filepath.Join(bad, "not\xffutf8"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if r := u.try("put", "-r", bad, "tree"); r.status != 2 || !strings.Contains(r.err, "not\xffutf8: ") || !strings.Contains(r.err, "UTF-8") {
		t.Errorf("%+v", r)
	}
	if r := u.try("put", "-r", dir, "none"); r.status != 3 || !strings.Contains(r.err, "bucket not found") {
		t.Errorf("%+v", r)
	}
	u.fails(2, []string{"leave out -r"}, "put", "-r", u.file("f", ""), "tree")
	u.fails(3, []string{"no such file"}, "put", "-r", "/nonexistent", "tree")
}

func testLs(t *testing.T, u *user) {
	u.run("bucket", "create", "lsb")
	for _, n := range []string{"a", "dir/x", "dir/sub/y", "dir.txt", "z/1"} {
		u.pipe(n, "put", "-", "lsb/"+n)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"lsb"}, "a\ndir.txt\ndir/\nz/\n"},
		{[]string{"lsb/"}, "a\ndir.txt\ndir/\nz/\n"},
		{[]string{"lsb/dir"}, "dir.txt\ndir/\n"},
		{[]string{"lsb/dir/"}, "dir/sub/\ndir/x\n"},
		{[]string{"-r", "lsb/dir/"}, "dir/sub/y\ndir/x\n"},
		{[]string{"lsb", "-r"}, "a\ndir.txt\ndir/sub/y\ndir/x\nz/1\n"},
		{[]string{"lsb/none"}, ""},
	} {
		if got := u.run(append([]string{"ls"}, c.args...)...); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	long := lines(u.run("ls", "-l", "lsb"))
	if f := strings.Fields(long[1]); len(long) != 4 || len(f) != 4 || f[0] != "7" || f[3] != "dir.txt" || strings.Fields(long[2])[0] != "-" {
		t.Errorf("%q", long)
	}
	var got []string
	for _, l := range lines(u.run("ls", "--json", "lsb")) {
		var o struct {
			Bucket, Name, Prefix, Checksum, Version string
			Size                                    int64
		}
		if err := json.Unmarshal([]byte(l), &o); err != nil || o.Bucket != "lsb" || o.Name != "" && (o.Size != int64(len(o.Name)) || o.Checksum != fmt.Sprintf("%016x", xxh3.HashString(o.Name))) {
			t.Errorf("%s: %v", l, err)
		}
		got = append(got, o.Name+o.Prefix)
	}
	if want := []string{"a", "dir.txt", "dir/", "z/"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func testRm(t *testing.T, u *user) {
	u.run("bucket", "create", "rmb")
	for _, n := range []string{"a", "d", "d/1", "d/2/3", "d2", "s.tar"} {
		u.pipe("x", "put", "-", "rmb/"+n)
	}
	u.run("rm", "rmb/a")
	u.fails(3, []string{"rmb/a", "not found"}, "rm", "rmb/a")
	u.fails(2, []string{"member"}, "rm", "rmb/s.tar@/m")
	u.fails(2, []string{"names no object"}, "rm", "rmb")
	u.fails(2, []string{"rmb/"}, "rm", "-r", "rmb")
	u.fails(3, []string{"rmb/none", "not found"}, "rm", "-r", "rmb/none")
	u.fails(3, []string{"bucket not found"}, "rm", "-r", "none/x")
	if r := u.try("rm", "rmb/d", "-r"); r.status != 0 || r.err != "removed 3 objects\n" {
		t.Errorf("%+v", r)
	}
	if got := u.run("ls", "-r", "rmb"); got != "d2\ns.tar\n" {
		t.Errorf("%q", got)
	}
	u.run("rm", "-r", "rmb/")
	u.run("rm", "-r", "rmb/")
	u.run("bucket", "rm", "rmb")
}

func testClientFlags(t *testing.T, u *user, endpoint string) {
	certs := filepath.Join(u.home, "certs")
	stranger := u.with("SHEAF_HOME=" + t.TempDir())
	stranger.fails(5, []string{"no cluster: start one with 'sheaf up' or name one with --endpoint"}, "ls")
	stranger.fails(3, []string{"certificate", "--certs"}, "ls", "--endpoint", endpoint)
	stranger.run("ls", "--endpoint", endpoint, "--certs", certs)
	stranger.run("--endpoint", endpoint, "--certs="+certs, "ls")
	stranger.run("--certs", certs, "bucket", "ls", "--endpoint", "127.0.0.1:1,"+endpoint)
	stranger.with("SHEAF_ENDPOINT="+endpoint, "SHEAF_CERTS="+certs).run("ls")
	stranger.with("SHEAF_ENDPOINT=127.0.0.1:1", "SHEAF_CERTS="+certs).run("ls", "--endpoint", endpoint)
	u.fails(5, []string{"no cluster answers at 127.0.0.1:1"}, "ls", "--endpoint", "127.0.0.1:1")
	u.fails(2, []string{"host:port"}, "ls", "--endpoint", "nonsense")
}

func testRoles(t *testing.T, u *user) {
	u.run("bucket", "create", "roles")
	u.pipe("x", "put", "-", "roles/x")
	dir := t.TempDir()
	issue := func(role, out string) string {
		u.run("cert", "issue", "--role", role, "--name", "test "+role, "--out", filepath.Join(dir, out))
		return filepath.Join(dir, out)
	}
	reader := u.with("SHEAF_CERTS=" + issue("reader", "r"))
	if got := reader.run("get", "roles/x"); got != "x" {
		t.Errorf("%q", got)
	}
	reader.fails(4, []string{"permission denied", "reader"}, "put", os.Args[0], "roles/y")
	reader.fails(4, []string{"permission denied", "reader"}, "rm", "roles/x")
	reader.fails(4, []string{"permission denied", "reader"}, "bucket", "create", "mine")
	reader.check(reader.exec(strings.NewReader("x"), binary, "put", "-", "roles/y"), 4, []string{"permission denied"})
	writer := u.with("SHEAF_CERTS=" + issue("writer", "w"))
	writer.pipe("y", "put", "-", "roles/y")
	u.run("bucket", "create", "others")
	u.pipe("z", "put", "-", "others/z")
	one := filepath.Join(dir, "one")
	u.run("cert", "issue", "--role", "writer", "--bucket", "roles:r", "--bucket", "mine", "--name", "test one", "--out", one)
	restricted := u.with("SHEAF_CERTS=" + one)
	if got := restricted.run("get", "roles/x"); got != "x" {
		t.Errorf("%q", got)
	}
	if got := restricted.run("ls"); !strings.Contains(got, "roles") || strings.Contains(got, "others") {
		t.Errorf("a certificate for some buckets lists %q", got)
	}
	restricted.fails(4, []string{"permission denied", "restricted"}, "rm", "roles/x")
	restricted.fails(4, []string{"permission denied", "restricted"}, "get", "others/z")
	restricted.fails(4, []string{"permission denied", "restricted"}, "bucket", "create", "mine")
	for _, bad := range [][]string{{"reader", "b:rw"}, {"node", "b"}, {"admin", "b:r"}, {"writer", "b:x"}, {"writer", "-b"}, {"writer", ""}} {
		u.fails(2, nil, "cert", "issue", "--role", bad[0], "--bucket", bad[1], "--name", "x", "--out", filepath.Join(dir, "bad"))
	}
	u.fails(2, []string{"twice"}, "cert", "issue", "--role", "writer", "--bucket", "b:r", "--bucket", "b", "--name", "x", "--out", filepath.Join(dir, "bad"))
	for _, f := range []string{"node.crt", "node.key", "ca.crt"} {
		if !exists(filepath.Join(issue("node", "n"+f), f)) {
			t.Error("no", f)
		}
	}
	u.fails(1, []string{"already"}, "cert", "issue", "--role", "writer", "--name", "x", "--out", filepath.Join(dir, "r"))
	u.fails(1, []string{"already"}, "cert", "init")
	u.fails(2, []string{"reader, writer, admin or node"}, "cert", "issue", "--role", "king", "--name", "x", "--out", dir)
	u.fails(2, []string{"--role"}, "cert", "issue", "--name", "x", "--out", dir)

	alien := filepath.Join(dir, "alien")
	u.run("cert", "init", "--certs", alien)
	u.fails(1, []string{"another CA"}, "cert", "issue", "--role", "node", "--name", "x", "--out", filepath.Join(dir, "r"), "--certs", alien)
	u.with("SHEAF_CERTS="+alien).fails(4, []string{"permission denied", "certificate"}, "ls")
	// One whose own CA is the cluster's but whose certificate isn't: the node refuses it.
	u.sh(`cp "$1/ca.crt" "$2/ca.crt"`, filepath.Join(u.home, "certs"), alien)
	u.with("SHEAF_CERTS="+alien).fails(4, []string{"permission denied", "certificate"}, "ls")
}

func testPipes(t *testing.T, u *user) {
	u.run("bucket", "create", "pipes")
	u.run("put", u.file("big", noise(1, 20<<20)), "pipes/big")
	// head leaves early: get dies of SIGPIPE, as cat would, without a word.
	r := u.exec(nil, "bash", "-c", `"$SHEAF" get pipes/big | head -c 1; echo " ${PIPESTATUS[0]}"`)
	if r.err != "" || !strings.HasSuffix(r.out, " 141\n") {
		t.Errorf("%+v", r)
	}
	// Interrupted while it waits for stdin: nothing is stored.
	pr, pw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pw.Close()
	cmd := exec.Command(binary, "put", "-", "pipes/half")
	cmd.Env, cmd.Stdin = u.env, pr
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pr.Close()
	// More than a pipe holds: once it is written, the command is reading.
	if _, err := io.WriteString(pw, noise(2, 4<<20)); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Signal(os.Interrupt)
	_ = cmd.Wait()
	if s := cmd.ProcessState.ExitCode(); s != 1 || errOut.String() != "sheaf: interrupted\n" {
		t.Errorf("status %d, %q", s, errOut.String())
	}
	u.fails(3, []string{"not found"}, "stat", "pipes/half")
}

func testCluster(t *testing.T, u *user) {
	rows := lines(u.run("cluster", "status", "--wait"))
	if len(rows) != 4 || !slices.Equal(strings.Fields(rows[0]), strings.Fields("NODE ADDRESS STATE SETTLED MAP UPTIME OBJECTS USED FREE BATCHES ADMIN")) || strings.Fields(rows[2])[2] != "up" {
		t.Errorf("%q", rows)
	}
	var s struct {
		Cluster string
		Map     uint64
		Nodes   []struct {
			Name, State, Version string
			Total                uint64
		}
	}
	if err := json.Unmarshal([]byte(u.run("cluster", "status", "--json")), &s); err != nil || len(s.Nodes) != 3 || s.Nodes[2].State != "up" || s.Nodes[2].Total == 0 || s.Nodes[0].Version == "" {
		t.Errorf("%+v %v", s, err)
	}
	var m struct {
		Cluster string
		Version uint64
		Nodes   []struct{ Name, Address, State string }
	}
	if err := json.Unmarshal([]byte(u.run("cluster", "map", "--json")), &m); err != nil || len(m.Nodes) != 3 || m.Cluster == "" || m.Cluster != s.Cluster || m.Nodes[1].Name != "n2" || m.Nodes[1].State != "up" {
		t.Errorf("%+v %v", m, err)
	}
	if got := u.run("cluster", "map"); !strings.Contains(got, m.Nodes[1].Address) {
		t.Errorf("%q", got)
	}
}

// fillBatch stores objects and a shard for batches, and gives a manifest's lines with
// what they name.
func fillBatch(t *testing.T, u *user, bucket string) (names, contents []string) {
	t.Helper()
	u.run("bucket", "create", bucket)
	dir := t.TempDir()
	parts := []string{}
	for i := range 40 {
		content := noise(uint64(100+i), 1+i*1237)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("o%02d", i)), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		names, contents = append(names, fmt.Sprintf("%s/o%02d", bucket, i)), append(contents, content)
		parts = append(parts, fmt.Sprintf("m/%02d", i), content+"!")
		names, contents = append(names, fmt.Sprintf("%s/s.tar@/m/%02d", bucket, i)), append(contents, content+"!")
	}
	if err := os.WriteFile(filepath.Join(dir, "s.tar"), []byte(tarOf(t, parts...)), 0o644); err != nil {
		t.Fatal(err)
	}
	u.run("put", "-r", dir, bucket)
	r := rand.New(rand.NewPCG(1, 2))
	r.Shuffle(len(names), func(i, j int) {
		names[i], names[j] = names[j], names[i]
		contents[i], contents[j] = contents[j], contents[i]
	})
	return names, contents
}

func testTar(t *testing.T, u *user) {
	names, contents := fillBatch(t, u, "tb")
	manifest := strings.Join(names, "\n") + "\n"
	out := filepath.Join(t.TempDir(), "out.tar")
	r := u.exec(strings.NewReader(manifest), binary, "batch", "-", "-o", out, "--id", "my-batch")
	if r.status != 0 || !strings.HasPrefix(r.err, "batch my-batch: 80 entries, 0 failed, ") {
		t.Fatalf("%+v", r)
	}
	// tar itself gives the order of the manifest.
	want := []string{}
	for _, n := range names {
		want = append(want, strings.Replace(n, "@/", "/", 1))
	}
	if got := lines(u.sh(`tar tf "$1"`, out)); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i := range names[:5] {
		if got := u.sh(`tar xOf "$1" "$2"`, out, want[i]); got != contents[i] {
			t.Errorf("%s: %d bytes, want %d", want[i], len(got), len(contents[i]))
		}
	}
	whole, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{{"--no-strm"}, {"--assembly", "dt"}, {"--assembly=auto"}, {"--coloc", "1"}, {"--coloc=2", "--format", "tar", "--timeout", "1m"}} {
		if got := u.pipe(manifest, append([]string{"batch", "-", "--quiet"}, flags...)...); got != string(whole) {
			t.Errorf("%q: another archive", flags)
		}
	}
	if got := u.sh(`"$SHEAF" ls -r tb | sed 's|^|tb/|' | "$SHEAF" batch --quiet - | tar t`); len(lines(got)) != 41 {
		t.Errorf("%q", got)
	}
	// With coer a placeholder keeps its place.
	r = u.exec(strings.NewReader("tb/o01\ntb/none\ntb/o02\n"), binary, "batch", "-", "--coer", "-o", out)
	if r.status != 0 || !strings.Contains(r.err, "3 entries, 1 failed") {
		t.Fatalf("%+v", r)
	}
	if got := u.sh(`tar tf "$1"`, out); got != "tb/o01\n__404__/tb/none\ntb/o02\n" {
		t.Errorf("%q", got)
	}
	if r := u.exec(strings.NewReader("tb/o01\ntb/none\n"), binary, "batch", "-"); r.status != 3 || !strings.Contains(r.err, "entry 1 tb/none") {
		t.Errorf("%d %s", r.status, r.err)
	}
}

func testFrames(t *testing.T, u *user) {
	names, contents := fillBatch(t, u, "fb")
	names, contents = slices.Insert(names, 7, "fb/none"), slices.Insert(contents, 7, "")
	in := []map[string]any{}
	for i, n := range names {
		_, o, _ := strings.Cut(n, "/")
		o, m, _ := strings.Cut(o, "@/")
		in = append(in, map[string]any{"objname": o, "archpath": m, "opaque": fmt.Sprint("tag", i)})
	}
	manifest, err := json.Marshal(map[string]any{"bucket": "fb", "in": in, "output_format": "frames"})
	if err != nil {
		t.Fatal(err)
	}
	r := u.exec(bytes.NewReader(manifest), binary, "batch", "-", "--coer")
	if r.status != 0 || !strings.Contains(r.err, "sheaf: entry 7: ") || !strings.Contains(r.err, "81 entries, 1 failed") {
		t.Fatalf("%d %s", r.status, r.err)
	}
	type head struct {
		I, Size, Code            int
		Name, Opaque, Sum, Error string
		End                      bool
		Entries, Failed, Bytes   int
	}
	b := bufio.NewReader(strings.NewReader(r.out))
	next := func() (h head) {
		line, err := b.ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(line, &h)
		}
		if err != nil {
			t.Fatalf("%.100q: %v", line, err)
		}
		return h
	}
	total := 0
	for i, n := range names {
		h := next()
		body := make([]byte, h.Size)
		if _, err := io.ReadFull(b, body); err != nil {
			t.Fatal(err)
		}
		total += h.Size
		switch {
		case h.I != i || h.Name != n || h.Opaque != fmt.Sprint("tag", i):
			t.Fatalf("%+v, want %d %s", h, i, n)
		case n == "fb/none":
			if h.Code != 1 || h.Size != 0 || h.Sum != "" || !strings.Contains(h.Error, "not found") {
				t.Errorf("%+v", h)
			}
		case string(body) != contents[i] || h.Sum != fmt.Sprintf("%016x", xxh3.HashString(contents[i])) || h.Error != "":
			t.Errorf("%+v", h)
		}
	}
	if h := next(); !h.End || h.Entries != 81 || h.Failed != 1 || h.Bytes != total {
		t.Errorf("%+v", h)
	}
	if _, err := b.ReadByte(); err != io.EOF {
		t.Error("more behind the end")
	}
}

func testManifests(t *testing.T, u *user) {
	u.run("bucket", "create", "mb")
	u.pipe("x", "put", "-", "mb/x")
	for _, c := range []struct {
		text   string
		status int
		words  []string
	}{
		{"", 2, []string{"no entries"}},
		{"{", 2, []string{"not JSON"}},
		{`{"in":[{"objname":"x"}]}`, 2, []string{"entry 0", "no bucket"}},
		{`{"bucket":"mb","in":[{"objname":"x","strat":1}]}`, 2, []string{`unknown field "strat"`}},
		{"mb/x\nnonsense\n", 2, []string{"line 2", "nonsense"}},
		{"mb/../x\n", 2, []string{"line 1"}},
		{strings.Repeat("mb/x\n", 100_000), 1, []string{"too many entries", "split"}},
		{`{"bucket":"mb","in":[` + strings.Repeat(`{"objname":"x"},`, 99_999) + `{"objname":"x"}]}`, 1, []string{"100000 entries", "65536"}},
		{"none/x\n", 3, []string{"bucket not found"}},
		{"mb/x\nmb/none\n", 3, []string{"mb/none", "not found"}},
	} {
		r := u.exec(strings.NewReader(c.text), binary, "batch", "-", "--format", "frames")
		if r.status == c.status && strings.HasPrefix(r.err, "sheaf: ") && !slices.ContainsFunc(c.words, func(w string) bool { return !strings.Contains(r.err, w) }) {
			continue
		}
		t.Errorf("%.60q: status %d, want %d with %q: %s", c.text, r.status, c.status, c.words, r.err)
	}
	m := u.file("m", "mb/x\n")
	u.fails(2, []string{"output_format", "zip"}, "batch", m, "--format", "zip")
	u.fails(2, []string{"coloc"}, "batch", m, "--coloc", "7")
	u.fails(2, []string{"assembly", "direct", "dt"}, "batch", m, "--assembly", "direct")
	u.fails(2, []string{"id"}, "batch", m, "--id", "a b")
	u.fails(2, []string{"timeout"}, "batch", m, "--timeout", "72h")
	u.fails(3, []string{"no such file"}, "batch", m+"-none")
	// An archive on a terminal helps nobody; script gives the command one.
	if r := u.exec(nil, "script", "-qec", binary+" batch "+m, os.DevNull); r.status != 2 || !strings.Contains(r.out, "terminal") {
		t.Errorf("%+v", r)
	}
	// There the transfer is also shown as it goes, and the result is the same.
	big := u.file("big", noise(3, 8<<20))
	if r := u.exec(nil, "script", "-qec", binary+" put "+big+" mb/big && "+binary+" get mb/big -o "+big+"-2", os.DevNull); r.status != 0 {
		t.Errorf("%+v", r)
	}
	u.sh(`cmp "$1" "$1-2"`, big)
}

func testUsage(t *testing.T, u *user) {
	for _, line := range []string{"", "nope", "--nope", "get", "get a b", "get b/x --nope", "get b/x -o", "put x", "put a b c", "ls a b", "stat", "rm", "batch", "batch a b",
		"bucket", "bucket nope", "bucket create", "bucket create a b", "bucket ls x", "cluster", "cluster status x", "cert nope", "cert issue", "umount", "umount a b",
		"mount", "mount a b c", "mount -o nope /x", "up x", "up --nodes x", "up --nodes 0", "serve", "serve --dir d", "serve --dir d --listen 1:2 x", "version x", "batch m --timeout soon",
		"cp a/b", "cp a/b c", "cp -r a b/c", "cp -r a/b c", "cp -r a/b c/d --if-version 7", "mv a/b", "mv a/b c/d e", "put x b/x --attr novalue", "put x b/x --attr =v",
		"put x b/x --attr a=1 --attr a=2", "put x b/x --if-absent --if-version 7", "put x b/x --if-version 0", "put x b/x --append --if-absent", "put -r d b --append",
		"put -r d b --if-version 7", "put -r d b --json", "rm -r b/x --if-version 7", "rm b/x --if-version no", "bucket set b", "bucket create b --copies many",
		"cluster leave", "cluster leave a b", "cluster mountpath", "cluster mountpath enable", "cluster mountpath enable n1", "cluster mountpath disable n1 d x"} {
		u.fails(2, []string{"see 'sheaf", "--help'"}, strings.Fields(line)...)
	}
	for _, line := range []string{"--help", "help", "get --help", "help get", "bucket --help", "bucket rm --help", "batch x -h", "cluster mountpath --help", "cluster mountpath enable --help"} {
		if got := u.run(strings.Fields(line)...); !strings.Contains(got, "USAGE:") {
			t.Errorf("%s: %q", line, got)
		}
	}
	for _, line := range []string{"version", "--version"} {
		if got := u.run(line); !strings.HasPrefix(got, "sheaf version ") || len(lines(got)) != 1 {
			t.Errorf("%s: %q", line, got)
		}
	}
}
