package server_test

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
	"sheaf/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, testcluster.Leftovers()...) }

// hang is how long anything may take before it counts as hung.
const hang = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails checks an error's code and that its text has all the words.
func fails(t testing.TB, what string, err error, code errs.Code, words ...string) {
	t.Helper()
	if !errs.IsCode(err, code) {
		t.Errorf("%s: %v, want the code of %q", what, err, code)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: no word of %q in: %v", what, w, err)
		}
	}
}

// bounded is a context that ends when something hangs.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// waitFor polls until cond holds.
func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !cond(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// noise is n bytes that don't repeat.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 99))
	for i := 0; i < n; i += 8 {
		v := r.Uint64()
		for j := i; j < min(i+8, n); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return b
}

// get reads an object, a member or a range.
func get(t testing.TB, p *peer.Client, bucket, object string, o peer.GetOptions) ([]byte, error) {
	t.Helper()
	_, r, err := p.Get(bounded(t), bucket, object, o)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// getAt reads an object through the node at addr.
func getAt(t testing.TB, p *peer.Client, addr string, req *peer.ObjectRequest) ([]byte, error) {
	t.Helper()
	req.Kind = wire.TGet
	_, r, err := p.GetAt(bounded(t), addr, req)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

// listAll pages through a listing.
func listAll(t testing.TB, p *peer.Client, bucket string, o peer.ListOptions) (objects, prefixes []string, pages int) {
	t.Helper()
	for {
		page, err := p.List(bounded(t), bucket, o)
		must(t, err)
		pages++
		for _, obj := range page.Objects {
			objects = append(objects, obj.Name)
		}
		prefixes = append(prefixes, page.Prefixes...)
		if page.Token == "" {
			return objects, prefixes, pages
		}
		if page.Token == o.Token {
			t.Fatalf("the listing stays at the token %q", page.Token)
		}
		o.Token = page.Token
	}
}

// ownerOf is the index of the node that owns an object.
func ownerOf(c *testcluster.Cluster, bucket, object string) int {
	m := c.Nodes[0].Map()
	name := m.Nodes[m.Owner(peer.HashObject(bucket, object))].Name
	for i, n := range c.Nodes {
		if n.Name() == name {
			return i
		}
	}
	panic("the map names a node that isn't there")
}

// ownedBy finds a name that node i owns.
func ownedBy(c *testcluster.Cluster, i int, bucket, prefix, suffix string) string {
	for k := 0; ; k++ {
		if name := fmt.Sprintf("%s%d%s", prefix, k, suffix); ownerOf(c, bucket, name) == i {
			return name
		}
	}
}

// file is a member of a shard.
type file struct {
	name string
	data []byte
}

// makeTar makes a shard.
func makeTar(t testing.TB, files ...file) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, f := range files {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: 0o644}))
		_, err := w.Write(f.data)
		must(t, err)
	}
	must(t, w.Close())
	return buf.Bytes()
}

// metric sums all series of a counter, or the observations of a histogram.
func metric(t testing.TB, n *server.Node, name string) float64 {
	t.Helper()
	families, err := n.Registry().Gather()
	must(t, err)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		sum := 0.0
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		return sum
	}
	return 0
}

func total(t testing.TB, c *testcluster.Cluster, name string) float64 {
	t.Helper()
	sum := 0.0
	for _, n := range c.Nodes {
		sum += metric(t, n, name)
	}
	return sum
}
