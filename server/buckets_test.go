package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
)

func bucketNames(t *testing.T, p *peer.Client, addr string) string {
	t.Helper()
	var names []string
	must(t, p.At(bounded(t), addr, &peer.Ask{Kind: wire.TBucketList}, func(call *peer.Call, _ wire.Head) error {
		m := peer.BucketMessage{Kind: wire.TBucket}
		err := call.R.Decode(&m)
		names = append(names, m.Name)
		return err
	}))
	return strings.Join(names, " ")
}

func TestBuckets(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	ctx := bounded(t)
	must(t, c.Peer.CreateBucket(ctx, "one", peer.BucketProps{}))
	must(t, c.Peer.CreateBucket(ctx, "Two.2-2_2", peer.BucketProps{}))
	for _, n := range c.Nodes {
		if got := bucketNames(t, c.Peer, n.Addr()); got != "Two.2-2_2 one" {
			t.Errorf("node %s has the buckets %q", n.Name(), got)
		}
	}
	list, err := c.Peer.Buckets(ctx)
	must(t, err)
	for _, b := range list {
		if b.Provider != "sheaf" || b.Created.IsZero() {
			t.Errorf("%+v", b)
		}
	}
	for range c.Nodes { // each of them answers in turn
		fails(t, "create again", c.Peer.CreateBucket(ctx, "one", peer.BucketProps{}), errs.AlreadyExists, `one`)
		fails(t, "destroy none", c.Peer.DestroyBucket(ctx, "none", false), errs.BucketNotFound, "none")
	}
	for _, bad := range []string{"", ".", "..", "a/b", "-a", "_a", ".a", "a b", "a\x00", "ü", "%ob", "@a", strings.Repeat("a", 64)} {
		err := c.Peer.CreateBucket(ctx, bad, peer.BucketProps{})
		if code := errs.CodeOf(err); code != errs.InvalidArgument && code != errs.Protocol {
			t.Errorf("bucket %q: %v", bad, err)
		}
	}
	err = c.Peer.At(ctx, c.Endpoint(), &peer.BucketMessage{Kind: wire.TBucketCreate, Name: "s3b", Provider: "s3"}, func(*peer.Call, wire.Head) error { return nil })
	fails(t, "another provider", err, errs.InvalidArgument, "s3")

	for i := range 20 {
		c.Put(t, "one", fmt.Sprint("o", i), noise(uint64(i), 100))
	}
	for range c.Nodes {
		fails(t, "destroy what isn't empty", c.Peer.DestroyBucket(ctx, "one", false), errs.NotEmpty, "one", "o0")
	}
	if objects, _, _ := listAll(t, c.Peer, "one", peer.ListOptions{}); len(objects) != 20 {
		t.Errorf("a refused destruction left %d of 20 objects", len(objects))
	}
	must(t, c.Peer.DestroyBucket(ctx, "one", true))
	must(t, c.Peer.DestroyBucket(ctx, "Two.2-2_2", false))
	for _, n := range c.Nodes {
		if got := bucketNames(t, c.Peer, n.Addr()); got != "" {
			t.Errorf("node %s still has the buckets %q", n.Name(), got)
		}
	}
	_, err = c.Peer.Head(ctx, "one", "o1")
	fails(t, "an object of a destroyed bucket", err, errs.BucketNotFound, "one")
	_, err = c.Peer.List(ctx, "one", peer.ListOptions{})
	fails(t, "list a destroyed bucket", err, errs.BucketNotFound, "one")
	_, err = c.Peer.Put(ctx, "one", "o1", strings.NewReader("x"), peer.PutOptions{Size: 1})
	fails(t, "put into a destroyed bucket", err, errs.BucketNotFound, "one")

	// Made again it is a new bucket.
	must(t, c.Peer.CreateBucket(ctx, "one", peer.BucketProps{}))
	if objects, _, _ := listAll(t, c.Peer, "one", peer.ListOptions{}); len(objects) != 0 {
		t.Errorf("the new bucket holds %q", objects)
	}
	for i := range 20 {
		_, err := c.Peer.Head(ctx, "one", fmt.Sprint("o", i))
		fails(t, "an object of the bucket before", err, errs.NotFound)
	}
	must(t, c.Peer.DestroyBucket(ctx, "one", false))
}

