package server_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/server"
)

// options are those of a further node of a cluster.
func options(t *testing.T, c *testcluster.Cluster, name string, join ...string) server.Options {
	return server.Options{Name: name, Dirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Identity: testcluster.Identity(t, c.Certs, peer.NodeName), Join: join,
		SuspectAfter: 10 * time.Minute}
}

// start runs a node until the test ends.
func start(t *testing.T, o server.Options) *server.Node {
	t.Helper()
	n, err := server.Start(bounded(t), o)
	must(t, err)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("closing node %s: %v", n.Name(), err)
		}
	})
	return n
}

// refused starts a node that mustn't start.
func refused(t *testing.T, what string, o server.Options, code errs.Code, words ...string) {
	t.Helper()
	n, err := server.Start(bounded(t), o)
	if err == nil {
		_ = n.Close()
	}
	fails(t, what, err, code, words...)
}

// know waits until all nodes have a map with those names.
func know(t *testing.T, nodes []*server.Node, names ...string) {
	t.Helper()
	for _, n := range nodes {
		waitFor(t, "node "+n.Name()+" to know all others", func() bool {
			m := n.Map()
			for _, name := range names {
				if m.Find(name) < 0 {
					return false
				}
			}
			return len(m.Nodes) == len(names)
		})
	}
}

func TestJoin(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 2})
	c.Bucket(t, "b") // a bucket without objects hinders nobody

	// Through the second node, the first one named doesn't answer.
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	n3 := start(t, options(t, c, "n3", silent.LocalAddr().String(), c.Nodes[1].Addr()))
	all := append(c.Nodes[:2:2], n3)
	know(t, all, "n1", "n2", "n3")
	if got := bucketNames(t, c.Peer, n3.Addr()); got != "b" {
		t.Errorf("the new node has the buckets %q", got)
	}
	// One that names only itself begins a cluster; one without a name gets one.
	n4 := start(t, options(t, c, "", n3.Addr()))
	if n4.Name() == "" {
		t.Error("a node without a name")
	}
	know(t, append(all, n4), "n1", "n2", "n3", n4.Name())
	for _, n := range all {
		if m := n.Map(); m.Cluster != testcluster.Identity(t, c.Certs, peer.NodeName).Cluster {
			t.Errorf("node %s is of cluster %q", n.Name(), m.Cluster)
		}
	}

	// The old client's map is behind; what it asks for is there all the same.
	for _, name := range []string{"o1", "o2", "o3", "o4", "o5", "o6"} {
		c.Put(t, "b", name, []byte(name))
		if got, err := get(t, c.Peer, "b", name, peer.GetOptions{}); err != nil || string(got) != name {
			t.Errorf("%q %v", got, err)
		}
	}
	refused(t, "a name in use", options(t, c, "n2", c.Nodes[0].Addr()), errs.AlreadyExists, `"n2"`, c.Nodes[1].Addr())
	refused(t, "the name of the node asked", options(t, c, "n1", c.Nodes[0].Addr()), errs.AlreadyExists, `"n1"`)
	know(t, append(all, n4), "n1", "n2", "n3", n4.Name()) // nobody who was refused is in the map

	// A node with objects of its own would lose them.
	own := options(t, c, "own")
	alone, err := server.Start(bounded(t), own)
	must(t, err)
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), alone.Addr())
	must(t, p.CreateBucket(bounded(t), "mine", peer.BucketProps{}))
	_, err = p.Put(bounded(t), "mine", "o", filled("x", 10), peer.PutOptions{Size: 10})
	must(t, err)
	must(t, alone.Close())
	own.Join = []string{c.Endpoint()}
	refused(t, "a node with objects of its own", own, errs.NotSupported, "of a cluster of its own")
}

func TestStartRefused(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	refused(t, "no options", server.Options{}, errs.InvalidArgument, "no data folder", "no certificate", "listen")
	o := options(t, c, "x")
	o.Identity = testcluster.Identity(t, c.Certs, "writer")
	refused(t, "a writer's certificate", o, errs.PermissionDenied, "writer")
	o = options(t, c, "x")
	o.Dirs = []string{filepath.Join(c.Dir, "n1")}
	refused(t, "a folder in use", o, errs.Busy, "in use")
	o = options(t, c, "x")
	o.Listen = c.Endpoint()
	refused(t, "an address in use", o, errs.Busy, c.Endpoint())
	o = options(t, c, "x")
	o.Identity = testcluster.Identity(t, testcluster.Certs(t), peer.NodeName)
	o.Join = []string{c.Endpoint()}
	refused(t, "another CA's certificate", o, errs.PermissionDenied)
	// The folder remembers whose it is.
	must(t, c.Nodes[0].Close())
	o = options(t, c, "x")
	o.Dirs = []string{filepath.Join(c.Dir, "n1")}
	refused(t, "another node's folder", o, errs.InvalidArgument, "n1", "x")
}

func TestJoinTimeout(t *testing.T) {
	t.Parallel()
	certs := testcluster.Certs(t)
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	o := server.Options{Name: "n", Dirs: []string{t.TempDir()}, Listen: "127.0.0.1:0", Identity: testcluster.Identity(t, certs, peer.NodeName),
		Join: []string{silent.LocalAddr().String()}, JoinTimeout: 300 * time.Millisecond}
	refused(t, "nobody answers", o, errs.Unavailable, silent.LocalAddr().String(), "300ms")
	o.JoinTimeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	n, err := server.Start(ctx, o)
	if err == nil {
		_ = n.Close()
		t.Error("a node that found nobody started")
	}
}

// A node that comes back at another address is the same node: the others learn of the
// address, and what it holds is found there.
func TestRestartAtAnotherAddress(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	name := ownedBy(c, 1, "b", "o", "")
	c.Put(t, "b", name, []byte("here"))
	before := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close())
	n := testcluster.Restart(t, c, 1, "127.0.0.1:0")
	t.Cleanup(func() { must(t, n.Close()) })
	if n.Name() != "n2" || n.Addr() == before {
		t.Fatalf("node %s came back at %s", n.Name(), n.Addr())
	}
	for _, other := range c.Nodes {
		know(t, []*server.Node{other}, "n1", "n2", "n3")
		waitFor(t, "node "+other.Name()+" to learn of the address", func() bool {
			m := other.Map()
			return m.Nodes[m.Find("n2")].Addr == n.Addr()
		})
	}
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Endpoint())
	for _, client := range []*peer.Client{p, c.Peer} { // the second one has the old address
		if got, err := get(t, client, "b", name, peer.GetOptions{}); err != nil || string(got) != "here" {
			t.Errorf("%q %v", got, err)
		}
	}
	// It may be named in a join once more: it is the one that is known.
	must(t, n.Close())
	o := options(t, c, "n2", c.Nodes[0].Addr())
	o.Dirs = []string{filepath.Join(c.Dir, "n2")}
	again := start(t, o)
	know(t, []*server.Node{c.Nodes[0], again, c.Nodes[2]}, "n1", "n2", "n3")
	c.Nodes[1] = again
	if got, err := getAt(t, c.Peer, c.Nodes[0].Addr(), &peer.ObjectRequest{Bucket: "b", Object: name}); err != nil || string(got) != "here" {
		t.Errorf("%q %v", got, err)
	}
}
