package server_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
	"sheaf/server"
)

// filled reads as n times s[0].
func filled(s string, n int) *bytes.Reader {
	return bytes.NewReader(bytes.Repeat([]byte(s[:1]), n))
}

func TestListOverThreeNodes(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b", "other")
	const n = 2500
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("d%d/e%d/o%04d", i%7, i%3, i))
	}
	want = append(want, "top", "d0", "d1-", "zz/")
	work := make(chan string)
	done := make(chan error)
	for range 8 {
		go func() { // ends with work
			var err error
			for name := range work {
				if err == nil {
					_, err = c.Peer.Put(t.Context(), "b", name, strings.NewReader(name), peer.PutOptions{Size: int64(len(name))})
				}
			}
			done <- err
		}()
	}
	for _, name := range want {
		work <- name
	}
	close(work)
	for range 8 {
		must(t, <-done)
	}
	c.Put(t, "other", "not this one", nil)
	slices.Sort(want)

	for _, node := range c.Nodes {
		page, err := c.Peer.ListAt(bounded(t), node.Addr(), "b", peer.ListOptions{})
		must(t, err)
		if len(page.Objects) < n/6 {
			t.Errorf("node %s holds %d of %d objects", node.Name(), len(page.Objects), n)
		}
	}
	objects, prefixes, pages := listAll(t, c.Peer, "b", peer.ListOptions{})
	if !slices.Equal(objects, want) || prefixes != nil || pages != 1 {
		t.Errorf("%d objects, %d prefixes, %d pages; want %d objects in one page", len(objects), len(prefixes), pages, len(want))
	}
	objects, _, pages = listAll(t, c.Peer, "b", peer.ListOptions{Limit: 101})
	if !slices.Equal(objects, want) || pages < len(want)/101 {
		t.Errorf("%d objects in %d pages", len(objects), pages)
	}
	objects, prefixes, _ = listAll(t, c.Peer, "b", peer.ListOptions{Delimiter: "/", Limit: 3})
	if fmt.Sprint(objects, prefixes) != "[d0 d1- top] [d0/ d1/ d2/ d3/ d4/ d5/ d6/ zz/]" {
		t.Errorf("at the top: %q %q", objects, prefixes)
	}
	objects, prefixes, _ = listAll(t, c.Peer, "b", peer.ListOptions{Delimiter: "/", Prefix: "d3/e"})
	if objects != nil || fmt.Sprint(prefixes) != "[d3/e0/ d3/e1/ d3/e2/]" {
		t.Errorf("below d3/e: %q %q", objects, prefixes)
	}
	var below []string
	for _, name := range want {
		if strings.HasPrefix(name, "d5/e1/o1") && name > "d5/e1/o12" {
			below = append(below, name)
		}
	}
	objects, _, _ = listAll(t, c.Peer, "b", peer.ListOptions{Prefix: "d5/e1/o1", StartAfter: "d5/e1/o12", Limit: 7})
	if !slices.Equal(objects, below) || len(below) == 0 {
		t.Errorf("below a prefix, after a name: %q, want %q", objects, below)
	}
	if objects, prefixes, _ = listAll(t, c.Peer, "b", peer.ListOptions{Prefix: "nothing"}); len(objects)+len(prefixes) != 0 {
		t.Errorf("%q %q begin with nothing", objects, prefixes)
	}
	page, err := c.Peer.List(bounded(t), "b", peer.ListOptions{Prefix: "top"})
	must(t, err)
	if o := page.Objects[0]; o.Size != 3 || o.Checksum != xxh3.HashString("top") || o.Version == 0 || o.ModTime.IsZero() {
		t.Errorf("%+v", o)
	}
	for what, o := range map[string]peer.ListOptions{"delimiter": {Delimiter: "-"}, "prefix": {Prefix: "a/../b"}} {
		_, err := c.Peer.List(bounded(t), "b", o)
		fails(t, what, err, errs.InvalidArgument, what)
	}
	_, err = c.Peer.List(bounded(t), "none", peer.ListOptions{})
	fails(t, "no bucket", err, errs.BucketNotFound, "none")
}

// A listing with a node missing would look whole and not be.
func TestListNeedsEveryNode(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	c.Put(t, "b", "o", []byte("x"))
	must(t, c.Nodes[1].Close())
	for _, i := range []int{0, 2} {
		err := c.Peer.At(bounded(t), c.Nodes[i].Addr(), &peer.ListRequest{Bucket: "b"}, func(*peer.Call, wire.Head) error { return nil })
		fails(t, "a listing at "+c.Nodes[i].Name(), err, errs.Unavailable, "node n2")
	}
}

