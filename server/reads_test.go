package server_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
	"sheaf/server"
)

// damage turns over a byte of a node's copy of an object, behind the store's back.
func damage(t testing.TB, c *testcluster.Cluster, i int, bucket, object string, at int64) {
	t.Helper()
	f, err := os.OpenFile(onDisk(c, i, bucket, object), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	must(t, err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b[:], at)
	must(t, err)
}

// A bad copy is replaced by another holder's, and until then read around.
func TestCorruptCopy(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	settle(t, c)
	const big = 3*wire.ChunkSize + 1000
	for what, f := range map[string]struct {
		size int
		at   int64
		seen bool // by the first reader: what is wrong is out before it shows
	}{
		"small":                 {1000, 500, false},
		"at the end of a large": {big, big - 1, false},
		"in the first chunk":    {big, 5, true},
	} {
		name := strings.ReplaceAll(what, " ", "-")
		data := noise(uint64(f.size), f.size)
		c.Put(t, "b", name, data)
		hold := holdersOf(c, "b", name, 2)
		damage(t, c, hold[0], "b", name, f.at)
		got, err := get(t, c.Peer, "b", name, peer.GetOptions{})
		if f.seen {
			fails(t, "the first GET of what is bad "+what, err, errs.ChecksumMismatch)
		} else if err != nil || !bytes.Equal(got, data) {
			t.Errorf("bad %s: %d bytes, %v", what, len(got), err)
		}
		// From now on the bad copy is known.
		if got, err := get(t, c.Peer, "b", name, peer.GetOptions{}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("the second GET of what is bad %s: %d bytes, %v", what, len(got), err)
		}
		waitFor(t, "the copy to be replaced", func() bool {
			_, err := c.Nodes[hold[0]].Store().Verify(bounded(t), "b", name, nil)
			rec := records(t, c, "b", name)
			return err == nil && rec[hold[0]].Version == rec[hold[1]].Version
		})
		rec := records(t, c, "b", name)
		held(t, c, "b", name, 2, rec[hold[1]].Version, false)
	}
	if n := total(t, c, "sheaf_bad_copies_total"); n < 3 {
		t.Errorf("%v bad copies were counted", n)
	}

	// A batch reads around them as well, whoever assembles it.
	req := &batching.Request{Bucket: "b"}
	var want [][]byte
	for i := range 12 {
		name := fmt.Sprintf("o%d", i)
		want = append(want, noise(uint64(i), 40_000))
		c.Put(t, "b", name, want[i])
		damage(t, c, holdersOf(c, "b", name, 2)[0], "b", name, int64(i))
		req.In = append(req.In, batching.Entry{ObjName: name})
	}
	for _, err := range batchIs(t, c, req, want) {
		if err != nil {
			t.Error(err)
		}
	}
}

// batchIs runs a batch, compares the payloads with want, and gives the entries' errors.
func batchIs(t testing.TB, c *testcluster.Cluster, req *batching.Request, want [][]byte) []error {
	t.Helper()
	on := *req
	on.In, on.ID, on.Coer, on.MaxSoftErrors = slices.Clone(req.In), "", true, -1
	s, err := c.Batch.GetBatch(bounded(t), &on)
	must(t, err)
	defer s.Close()
	failed := make([]error, len(on.In))
	for i := range on.In {
		it, err := s.Next()
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		data, err := it.Bytes()
		if failed[i] = err; err == nil && !bytes.Equal(data, want[i]) {
			t.Errorf("entry %d: %d bytes, which aren't those wanted", i, len(data))
		}
	}
	if _, err := s.Next(); err != io.EOF {
		t.Errorf("the batch ends with %v", err)
	}
	return failed
}

// A copy that isn't where it should be is found at another holder, and made again.
func TestMissingCopy(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	settle(t, c)
	shard := makeTar(t, file{"m", noise(3, 5000)})
	c.Put(t, "b", "s.tar", shard)
	hold := holdersOf(c, "b", "s.tar", 2)
	rec := records(t, c, "b", "s.tar")[hold[0]]
	for what, o := range map[string]peer.GetOptions{"whole": {}, "range": {Start: 100, Length: 300}, "member": {ArchPath: "m"}, "its range": {ArchPath: "m", Start: 9, Length: -1}} {
		want := shard
		if o.ArchPath != "" {
			want = noise(3, 5000)
		}
		if o.Start > 0 {
			want = want[o.Start:]
		}
		if o.Length > 0 {
			want = want[:o.Length]
		}
		must(t, c.Nodes[hold[0]].Store().Remove("b", "s.tar", rec.Version))
		if got, err := get(t, c.Peer, "b", "s.tar", o); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", what, len(got), err)
		}
		waitFor(t, "the copy to be there again", func() bool { return records(t, c, "b", "s.tar")[hold[0]].Version == rec.Version })
	}
	must(t, c.Nodes[hold[0]].Store().Remove("b", "s.tar", rec.Version))
	info, members, err := c.Peer.Members(bounded(t), "b", "s.tar")
	if err != nil || len(members) != 1 || info.Version != rec.Version {
		t.Errorf("members: %v %+v %v", members, info, err)
	}
	waitFor(t, "the copy to be there again", func() bool { return records(t, c, "b", "s.tar")[hold[0]].Version == rec.Version })
	must(t, c.Nodes[hold[0]].Store().Remove("b", "s.tar", rec.Version))
	if info, err := c.Peer.Head(bounded(t), "b", "s.tar"); err != nil || info.Version != rec.Version {
		t.Errorf("HEAD: %+v %v", info, err)
	}
	_, err = get(t, c.Peer, "b", "s.tar", peer.GetOptions{ArchPath: "none"})
	fails(t, "a member that isn't in it", err, errs.NotFound, "none")
	_, err = get(t, c.Peer, "b", "none", peer.GetOptions{})
	fails(t, "an object that isn't there", err, errs.NotFound, "none")
}

