package server_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
	"sheaf/server"
)

// watchful is a cluster whose nodes notice soon that one is gone.
func watchful(t *testing.T, nodes int) *testcluster.Cluster {
	return testcluster.Start(t, testcluster.Options{Nodes: nodes, Adjust: func(_ int, o *server.Options) { o.SuspectAfter = time.Second }})
}

// again starts node i, which was closed, watchful as before.
func again(t *testing.T, c *testcluster.Cluster, i int, listen string, join ...string) *server.Node {
	t.Helper()
	o := options(t, c, c.Nodes[i].Name(), join...)
	o.Dirs, o.Listen, o.SuspectAfter = []string{filepath.Join(c.Dir, c.Nodes[i].Name())}, listen, time.Second
	c.Nodes[i] = start(t, o)
	return c.Nodes[i]
}

// inState waits until all nodes see one of them in a state.
func inState(t *testing.T, of []*server.Node, name string, want peer.NodeState) {
	t.Helper()
	for _, n := range of {
		waitFor(t, fmt.Sprintf("node %s to see that %s is %s", n.Name(), name, want), func() bool {
			m := n.Map()
			i := m.Find(name)
			return i >= 0 && m.Nodes[i].State == want
		})
	}
}

// agree waits until all nodes have maps that place all objects alike.
func agree(t *testing.T, nodes []*server.Node) {
	t.Helper()
	waitFor(t, "the nodes to agree", func() bool {
		for _, n := range nodes {
			if n.Map().Hash() != nodes[0].Map().Hash() {
				return false
			}
		}
		return true
	})
}

func TestDeadNodeIsDownAndComesBack(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	c.Bucket(t, "b")
	addr := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close()) // without a word, as if it were killed
	rest := []*server.Node{c.Nodes[0], c.Nodes[2]}
	inState(t, rest, "n2", peer.Down)
	agree(t, rest)
	for _, n := range rest {
		if got := metric(t, n, "sheaf_cluster_nodes"); got != 3 {
			t.Errorf("%v nodes in the metrics of %s", got, n.Name())
		}
	}
	// What happens meanwhile it learns when it is back, and it is Up again by its own word.
	changeAt(t, c, 0, &peer.BucketMessage{Kind: wire.TBucketDestroy, Name: "b", Force: true})
	changeAt(t, c, 2, &peer.BucketMessage{Kind: wire.TBucketCreate, Name: "new"})
	n2 := again(t, c, 1, addr)
	inState(t, c.Nodes, "n2", peer.Up)
	agree(t, c.Nodes)
	waitFor(t, "n2 to know the buckets", func() bool { return bucketNames(t, c.Peer, n2.Addr()) == "new" })
	for _, n := range c.Nodes {
		inState(t, c.Nodes, n.Name(), peer.Up)
	}
}

// All nodes go and come back elsewhere: they are the same cluster.
func TestRestartOfAllAtOtherAddresses(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	must(t, c.Peer.CreateBucket(bounded(t), "b", peer.BucketProps{Copies: 2, Durability: peer.Relaxed}))
	for i := range c.Nodes {
		must(t, c.Nodes[i].Close())
	}
	first := again(t, c, 0, "127.0.0.1:0")
	for i := range 2 {
		again(t, c, i+1, "127.0.0.1:0", first.Addr())
	}
	know(t, c.Nodes, "n1", "n2", "n3")
	for _, n := range c.Nodes {
		inState(t, c.Nodes, n.Name(), peer.Up)
	}
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Endpoint())
	if b, err := p.Bucket(bounded(t), "b"); err != nil || b.Copies != 2 || b.Durability != peer.Relaxed {
		t.Errorf("%+v %v", b, err)
	}
}

func leave(t *testing.T, c *testcluster.Cluster, addr string, req *peer.LeaveRequest) error {
	t.Helper()
	return c.Peer.At(bounded(t), addr, req, func(*peer.Call, wire.Head) error { return nil })
}

func TestLeave(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	must(t, c.Peer.CreateBucket(bounded(t), "b", peer.BucketProps{Copies: 3}))
	fails(t, "leave too few", leave(t, c, c.Nodes[2].Addr(), &peer.LeaveRequest{}), errs.InvalidArgument, `"b"`, "3 copies", "2 nodes")
	fails(t, "dismiss a node that is up", leave(t, c, c.Endpoint(), &peer.LeaveRequest{Node: "n3", Force: true}), errs.InvalidArgument, "n3", "up")
	fails(t, "dismiss nobody", leave(t, c, c.Endpoint(), &peer.LeaveRequest{Node: "n9", Force: true}), errs.NotFound, "n9")
	two := 2
	_, err := c.Peer.SetBucket(bounded(t), "b", peer.BucketChange{Copies: &two})
	must(t, err)
	for i := range 20 {
		c.Put(t, "b", fmt.Sprint("o", i), []byte("x"))
	}

	// Asked through another node, it gives away what it has and is gone.
	must(t, leave(t, c, c.Endpoint(), &peer.LeaveRequest{Node: "n3"}))
	rest := c.Nodes[:2]
	inState(t, rest, "n3", peer.Left)
	select {
	case <-c.Nodes[2].Gone():
	case <-time.After(hang):
		t.Fatal("the node doesn't say that it is gone")
	}
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Endpoint())
	for i := range 20 {
		if got, err := get(t, p, "b", fmt.Sprint("o", i), peer.GetOptions{}); err != nil || string(got) != "x" {
			t.Errorf("o%d: %q %v", i, got, err)
		}
	}
	_, err = getAt(t, c.Peer, c.Nodes[2].Addr(), &peer.ObjectRequest{Bucket: "b", Object: "o1", Forwarded: true})
	fails(t, "an object of a node that has left", err, errs.Unavailable, "left")
	must(t, leave(t, c, c.Nodes[2].Addr(), &peer.LeaveRequest{})) // once more does no harm

	// It doesn't come back by itself, but may join again.
	addr := c.Nodes[2].Addr()
	must(t, c.Nodes[2].Close())
	o := options(t, c, "n3")
	o.Dirs, o.Listen = []string{filepath.Join(c.Dir, "n3")}, addr
	refused(t, "a node that has left", o, errs.InvalidArgument, "n3", "has left")
	again(t, c, 2, addr, c.Endpoint())
	inState(t, c.Nodes, "n3", peer.Up)
}