func TestEveryNodeIsGateway(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	shard := makeTar(t, file{"m/1", noise(1, 900)}, file{"m/2", noise(2, 70_000)})
	for i, owner := range c.Nodes {
		for j, gateway := range c.Nodes {
			what := fmt.Sprintf("owner %s, asked %s", owner.Name(), gateway.Name())
			addr := gateway.Addr()
			name := ownedBy(c, i, "b", fmt.Sprintf("g%d-", j), ".tar")
			sum := xxh3.Hash(shard)
			put, err := c.Peer.PutAt(bounded(t), addr, &peer.PutRequest{Bucket: "b", Object: name, Size: int64(len(shard)), Sized: true}, bytes.NewReader(shard))
			must(t, err)
			if put.Size != int64(len(shard)) || put.Checksum != sum {
				t.Errorf("%s: %+v", what, put)
			}
			if _, err := getAt(t, c.Peer, owner.Addr(), &peer.ObjectRequest{Bucket: "b", Object: name, Forwarded: true}); err != nil {
				t.Errorf("%s: the owner doesn't have it: %v", what, err)
			}
			for _, r := range []struct {
				req  peer.ObjectRequest
				want []byte
			}{
				{peer.ObjectRequest{}, shard},
				{peer.ObjectRequest{Start: 1000, Length: 50}, shard[1000:1050]},
				{peer.ObjectRequest{Start: int64(len(shard)) - 7, Length: -1}, shard[len(shard)-7:]},
				{peer.ObjectRequest{Member: "m/2"}, noise(2, 70_000)},
				{peer.ObjectRequest{Member: "m/1", Start: 100, Length: 800}, noise(1, 900)[100:]},
			} {
				r.req.Bucket, r.req.Object = "b", name
				if got, err := getAt(t, c.Peer, addr, &r.req); err != nil || !bytes.Equal(got, r.want) {
					t.Errorf("%s: GET %+v gives %d bytes, want %d: %v", what, r.req, len(got), len(r.want), err)
				}
			}
			head := func(member string) (peer.ObjectInfo, error) {
				var m peer.ObjectMessage
				err := c.Peer.At(bounded(t), addr, &peer.ObjectRequest{Kind: wire.THead, Bucket: "b", Object: name, Member: member},
					func(call *peer.Call, _ wire.Head) error { return call.R.Decode(&m) })
				return peer.ObjectInfo(m), err
			}
			if info, err := head(""); err != nil || info.Size != put.Size || info.Version != put.Version || info.Checksum != sum {
				t.Errorf("%s: HEAD gives %+v %v, PUT gave %+v", what, info, err, put)
			}
			if info, err := head("m/1"); err != nil || info.Size != 900 || info.Version != put.Version {
				t.Errorf("%s: HEAD of a member gives %+v %v", what, info, err)
			}
			var members []peer.MemberInfo
			must(t, c.Peer.At(bounded(t), addr, &peer.ObjectRequest{Kind: wire.TMembers, Bucket: "b", Object: name}, func(call *peer.Call, h wire.Head) error {
				if h.Type == wire.TObject {
					return nil
				}
				var m peer.TableMessage
				err := call.R.Decode(&m)
				members = append(members, m.Members...)
				return err
			}))
			if len(members) != 2 || members[0].Name != "m/1" || members[1].Size != 70_000 {
				t.Errorf("%s: members %+v", what, members)
			}
			remove := func() error {
				return c.Peer.At(bounded(t), addr, &peer.ObjectRequest{Kind: wire.TDelete, Bucket: "b", Object: name}, func(*peer.Call, wire.Head) error { return nil })
			}
			must(t, remove())
			fails(t, what+": DELETE again", remove(), errs.NotFound, "b/"+name)
			_, err = head("")
			fails(t, what+": HEAD of what is gone", err, errs.NotFound, "b/"+name)
			_, err = head("m/1")
			fails(t, what+": HEAD of a member of what is gone", err, errs.NotFound, "b/"+name)
			_, err = getAt(t, c.Peer, addr, &peer.ObjectRequest{Bucket: "b", Object: name})
			fails(t, what+": GET of what is gone", err, errs.NotFound, "b/"+name)
			_, err = getAt(t, c.Peer, addr, &peer.ObjectRequest{Bucket: "none", Object: name})
			fails(t, what+": GET from no bucket", err, errs.BucketNotFound, "none")
		}
	}
}