// While objects may lie anywhere, the newest version counts, wherever it is: a copy that
// came back from a node that was away doesn't hide it, nor does a deletion.
func TestNewestCounts(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 1)
	settle(t, c)
	for _, n := range c.Nodes {
		n.Unsettle(true)
	}
	node, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.NodeName), c.Endpoint())
	req := &batching.Request{Bucket: "b"}
	var want [][]byte
	for i := range 30 {
		name := fmt.Sprintf("o%d", i)
		first, err := c.Peer.Put(bounded(t), "b", name, strings.NewReader("older"), peer.PutOptions{Size: 5})
		must(t, err)
		owner := ownerOf(c, "b", name)
		newest := fmt.Sprintf("newest of %s, %s", name, noise(uint64(i), i*700))
		if i%3 > 0 {
			// Elsewhere there is a newer one, or the only one.
			must(t, stageAt(t, node, c.Nodes[(owner+i)%3].Addr(), "b", name, newest, first.Version+5))
		} else {
			newest = "older"
			must(t, stageAt(t, node, c.Nodes[(owner+1)%3].Addr(), "b", name, "oldest", first.Version-5))
		}
		if i%5 == 0 && i%3 > 0 {
			must(t, c.Nodes[owner].Store().Remove("b", name, first.Version))
		}
		for _, n := range c.Nodes {
			got, err := getAt(t, c.Peer, n.Addr(), &peer.ObjectRequest{Bucket: "b", Object: name})
			if err != nil || string(got) != newest {
				t.Errorf("%s through %s: %d bytes, %v", name, n.Name(), len(got), err)
			}
		}
		req.In = append(req.In, batching.Entry{ObjName: name}, batching.Entry{ObjName: name, Start: 2, Length: -1})
		want = append(want, []byte(newest), []byte(newest[2:]))
	}
	for range 4 {
		for i, err := range batchIs(t, c, req, want) {
			if err != nil {
				t.Errorf("entry %d: %v", i, err)
			}
		}
	}
	if total(t, c, "sheaf_neighbor_reads_total") == 0 || total(t, c, "sheaf_surveys_total") == 0 {
		t.Error("nothing was counted")
	}

	// A condition is about the newest as well.
	o := "o1"
	head, err := c.Peer.Head(bounded(t), "b", o)
	must(t, err)
	_, err = c.Peer.Put(bounded(t), "b", o, strings.NewReader("x"), peer.PutOptions{Size: 1, IfVersion: head.Version - 5})
	fails(t, "a PUT if the older version", err, errs.VersionMismatch)
	put, err := c.Peer.Put(bounded(t), "b", o, strings.NewReader("x"), peer.PutOptions{Size: 1, IfVersion: head.Version})
	if err != nil || put.Version <= head.Version {
		t.Errorf("a PUT if the newest version: %+v %v", put, err)
	}
	// A deletion that only another node knows of.
	must(t, node.TombstoneAt(bounded(t), c.Nodes[(ownerOf(c, "b", o)+1)%3].Addr(), "b", o, put.Version+5))
	_, err = c.Peer.Head(bounded(t), "b", o)
	fails(t, "HEAD of what was deleted elsewhere", err, errs.NotFound)
	fails(t, "its DELETE", c.Peer.Delete(bounded(t), "b", o), errs.NotFound)
	made, err := c.Peer.Put(bounded(t), "b", o, strings.NewReader("y"), peer.PutOptions{Size: 1, IfAbsent: true})
	if err != nil || made.Version <= put.Version+5 {
		t.Errorf("a PUT if absent: %+v %v", made, err)
	}
}