func TestBucketProps(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	ctx := bounded(t)
	must(t, c.Peer.CreateBucket(ctx, "plain", peer.BucketProps{}))
	must(t, c.Peer.CreateBucket(ctx, "own", peer.BucketProps{Copies: 3, Durability: peer.Relaxed}))
	want := map[string]peer.BucketProps{"plain": {Copies: 1, Durability: peer.Sync}, "own": {Copies: 3, Durability: peer.Relaxed}}
	check := func(p *peer.Client) {
		t.Helper()
		for range c.Nodes { // each of them answers in turn
			list, err := p.Buckets(ctx)
			must(t, err)
			for _, b := range list {
				if b.BucketProps != want[b.Name] {
					t.Errorf("bucket %s has %+v, want %+v", b.Name, b.BucketProps, want[b.Name])
				}
				if one, err := p.Bucket(ctx, b.Name); err != nil || !reflect.DeepEqual(one, b) {
					t.Errorf("%+v %v, listed is %+v", one, err, b)
				}
			}
		}
	}
	check(c.Peer)
	before, err := c.Peer.Bucket(ctx, "plain")
	must(t, err)
	two := 2
	after, err := c.Peer.SetBucket(ctx, "plain", peer.BucketChange{Copies: &two})
	must(t, err)
	want["plain"] = peer.BucketProps{Copies: 2, Durability: peer.Sync}
	if after.BucketProps != want["plain"] || after.Epoch <= before.Epoch {
		t.Errorf("%+v after the change, %+v before", after, before)
	}
	check(c.Peer)
	if same, err := c.Peer.SetBucket(ctx, "plain", peer.BucketChange{Copies: &two}); err != nil || same.Epoch != after.Epoch {
		t.Errorf("%+v %v after a change to what it is, %+v before", same, err, after)
	}

	four, none, bad, url := 4, 0, "often", "ftp://x"
	for _, f := range []struct {
		p     peer.BucketProps
		code  errs.Code
		words []string
	}{
		{peer.BucketProps{Copies: 4}, errs.InvalidArgument, []string{"4 copies", "has 3", "bad"}},
		{peer.BucketProps{Copies: 65, Durability: "often"}, errs.InvalidArgument, []string{"copies is 65", `"often"`}},
		{peer.BucketProps{Backend: "ftp://x"}, errs.InvalidArgument, []string{"backend", "ftp"}},
		{peer.BucketProps{Validate: true}, errs.InvalidArgument, []string{"validate needs a backend"}},
	} {
		fails(t, fmt.Sprintf("create with %+v", f.p), c.Peer.CreateBucket(ctx, "bad", f.p), f.code, f.words...)
	}
	for _, ch := range []peer.BucketChange{{Copies: &four}, {Durability: &bad}, {Backend: &url}} {
		_, err := c.Peer.SetBucket(ctx, "own", ch)
		fails(t, fmt.Sprintf("change %+v", ch), err, errs.InvalidArgument, "own")
	}
	if got, err := c.Peer.SetBucket(ctx, "own", peer.BucketChange{Copies: &none}); err != nil || got.Copies != 1 {
		t.Errorf("0 copies, which stands for the default: %+v %v", got, err)
	}
	want["own"] = peer.BucketProps{Copies: 1, Durability: peer.Relaxed}
	_, err = c.Peer.SetBucket(ctx, "nix", peer.BucketChange{Copies: &two})
	fails(t, "change of no bucket", err, errs.BucketNotFound, "nix")
	_, err = c.Peer.Bucket(ctx, "nix")
	fails(t, "show no bucket", err, errs.BucketNotFound, "nix")
	check(c.Peer)

	// They are there after all nodes were gone.
	var addrs []string
	for _, n := range c.Nodes {
		addrs = append(addrs, n.Addr())
		must(t, n.Close())
	}
	for i := range c.Nodes {
		n := testcluster.Restart(t, c, i, addrs[i])
		t.Cleanup(func() { must(t, n.Close()) })
	}
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Endpoint())
	check(p)
}

// changeAt makes or destroys a bucket through one node.
func changeAt(t *testing.T, c *testcluster.Cluster, i int, m *peer.BucketMessage) {
	t.Helper()
	must(t, c.Peer.At(bounded(t), c.Nodes[i].Addr(), m, func(*peer.Call, wire.Head) error { return nil }))
}

