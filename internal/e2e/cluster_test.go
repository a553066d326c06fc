package e2e

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/peer"
)

const port = 7070

// sample is a file of the generated folder, or a member of a shard in it.
type sample struct {
	object, member string
	data           []byte
}

func (s sample) archiveName() string {
	if s.member != "" {
		return "b/data/" + s.object + "/" + s.member
	}
	return "b/data/" + s.object
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// generate writes a folder of files and shards and gives all samples in it.
func generate(t *testing.T, dir string) []sample {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var all []sample
	write := func(name string, data []byte) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 60 {
		s := sample{object: fmt.Sprintf("class%d/%03d.bin", i%5, i), data: noise(r, r.IntN(1<<uint(r.IntN(19))))}
		write(s.object, s.data)
		all = append(all, s)
	}
	for i := range 6 {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for k := range 10 {
			s := sample{object: fmt.Sprintf("shards/%d.tar", i), member: fmt.Sprintf("%04d.jpg", k), data: noise(r, 1+r.IntN(30_000))}
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: s.member, Size: int64(len(s.data)), Mode: 0o644}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(s.data); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		write(fmt.Sprintf("shards/%d.tar", i), buf.Bytes())
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

// testbed is three nodes and a client, with the samples stored.
type testbed struct {
	*network
	nodes   []*service
	dirs    []string
	samples []sample
	cmap    *peer.Map
}

func newTestbed(t *testing.T) *testbed {
	b := &testbed{network: newNetwork(t, "n1", "n2", "n3", "client")}
	b.run("client", "cert", "init")
	var list []peer.Node
	for i := 1; i <= 3; i++ {
		listen := fmt.Sprintf("%s:%d", address(i), port)
		b.dirs = append(b.dirs, t.TempDir())
		args := []string{"serve", "--name", fmt.Sprint("n", i), "--dir", b.dirs[i-1], "--listen", listen}
		if i > 1 {
			args = append(args, "--join", fmt.Sprintf("%s:%d", address(1), port))
		}
		b.nodes = append(b.nodes, b.serve(fmt.Sprint("n", i), args...))
		list = append(list, peer.Node{Name: fmt.Sprint("n", i), Addr: listen})
	}
	b.cmap = peer.NewMap("", 1, list)
	src := t.TempDir()
	b.samples = generate(t, src)
	b.client("bucket", "create", "b")
	b.client("put", "-r", src, "b/data")
	return b
}

// client runs a command on the client, which knows the first and the third node.
func (b *testbed) client(args ...string) string {
	b.t.Helper()
	return b.run("client", b.connected(args)...)
}

func (b *testbed) connected(args []string) []string {
	return append([]string{"--endpoint", fmt.Sprintf("%s:%d,%s:%d", address(1), port, address(3), port)}, args...)
}

// owner names the node that has a sample.
func (b *testbed) owner(s sample) string {
	return b.cmap.Nodes[b.cmap.Owner(peer.HashObject("b", "data/"+s.object))].Name
}

// idFor finds a request id whose Designated Target is that node.
func (b *testbed) idFor(node string) string {
	for {
		if id := batching.NewID(); b.cmap.Nodes[b.cmap.Owner(peer.HashKey(id))].Name == node {
			return id
		}
	}
}

// manifest writes a JSON manifest of all samples.
func (b *testbed) manifest() string {
	b.t.Helper()
	req := batching.Request{Bucket: "b", MaxSoftErrors: -1}
	for _, s := range b.samples {
		req.In = append(req.In, batching.Entry{ObjName: "data/" + s.object, ArchPath: s.member})
	}
	text, err := json.Marshal(req)
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.t.TempDir(), "manifest.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		b.t.Fatal(err)
	}
	return path
}

// checkArchive compares an archive with the samples: all of them in their order, with
// placeholders for those that are missing.
func (b *testbed) checkArchive(what string, archive string, missing func(sample) bool) {
	b.t.Helper()
	r := tar.NewReader(strings.NewReader(archive))
	for i, s := range b.samples {
		want, data := s.archiveName(), s.data
		if missing(s) {
			want, data = batching.MissingPrefix+want, nil
		}
		h, err := r.Next()
		if err != nil {
			b.t.Fatalf("%s: entry %d: %v", what, i, err)
		}
		got, err := io.ReadAll(r)
		if err != nil || h.Name != want || !bytes.Equal(got, data) {
			b.t.Fatalf("%s: entry %d is %s with %d bytes (%v), want %s with %d", what, i, h.Name, len(got), err, want, len(data))
		}
	}
	if _, err := r.Next(); err != io.EOF {
		b.t.Fatalf("%s: behind the last entry: %v", what, err)
	}
}

func none(sample) bool { return false }

func TestClusterOverNetwork(t *testing.T) {
	b := newTestbed(t)
	manifest := b.manifest()
	for _, node := range []string{"n1", "n2", "n3"} {
		b.checkArchive("assembled by "+node, b.client("batch", "--id", b.idFor(node), manifest), none)
		b.checkArchive("metadata first, by "+node, b.client("batch", "--no-strm", "--id", b.idFor(node), manifest), none)
	}
	b.checkArchive("by the node that owns most", b.client("batch", "--coloc", "1", manifest), none)

	var want []string
	for _, s := range b.samples {
		want = append(want, "data/"+s.object)
	}
	slices.Sort(want)
	want = slices.Compact(want)
	if got := strings.Fields(b.client("ls", "-r", "b")); !slices.Equal(got, want) {
		t.Errorf("ls -r gives %q, want %q", got, want)
	}
	if got := b.client("ls", "b/data/"); !strings.Contains(got, "data/class0/\n") || !strings.HasSuffix(got, "data/shards/\n") {
		t.Errorf("ls gives %q", got)
	}
	if got := b.client("cluster", "status"); strings.Count(got, " up ") != 3 {
		t.Errorf("cluster status gives %s", got)
	}
	for _, s := range b.samples[:20] {
		name := "b/data/" + s.object
		if s.member != "" {
			name += "@/" + s.member
		}
		if got := b.client("get", name); got != string(s.data) {
			t.Errorf("get %s gives %d bytes, want %d", name, len(got), len(s.data))
		}
	}
	for i, n := range b.nodes {
		if status := n.stop(syscall.SIGTERM); status != 0 {
			t.Errorf("n%d ended with status %d\n%s", i+1, status, n.errOut)
		}
	}
}

// A node whose link is cut costs its entries and nothing else, and is back with its link.
func TestLinkCut(t *testing.T) {
	b := newTestbed(t)
	manifest := b.manifest()
	lost := func(s sample) bool { return b.owner(s) == "n2" }
	if !slices.ContainsFunc(b.samples, lost) || !slices.ContainsFunc(b.samples, func(s sample) bool { return !lost(s) }) {
		t.Fatal("all samples lie on one side")
	}
	// Both Designated Targets have a connection to n2 that is good, and will be dead.
	for _, dt := range []string{"n1", "n3"} {
		b.checkArchive("before, by "+dt, b.client("batch", "--id", b.idFor(dt), manifest), none)
	}
	b.cut("n2", true)
	for _, dt := range []string{"n1", "n3"} {
		r := b.try("client", b.connected([]string{"batch", "--coer", "--id", b.idFor(dt), manifest})...)
		if r.status != 0 {
			t.Fatalf("with --coer, by %s: status %d\n%s", dt, r.status, r.err)
		}
		b.checkArchive("with n2 cut, by "+dt, r.out, lost)
		t.Logf("with n2 cut and --coer, by %s: %v", dt, r.took.Round(time.Millisecond))
	}
	first := slices.IndexFunc(b.samples, lost)
	for _, dt := range []string{"n1", "n3"} {
		r := b.try("client", b.connected([]string{"batch", "--id", b.idFor(dt), manifest})...)
		if r.status != 5 {
			t.Errorf("without --coer, by %s: status %d, want 5\n%s", dt, r.status, r.err)
		}
		for _, word := range []string{fmt.Sprintf("entry %d ", first), "b/data/" + b.samples[first].object, "node n2"} {
			if !strings.Contains(r.err, word) {
				t.Errorf("without --coer, by %s: no word of %q in: %s", dt, word, r.err)
			}
		}
		t.Logf("with n2 cut, by %s: %v", dt, r.took.Round(time.Millisecond))
	}
	if r := b.try("client", b.connected([]string{"cluster", "status"})...); r.status != 5 || !strings.Contains(r.err, "n2") || strings.Count(r.out, " up ") != 2 {
		t.Errorf("cluster status: status %d\n%s%s", r.status, r.out, r.err)
	}
	if r := b.try("client", b.connected([]string{"ls", "b"})...); r.status != 5 || !strings.Contains(r.err, "node n2") {
		t.Errorf("ls: status %d\n%s%s", r.status, r.out, r.err)
	} else {
		t.Logf("ls with n2 cut: %v", r.took.Round(time.Millisecond))
	}

	b.cut("n2", false)
	for _, dt := range []string{"n1", "n2", "n3"} {
		// A connection may only now be found dead: then the next batch has another.
		for deadline := time.Now().Add(hang); ; {
			r := b.try("client", b.connected([]string{"batch", "--id", b.idFor(dt), manifest})...)
			if r.status == 0 {
				b.checkArchive("after, by "+dt, r.out, none)
				break
			}
			if r.status != 5 || time.Now().After(deadline) {
				t.Fatalf("after the cut, by %s: status %d\n%s", dt, r.status, r.err)
			}
		}
	}
	if got := b.client("cluster", "status"); strings.Count(got, " up ") != 3 {
		t.Errorf("cluster status gives %s", got)
	}
}

// states waits until the cluster map that n1 has gives the nodes these states.
func (b *testbed) states(want string) {
	b.t.Helper()
	got := ""
	for deadline := time.Now().Add(hang); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		r := b.try("client", "--endpoint", fmt.Sprintf("%s:%d", address(1), port), "cluster", "map", "--json")
		var m struct {
			Nodes []struct{ Name, State string } `json:"nodes"`
		}
		if r.status != 0 || json.Unmarshal([]byte(r.out), &m) != nil {
			continue
		}
		got = ""
		for _, n := range m.Nodes {
			got += n.Name + " " + n.State + " "
		}
		if got = strings.TrimSpace(got); got == want {
			return
		}
	}
	b.t.Fatalf("the nodes are %q, want %q", got, want)
}

// A node that is killed is noticed by the others, and by itself when it is back.
func TestKilledNodeIsNoticed(t *testing.T) {
	b := newTestbed(t)
	b.states("n1 up n2 up n3 up")
	b.nodes[1].stop(syscall.SIGKILL)
	b.states("n1 up n2 down n3 up")
	b.client("bucket", "create", "meanwhile")
	args := []string{"serve", "--dir", b.dirs[1], "--listen", fmt.Sprintf("%s:%d", address(2), port)}
	b.nodes[1] = b.serve("n2", args...)
	b.states("n1 up n2 up n3 up")
	for deadline := time.Now().Add(hang); ; {
		r := b.try("client", b.connected([]string{"batch", "--id", b.idFor("n2"), b.manifest()})...)
		if r.status == 0 {
			b.checkArchive("after the return", r.out, none)
			break
		}
		if r.status != 5 || time.Now().After(deadline) {
			t.Fatalf("after the return: status %d\n%s", r.status, r.err)
		}
	}
	if got := b.run("client", "--endpoint", fmt.Sprintf("%s:%d", address(2), port), "bucket", "ls"); !strings.Contains(got, "meanwhile") {
		t.Errorf("the node that was away knows the buckets %q", got)
	}

	// One that doesn't come back is taken out.
	b.nodes[1].stop(syscall.SIGKILL)
	b.states("n1 up n2 down n3 up")
	b.client("cluster", "leave", "--force", "n2")
	b.states("n1 up n2 left n3 up")
	r := b.try("n2", append(args, "--join", fmt.Sprintf("%s:%d", address(1), port))...)
	if r.status == 0 || !strings.Contains(r.err, "taken out") {
		t.Errorf("a node that was taken out starts: status %d\n%s", r.status, r.err)
	}
}
