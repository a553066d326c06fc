package gossip

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sheaf/peer"
	"sheaf/peer/wire"
)

func TestMain(m *testing.M) {
	// A probe under way at Shutdown waits for its answer a little longer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// hang is how long anything may take before it counts as hung.
const hang = time.Minute

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func waitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(hang); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still waiting for %s", what)
		}
	}
}

// directory is a cluster map in place of a true one.
type directory struct {
	mu    sync.Mutex
	addrs map[string]string
}

func (d *directory) set(node, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if addr == "" {
		delete(d.addrs, node)
	} else {
		d.addrs[node] = addr
	}
}

func (d *directory) get(node string) (string, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a, ok := d.addrs[node]
	return a, ok
}

// certs makes a CA with certificates of the roles node and writer.
func certs(t testing.TB) string {
	dir := filepath.Join(t.TempDir(), "certs")
	must(t, peer.InitCA(dir))
	must(t, peer.Issue(dir, dir, "node", "node", peer.NodeRole))
	must(t, peer.Issue(dir, dir, "writer", "writer", peer.Writer))
	return dir
}

// endpoint is a socket with a certificate, to the test's end.
func endpoint(t testing.TB, certs, file, node, listen string) *peer.Endpoint {
	t.Helper()
	id, err := peer.LoadIdentity(certs, file)
	must(t, err)
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id, Listen: listen, Hello: func() wire.Hello { return wire.Hello{Node: node} }})
	must(t, err)
	t.Cleanup(func() { _ = ep.Close() })
	return ep
}

// member is a node that does nothing but gossip.
type member struct {
	*Gossip
	name string
	ep   *peer.Endpoint
}

func (m *member) close() {
	_ = m.Close()
	_ = m.ep.Close()
}

// start runs a node and puts it into the directory.
func start(t testing.TB, certs string, d *directory, name string, suspect time.Duration) *member {
	t.Helper()
	m := &member{name: name, ep: endpoint(t, certs, "node", name, "127.0.0.1:0")}
	g, err := Start(Options{Name: name, Endpoint: m.ep, Addr: d.get, SuspectAfter: suspect})
	must(t, err)
	m.Gossip = g
	t.Cleanup(m.close)
	must(t, m.ep.Serve())
	d.set(name, m.ep.Addr().String())
	return m
}

func sees(m *member, others ...*member) func() bool {
	return func() bool {
		for _, o := range others {
			if _, ok := m.Alive(o.name); !ok {
				return false
			}
		}
		return true
	}
}

func TestMembersComeAndGo(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	a, b, c := start(t, dir, d, "a", time.Second), start(t, dir, d, "b", time.Second), start(t, dir, d, "c", time.Second)
	must(t, b.Join("a"))
	must(t, c.Join("b"))
	all := []*member{a, b, c}
	for _, m := range all {
		waitFor(t, m.name+" to see all", sees(m, all...))
	}

	// What one announces all hear; the last counts.
	for v := uint64(1); v <= 20; v++ {
		b.Announce(v)
	}
	for _, m := range all {
		waitFor(t, m.name+" to hear of it", func() bool { v, _ := m.Alive("b"); return v == 20 })
	}

	// One that dies is noticed, and is welcome again at another address.
	c.close()
	for _, m := range all[:2] {
		waitFor(t, m.name+" to notice", func() bool { return !sees(m, c)() })
	}
	c = start(t, dir, d, "c", time.Second)
	must(t, c.Join("a"))
	all[2] = c
	for _, m := range all {
		waitFor(t, m.name+" to see all again", sees(m, all...))
	}

	// One that isn't in the map can't be met and doesn't exist.
	d.set("x", "")
	if err := a.Join("x"); err == nil {
		t.Error("joined a node that isn't in the map")
	}
	x := start(t, dir, d, "x", time.Second)
	d.set("x", "")
	if err := x.Join("a"); err != nil {
		t.Logf("join: %v", err)
	}
	for _, m := range all {
		if _, ok := m.Alive("x"); ok {
			t.Errorf("%s takes a node that isn't in the map for alive", m.name)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	must(t, b.Leave(ctx))
	for _, m := range []*member{a, c} {
		waitFor(t, m.name+" to hear that b left", func() bool { return !sees(m, b)() })
	}
}

func TestManyMembers(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	var all []*member
	for i := range 6 {
		all = append(all, start(t, dir, d, fmt.Sprint("m", i), 5*time.Second))
		if i > 0 {
			must(t, all[i].Join(all[i-1].name))
		}
	}
	for _, m := range all {
		waitFor(t, m.name+" to see all", sees(m, all...))
	}
}