// A node that was away while a bucket was destroyed and made anew drops what it has of
// the old one, also when another new object of that name has come.
func TestBucketMadeAnewWhileNodeWasAway(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b", "kept", "gone")
	var old []string
	for i := range 30 {
		for _, b := range []string{"b", "kept", "gone"} {
			c.Put(t, b, fmt.Sprint("o", i), []byte("old"))
		}
		if ownerOf(c, "b", fmt.Sprint("o", i)) == 1 {
			old = append(old, fmt.Sprint("o", i))
		}
	}
	if len(old) == 0 {
		t.Fatal("no object lies on the node")
	}
	addr := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close())
	for i, b := range []string{"b", "gone"} {
		changeAt(t, c, 2*i, &peer.BucketMessage{Kind: wire.TBucketDestroy, Name: b, Force: true})
	}
	changeAt(t, c, 2, &peer.BucketMessage{Kind: wire.TBucketCreate, Name: "b"})
	// From its first answer on it knows: nobody is given an old object, or may write
	// into the old bucket.
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: testcluster.Identity(t, c.Certs, peer.ClientName)})
		must(t, err)
		t.Cleanup(func() { _ = ep.Close() })
		wg.Go(func() { // ends with stop
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(i) * 3 * time.Millisecond):
				}
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				call, err := ep.Open(ctx, addr)
				if err == nil {
					_, err = call.Do(&peer.ObjectRequest{Kind: wire.THead, Bucket: "b", Object: old[i%len(old)], Forwarded: true}, func(wire.Head) error { return nil })
					call.Close()
					if err == nil {
						t.Error("a node that came back gave an object of the bucket before")
					}
				}
				cancel()
			}
		})
	}
	o := options(t, c, "n2")
	o.Dirs, o.Listen, o.Logger = []string{filepath.Join(c.Dir, "n2")}, addr, slog.New(slog.NewTextHandler(t.Output(), nil))
	n := start(t, o)
	c.Nodes[1] = n
	close(stop)
	wg.Wait()

	waitFor(t, "the old objects to go", func() bool {
		page, err := c.Peer.ListAt(bounded(t), addr, "b", peer.ListOptions{})
		return err == nil && len(page.Objects) == 0
	})
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Endpoint())
	for _, name := range old {
		_, err := getAt(t, p, addr, &peer.ObjectRequest{Bucket: "b", Object: name, Forwarded: true})
		fails(t, "an old object", err, errs.NotFound)
	}
	waitFor(t, "the destroyed bucket to go", func() bool { return bucketNames(t, p, addr) == "b kept" })
	if left, err := filepath.Glob(filepath.Join(c.Dir, n.Name(), "@sheaf", "*")); err != nil || len(left) != 2 {
		t.Errorf("on disk are %q %v", left, err)
	}
	if objects, _, _ := listAll(t, p, "kept", peer.ListOptions{}); len(objects) != 30 {
		t.Errorf("of the bucket that stayed %d of 30 objects are there", len(objects))
	}
	for i := range 30 {
		c.Put(t, "b", fmt.Sprint("o", i), []byte("new"))
	}
	for i := range 30 {
		if got, err := get(t, p, "b", fmt.Sprint("o", i), peer.GetOptions{}); err != nil || string(got) != "new" {
			t.Errorf("o%d is %q %v", i, got, err)
		}
	}
}

// A node that was killed between keeping the news of a bucket's end and removing its
// folders does the rest when it starts.
func TestDestructionIsFinishedAtStart(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "b")
	c.Put(t, "b", "o", []byte("old"))
	addr := c.Endpoint()
	must(t, c.Nodes[0].Close())
	path := filepath.Join(c.Dir, "n1", ".sheaf-node.json")
	text, err := os.ReadFile(path)
	must(t, err)
	var state map[string]any
	must(t, json.Unmarshal(text, &state))
	state["buckets"].([]any)[0].(map[string]any)["deleted"] = true
	text, err = json.Marshal(state)
	must(t, err)
	must(t, os.WriteFile(path, text, 0o600))
	n := testcluster.Restart(t, c, 0, addr)
	t.Cleanup(func() { must(t, n.Close()) })
	if left, err := filepath.Glob(filepath.Join(c.Dir, "n1", "@sheaf", "*")); err != nil || len(left) != 0 {
		t.Errorf("on disk are %q %v", left, err)
	}
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), addr)
	must(t, p.CreateBucket(bounded(t), "b", peer.BucketProps{}))
	_, err = p.Head(bounded(t), "b", "o")
	fails(t, "an object of the bucket before", err, errs.NotFound)
}