// setDown tells all nodes but i that i is down.
func setDown(t testing.TB, c *testcluster.Cluster, i int) {
	t.Helper()
	m := c.Nodes[(i+1)%len(c.Nodes)].Map()
	me := m.Nodes[m.Find(c.Nodes[i].Name())]
	if me.State == peer.Down {
		return
	}
	me.State, me.Epoch = peer.Down, me.Epoch+1
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: testcluster.Identity(t, c.Certs, peer.NodeName)})
	must(t, err)
	defer ep.Close()
	for k, n := range c.Nodes {
		if k == i {
			continue
		}
		call, err := ep.Open(bounded(t), n.Addr())
		must(t, err)
		must(t, call.W.Frame(&peer.MapMessage{Kind: wire.TMapPush, Map: peer.NewMap(m.Cluster, m.Version+1, []peer.Node{me})}, nil))
		must(t, call.W.Frame(&wire.End{}, nil))
		must(t, call.CloseSend())
		for err = nil; err == nil; {
			_, _, err = call.Next()
		}
		if err != io.EOF {
			t.Fatal(err)
		}
		call.Close()
	}
	must(t, c.Peer.Refresh(bounded(t)))
}

// What may lie on a node that is down isn't "not found".
func TestDownNode(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Adjust: func(_ int, o *server.Options) { o.DrainTimeout = time.Millisecond }})
	for copies := 1; copies <= 3; copies++ {
		copied(t, c, fmt.Sprintf("b%d", copies), copies)
	}
	settle(t, c)
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Nodes[0].Addr())
	c.Peer, c.Batch = p, batching.NewClient(p)
	names := []string{ownedBy(c, 1, "b1", "x", ""), ownedBy(c, 0, "b1", "y", ""), ownedBy(c, 2, "b1", "z", "")}
	data := map[string][]byte{}
	for copies := 1; copies <= 3; copies++ {
		for i, name := range names {
			b := fmt.Sprintf("b%d", copies)
			data[b+name] = noise(uint64(10*copies+i), 3000+i)
			c.Put(t, b, name, data[b+name])
		}
	}
	addr := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close())
	setDown(t, c, 1)

	// One copy: what n2 had, or may have.
	lost := names[0]
	_, err := get(t, p, "b1", lost, peer.GetOptions{})
	fails(t, "GET of what is on the node", err, errs.Unavailable, "n2", lost)
	_, err = p.Head(bounded(t), "b1", lost)
	fails(t, "HEAD of what is on the node", err, errs.Unavailable, "n2")
	_, err = p.Head(bounded(t), "b1", "never")
	fails(t, "HEAD of what was never there", err, errs.Unavailable, "n2")
	fails(t, "DELETE of what is on the node", p.Delete(bounded(t), "b1", lost), errs.Unavailable, "n2")
	_, err = p.Put(bounded(t), "b1", lost, strings.NewReader("x"), peer.PutOptions{Size: 1, IfAbsent: true})
	fails(t, "a PUT of it if absent", err, errs.Unavailable, "n2")
	_, err = p.Copy(bounded(t), peer.ObjectName{Bucket: "b1", Object: lost}, peer.ObjectName{Bucket: "b1", Object: "copy"}, peer.CopyOptions{})
	fails(t, "its copy", err, errs.Unavailable, "n2")
	for _, name := range names[1:] {
		if got, err := get(t, p, "b1", name, peer.GetOptions{}); err != nil || !bytes.Equal(got, data["b1"+name]) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	// Two copies: all is there, and new objects find two nodes.
	req := &batching.Request{Bucket: "b2"}
	var want [][]byte
	for _, name := range names {
		req.In = append(req.In, batching.Entry{ObjName: name}, batching.Entry{ObjName: lost, Bucket: "b1"})
		want = append(want, data["b2"+name], nil)
	}
	for i, err := range batchIs(t, c, req, want) {
		if i%2 == 0 && err != nil {
			t.Errorf("entry %d: %v", i, err)
		} else if i%2 == 1 {
			fails(t, fmt.Sprint("entry ", i), err, errs.Unavailable, "n2")
		}
	}
	_, err = p.Head(bounded(t), "b2", "never")
	fails(t, "HEAD of what was never there, with two copies", err, errs.NotFound)
	for i := range 10 {
		name := fmt.Sprintf("new%d", i)
		if _, err := p.Put(bounded(t), "b2", name, strings.NewReader(name), peer.PutOptions{Size: -1, IfAbsent: true}); err != nil {
			t.Error(err)
		}
		if got, err := get(t, p, "b2", name, peer.GetOptions{}); err != nil || string(got) != name {
			t.Errorf("%q %v", got, err)
		}
	}
	must(t, p.Delete(bounded(t), "b2", names[0]))
	_, err = p.Head(bounded(t), "b2", names[0])
	fails(t, "HEAD of what was deleted", err, errs.NotFound)
	// Three copies: too few nodes for a new object, enough for reading and deleting.
	_, err = p.Put(bounded(t), "b3", "o", strings.NewReader("x"), peer.PutOptions{Size: 1})
	fails(t, "a PUT of three copies", err, errs.Unavailable, "3 copies", "2 nodes")
	if got, err := get(t, p, "b3", names[1], peer.GetOptions{}); err != nil || !bytes.Equal(got, data["b3"+names[1]]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	must(t, p.Delete(bounded(t), "b3", names[1]))

	// Back again: what it had is there, and what was deleted meanwhile isn't.
	back := testcluster.Restart(t, c, 1, addr)
	t.Cleanup(func() { must(t, back.Close()) })
	waitFor(t, "n2 to be up again", func() bool {
		m := c.Nodes[0].Map()
		return m.Nodes[m.Find("n2")].State == peer.Up
	})
	must(t, p.Refresh(bounded(t)))
	// A pooled connection to the node as it was may only now be found dead.
	answer := func(what string, read func() ([]byte, error)) (got []byte, err error) {
		waitFor(t, what, func() bool {
			got, err = read()
			return !errs.IsCode(err, errs.Unavailable)
		})
		return got, err
	}
	got, err := answer("what n2 had", func() ([]byte, error) { return get(t, p, "b1", lost, peer.GetOptions{}) })
	if err != nil || !bytes.Equal(got, data["b1"+lost]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for b, name := range map[string]string{"b2": names[0], "b3": names[1]} {
		for _, n := range c.Nodes {
			what := b + "/" + name + " through " + n.Name()
			_, err := answer(what, func() ([]byte, error) {
				return getAt(t, p, n.Addr(), &peer.ObjectRequest{Bucket: b, Object: name})
			})
			fails(t, what, err, errs.NotFound)
		}
	}
}

// With two copies a batch is whole from the moment on that any one node is gone, before
// the others have noticed.
func TestBatchAfterDeath(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Adjust: func(_ int, o *server.Options) { o.DrainTimeout = time.Millisecond }})
	copied(t, c, "b", 2)
	settle(t, c)
	req := &batching.Request{Bucket: "b"}
	var want [][]byte
	for i := range 40 {
		name, data := fmt.Sprintf("o%d", i), noise(uint64(i), 1+i*i*200)
		e := batching.Entry{ObjName: name}
		if i%4 == 3 {
			e.ObjName, e.ArchPath = name+".tar", "a/member"
			c.Put(t, "b", e.ObjName, makeTar(t, file{"first", noise(1, 100)}, file{e.ArchPath, data}))
		} else {
			c.Put(t, "b", name, data)
		}
		if i%4 == 2 {
			e.Start, e.Length = int64(i), int64(len(data)-2*i)
			data = data[i : len(data)-i]
		}
		req.In, want = append(req.In, e), append(want, data)
	}
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), c.Nodes[0].Addr())
	c.Peer, c.Batch = p, batching.NewClient(p)
	must(t, c.Nodes[2].Close())
	for i, err := range batchIs(t, c, req, want) {
		if err != nil {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	for i, e := range req.In {
		got, err := getAt(t, p, c.Nodes[i%2].Addr(), &peer.ObjectRequest{Bucket: "b", Object: e.ObjName, Member: e.ArchPath, Start: e.Start, Length: e.Length})
		if err != nil || !bytes.Equal(got, want[i]) {
			t.Errorf("GET of entry %d: %d bytes, %v", i, len(got), err)
		}
	}
}