func TestRangesRefused(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "b")
	c.Put(t, "b", "o", noise(1, 1000))
	for _, r := range []struct {
		start, length int64
		code          errs.Code
	}{
		{-1, 5, errs.InvalidArgument}, {0, -2, errs.InvalidArgument}, {5, 0, errs.InvalidArgument},
		{0, 1001, errs.RangeNotSatisfiable}, {1001, -1, errs.RangeNotSatisfiable}, {1001, 1, errs.RangeNotSatisfiable}, {1 << 62, 1 << 62, errs.RangeNotSatisfiable},
	} {
		_, err := get(t, c.Peer, "b", "o", peer.GetOptions{Start: r.start, Length: r.length})
		fails(t, fmt.Sprintf("start %d length %d", r.start, r.length), err, r.code, "b/o")
	}
	if got, err := get(t, c.Peer, "b", "o", peer.GetOptions{Start: 1000, Length: -1}); err != nil || len(got) != 0 {
		t.Errorf("%d bytes behind the last: %v", len(got), err)
	}
}

// A PUT whose bytes aren't those that were announced leaves what was there.
func TestPutRefused(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	for i, n := range c.Nodes {
		name := ownedBy(c, 1, "b", fmt.Sprint("p", i, "-"), "")
		c.Put(t, "b", name, []byte("before"))
		before, err := c.Peer.Head(bounded(t), "b", name)
		must(t, err)
		send := func(req peer.PutRequest, data string, end *wire.End) error {
			req.Bucket, req.Object = "b", name
			call, err := c.Caller.Open(bounded(t), n.Addr())
			must(t, err)
			defer call.Close()
			must(t, call.W.Frame(&req, nil))
			must(t, call.W.Frame(&peer.Data{}, []byte(data)))
			if end != nil {
				must(t, call.W.Frame(end, nil))
			}
			must(t, call.CloseSend())
			for {
				if _, _, err := call.Next(); err != nil {
					return err
				}
			}
		}
		sum := xxh3.HashString("after")
		fails(t, "a wrong sum", send(peer.PutRequest{}, "after", &wire.End{Bytes: 5, Sum: sum + 1}), errs.ChecksumMismatch)
		fails(t, "a wrong count", send(peer.PutRequest{}, "after", &wire.End{Bytes: 4, Sum: sum}), errs.ChecksumMismatch)
		fails(t, "another size", send(peer.PutRequest{Sized: true, Size: 6}, "after", &wire.End{Bytes: 5, Sum: sum}), errs.InvalidArgument)
		fails(t, "another checksum", send(peer.PutRequest{Summed: true, Sum: sum + 1}, "after", &wire.End{Bytes: 5, Sum: sum}), errs.ChecksumMismatch)
		if err := send(peer.PutRequest{}, "after", nil); err == nil || err == io.EOF {
			t.Errorf("without a trailer: %v", err)
		}
		if got, err := get(t, c.Peer, "b", name, peer.GetOptions{}); err != nil || string(got) != "before" {
			t.Errorf("refused writes left %q %v", got, err)
		}
		// The same bytes again end the call at once and make no version.
		same := xxh3.HashString("before")
		must(t, ok(send(peer.PutRequest{Summed: true, Sum: same, Sized: true, Size: 6}, "before", &wire.End{Bytes: 6, Sum: same})))
		if info, err := c.Peer.Head(bounded(t), "b", name); err != nil || info.Version != before.Version {
			t.Errorf("the same bytes made version %d of %d: %v", info.Version, before.Version, err)
		}
		must(t, ok(send(peer.PutRequest{}, "after", &wire.End{Bytes: 5, Sum: sum})))
		if info, err := c.Peer.Head(bounded(t), "b", name); err != nil || info.Version <= before.Version {
			t.Errorf("version %d after %d: %v", info.Version, before.Version, err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(c.Dir, "*", "@sheaf", "b", "%wk", "*")); err != nil || len(left) > 0 {
		t.Errorf("work files are left: %q %v", left, err)
	}
}

// ok is nil for the end of an answer.
func ok(err error) error {
	if err == io.EOF {
		return nil
	}
	return err
}

// onDisk is where an object lies on node i.
func onDisk(c *testcluster.Cluster, i int, bucket, object string) string {
	return filepath.Join(c.Dir, c.Nodes[i].Name(), "@sheaf", bucket, "%ob", object)
}

// Bytes that changed on disk never pass for those that were stored.
func TestCorruptObject(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	req := &batching.Request{Bucket: "b", Coer: true}
	good := noise(3, 5000)
	var bad []string
	for i, size := range []int{1, 1000, wire.ChunkSize, 3*wire.ChunkSize + 17} {
		name := ownedBy(c, i%3, "b", fmt.Sprint("bad", i, "-"), "")
		c.Put(t, "b", name, noise(uint64(size), size))
		f, err := os.OpenFile(onDisk(c, i%3, "b", name), os.O_RDWR, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{^noise(uint64(size), size)[size-1]}, int64(size)-1)
		must(t, err)
		must(t, f.Close())
		c.Put(t, "b", fmt.Sprint("good", i), good)
		req.In = append(req.In, batching.Entry{ObjName: name}, batching.Entry{ObjName: fmt.Sprint("good", i)})
		bad = append(bad, name)
	}
	for _, name := range bad {
		for _, n := range c.Nodes {
			_, err := getAt(t, c.Peer, n.Addr(), &peer.ObjectRequest{Bucket: "b", Object: name})
			fails(t, "GET of "+name+" through "+n.Name(), err, errs.ChecksumMismatch)
		}
	}
	for range 6 { // each node assembles now and then
		req.ID = ""
		s, err := c.Batch.GetBatch(bounded(t), req)
		must(t, err)
		for i := range req.In {
			it, err := s.Next()
			must(t, err)
			data, err := it.Bytes()
			if i%2 == 1 {
				if err != nil || !bytes.Equal(data, good) {
					t.Errorf("entry %d: %d bytes, %v", i, len(data), err)
				}
				continue
			}
			fails(t, fmt.Sprint("entry ", i), err, errs.ChecksumMismatch)
		}
		if _, err := s.Next(); err != io.EOF {
			t.Errorf("the batch ends with %v", err)
		}
		if totals := s.Totals(); totals.Failed != 4 || totals.OK != 4 {
			t.Errorf("%+v", totals)
		}
		must(t, s.Close())
	}
	strict := &batching.Request{Bucket: "b", In: []batching.Entry{{ObjName: "good0"}, {ObjName: bad[1]}}}
	var out bytes.Buffer
	_, err := c.Batch.GetArchive(bounded(t), strict, &out)
	fails(t, "without coer", err, errs.ChecksumMismatch, "entry 1", "b/"+bad[1])
}

// smallDisk mounts a file system of so many bytes for the test.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size="+size, "tmpfs", dir).CombinedOutput(); err != nil {
		t.Fatalf("mount a tmpfs, which takes root: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
	return dir
}

func TestDiskFull(t *testing.T) {
	dir := smallDisk(t, "2m")
	c := testcluster.Start(t, testcluster.Options{Nodes: 2, Adjust: func(i int, o *server.Options) {
		if i == 1 {
			o.Dirs = []string{filepath.Join(dir, "n2")}
		}
	}})
	c.Bucket(t, "b")
	name := func(prefix string) string { return ownedBy(c, 1, "b", prefix, "") }
	put := func(addr, object string, size int, sized bool) error {
		_, err := c.Peer.PutAt(bounded(t), addr, &peer.PutRequest{Bucket: "b", Object: object, Size: int64(size), Sized: sized}, bytes.NewReader(noise(1, size)))
		return err
	}
	const mb = 1 << 20
	small, big := name("small"), name("big")
	must(t, put(c.Nodes[1].Addr(), small, mb, true))
	for _, n := range c.Nodes {
		for _, sized := range []bool{true, false} {
			fails(t, fmt.Sprintf("PUT through %s, size known: %v", n.Name(), sized), put(n.Addr(), big, 4*mb, sized), errs.NoSpace, "b/"+big)
		}
		_, err := c.Peer.Head(bounded(t), "b", big)
		fails(t, "what had no room", err, errs.NotFound)
	}
	// The node lives on, and what it refused takes no room.
	if got, err := get(t, c.Peer, "b", small, peer.GetOptions{}); err != nil || !bytes.Equal(got, noise(1, mb)) {
		t.Errorf("%d bytes %v", len(got), err)
	}
	must(t, put(c.Nodes[0].Addr(), name("tiny"), 1000, true))
	s, err := c.Peer.Status(bounded(t), c.Nodes[1].Addr())
	if err != nil || s.Total != 2*mb || s.Free < mb/2 {
		t.Errorf("%+v %v", s, err)
	}
	second := name("second")
	fails(t, "the second megabyte", put(c.Nodes[1].Addr(), second, mb, true), errs.NoSpace, "b/"+second)
	must(t, c.Peer.Delete(bounded(t), "b", small))
	must(t, put(c.Nodes[1].Addr(), second, mb, true))
	if got, err := get(t, c.Peer, "b", second, peer.GetOptions{}); err != nil || len(got) != mb {
		t.Errorf("%d bytes %v", len(got), err)
	}
}