// A node that was taken out while it was away isn't let in again with what it had; one
// that has its name and empty disks is.
func TestDismissed(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	c.Bucket(t, "b")
	for i := range 20 {
		c.Put(t, "b", fmt.Sprint("o", i), []byte("x"))
	}
	addr := c.Nodes[2].Addr()
	must(t, c.Nodes[2].Close())
	rest := c.Nodes[:2]
	inState(t, rest, "n3", peer.Down)
	must(t, leave(t, c, c.Endpoint(), &peer.LeaveRequest{Node: "n3", Force: true}))
	inState(t, rest, "n3", peer.Left)

	o := options(t, c, "n3", c.Endpoint())
	o.Dirs, o.Listen = []string{filepath.Join(c.Dir, "n3")}, addr
	refused(t, "a node that was taken out", o, errs.InvalidArgument, "n3", "taken out")
	o.Join = nil
	n, err := server.Start(bounded(t), o) // it asks nobody, but hears of it
	must(t, err)
	select {
	case <-n.Gone():
	case <-time.After(hang):
		t.Error("the node doesn't hear that it was taken out")
	}
	_, err = getAt(t, c.Peer, n.Addr(), &peer.ObjectRequest{Bucket: "b", Object: "o1", Forwarded: true})
	fails(t, "an object of a node that was taken out", err, errs.Unavailable, "left")
	must(t, n.Close())
	inState(t, rest, "n3", peer.Left)

	o = options(t, c, "n3", c.Endpoint())
	c.Nodes[2] = start(t, o)
	inState(t, c.Nodes, "n3", peer.Up)
}

// A node whose disks were replaced takes its name over, at another address too, once
// nobody answers at the old one.
func TestNameTakenOver(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	c.Bucket(t, "b")
	o := options(t, c, "n3", c.Endpoint())
	refused(t, "a name that is in use", o, errs.AlreadyExists, `"n3"`, c.Nodes[2].Addr())
	must(t, c.Nodes[2].Close())
	c.Nodes[2] = start(t, o)
	inState(t, c.Nodes, "n3", peer.Up)
	agree(t, c.Nodes)
	if got := bucketNames(t, c.Peer, c.Nodes[2].Addr()); got != "b" {
		t.Errorf("it has the buckets %q", got)
	}
}

// A node isn't talked into another cluster, not even by one with the same CA.
func TestClustersAreNotMerged(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Nodes: 2})
	var other []*server.Node
	var dirs []string
	for i, name := range []string{"x1", "x2"} {
		o := options(t, c, name)
		dirs = o.Dirs
		if i > 0 {
			o.Join = []string{other[0].Addr()}
		}
		other = append(other, start(t, o))
	}
	know(t, other, "x1", "x2")
	_, ep := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.NodeName), c.Endpoint())
	for _, kind := range []wire.Type{wire.TJoin, wire.TMapPush} {
		for what, m := range map[string]*peer.Map{
			"with no node in common": other[0].Map(),
			"of another CA":          peer.NewMap("0123", 9, c.Nodes[0].Map().Nodes),
		} {
			call, err := ep.Open(bounded(t), c.Endpoint())
			must(t, err)
			must(t, call.W.Frame(&peer.MapMessage{Kind: kind, Map: m, Node: "x1"}, nil))
			_, err = call.Do(&wire.End{}, func(wire.Head) error { return nil })
			call.Close()
			fails(t, fmt.Sprintf("call %d with a map %s", kind, what), err, errs.InvalidArgument, "cluster")
		}
	}
	must(t, other[1].Close())
	o := options(t, c, "x2", c.Endpoint())
	o.Dirs = dirs
	refused(t, "a node of another cluster", o, errs.InvalidArgument, "a cluster of its own")
	for _, n := range c.Nodes {
		for _, node := range n.Map().Nodes {
			if strings.HasPrefix(node.Name, "x") {
				t.Errorf("node %s has %s in its map", n.Name(), node.Name)
			}
		}
	}
}
