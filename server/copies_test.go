package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
	"sheaf/server"
)

// copied makes a bucket with copies.
func copied(t testing.TB, c *testcluster.Cluster, bucket string, copies int) {
	t.Helper()
	must(t, c.Peer.CreateBucket(bounded(t), bucket, peer.BucketProps{Copies: copies}))
}

// settle waits until all nodes know that every object lies where it belongs.
func settle(t testing.TB, c *testcluster.Cluster) {
	t.Helper()
	for _, n := range c.Nodes {
		waitFor(t, n.Name()+" to be settled", func() bool {
			s, err := c.Peer.Status(bounded(t), n.Addr())
			return err == nil && s.Settled
		})
	}
}

// holdersOf gives the indexes of the nodes that hold an object, the owner first.
func holdersOf(c *testcluster.Cluster, bucket, object string, copies int) (out []int) {
	m := c.Nodes[0].Map()
	for _, h := range m.Holders(peer.HashObject(bucket, object), copies) {
		for i, n := range c.Nodes {
			if n.Name() == m.Nodes[h].Name {
				out = append(out, i)
			}
		}
	}
	return out
}

// records gives what each node's disks know of a name.
func records(t testing.TB, c *testcluster.Cluster, bucket, object string) []store.Record {
	t.Helper()
	out := make([]store.Record, len(c.Nodes))
	for i, n := range c.Nodes {
		r, err := n.Store().Lookup(bucket, object)
		if err != nil && !errs.IsCode(err, errs.NotFound) && !errs.IsCode(err, errs.Unavailable) { // the last: it may be on a mountpath out of use
			t.Fatal(err)
		}
		out[i] = r
	}
	return out
}

// held checks that exactly the holders have version of an object.
func held(t testing.TB, c *testcluster.Cluster, bucket, object string, copies int, version uint64, deleted bool) {
	t.Helper()
	recs := records(t, c, bucket, object)
	for _, h := range holdersOf(c, bucket, object, copies) {
		if recs[h].Version != version || recs[h].Deleted != deleted {
			t.Errorf("%s/%s on %s: version %d, deleted %v; want %d, %v", bucket, object, c.Nodes[h].Name(), recs[h].Version, recs[h].Deleted, version, deleted)
		}
		recs[h] = store.Record{}
	}
	for i, r := range recs {
		if r.Version != 0 {
			t.Errorf("%s/%s lies on %s, which isn't a holder", bucket, object, c.Nodes[i].Name())
		}
	}
}

// noWorkFiles waits until no node has a work file.
func noWorkFiles(t testing.TB, c *testcluster.Cluster) {
	t.Helper()
	var left []string
	waitFor(t, "work files to go", func() bool {
		left, _ = filepath.Glob(filepath.Join(c.Dir, "n*", "@sheaf", "*", "%wk", "*"))
		return len(left) == 0
	})
}

func TestCopies(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	for copies := 1; copies <= 3; copies++ {
		bucket := fmt.Sprintf("b%d", copies)
		copied(t, c, bucket, copies)
		for i, size := range []int{0, 100, 700_000} {
			name := fmt.Sprintf("dir/o%d", i)
			data := noise(uint64(size), size)
			attrs := map[string]string{"label": "cat", "n": fmt.Sprint(i)}
			put, err := c.Peer.Put(bounded(t), bucket, name, bytes.NewReader(data), peer.PutOptions{Size: int64(size), Attrs: attrs})
			must(t, err)
			held(t, c, bucket, name, copies, put.Version, false)
			var times []int64
			for _, h := range holdersOf(c, bucket, name, copies) {
				got, err := getAt(t, c.Peer, c.Nodes[h].Addr(), &peer.ObjectRequest{Bucket: bucket, Object: name, Forwarded: true})
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s/%s from %s: %d bytes, %v", bucket, name, c.Nodes[h].Name(), len(got), err)
				}
				rec, err := c.Nodes[h].Store().Lookup(bucket, name)
				must(t, err)
				if !maps.Equal(rec.Attrs, attrs) {
					t.Errorf("attributes on %s: %v", c.Nodes[h].Name(), rec.Attrs)
				}
				times = append(times, rec.ModTime.UnixNano())
				if times[0] != rec.ModTime.UnixNano() {
					t.Errorf("copies of several times: %v", times)
				}
			}
			head, err := c.Peer.Head(bounded(t), bucket, name)
			if err != nil || head.Version != put.Version || head.Checksum != xxh3.Hash(data) || !maps.Equal(head.Attrs, attrs) {
				t.Errorf("%+v %v", head, err)
			}

			again, err := c.Peer.Put(bounded(t), bucket, name, strings.NewReader("new"), peer.PutOptions{Size: -1})
			must(t, err)
			if again.Version <= put.Version || again.Size != 3 {
				t.Errorf("%+v after version %d", again, put.Version)
			}
			held(t, c, bucket, name, copies, again.Version, false)

			must(t, c.Peer.Delete(bounded(t), bucket, name))
			tomb := records(t, c, bucket, name)[holdersOf(c, bucket, name, copies)[0]]
			if tomb.Version <= again.Version || !tomb.Deleted {
				t.Errorf("%+v in place of version %d", tomb, again.Version)
			}
			held(t, c, bucket, name, copies, tomb.Version, true)
			_, err = c.Peer.Head(bounded(t), bucket, name)
			fails(t, "HEAD of what was deleted", err, errs.NotFound, name)
			fails(t, "DELETE of what was deleted", c.Peer.Delete(bounded(t), bucket, name), errs.NotFound, name)
			last, err := c.Peer.Put(bounded(t), bucket, name, strings.NewReader("back"), peer.PutOptions{Size: 4})
			must(t, err)
			if last.Version <= tomb.Version {
				t.Errorf("version %d after the tombstone's %d", last.Version, tomb.Version)
			}
			held(t, c, bucket, name, copies, last.Version, false)
		}
	}
	for _, n := range c.Nodes {
		if metric(t, n, "sheaf_copies_staged_total") == 0 {
			t.Errorf("%s staged nothing", n.Name())
		}
	}
	noWorkFiles(t, c)
}

// A PUT that announces the checksum of what is there ends at once, but only when every
// holder has it.
func TestPutOfTheSame(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	data := noise(1, 5000)
	sum := xxh3.Hash(data)
	put := func(r io.Reader, o peer.PutOptions) (peer.ObjectInfo, error) {
		o.Size, o.Sum = int64(len(data)), &sum
		return c.Peer.Put(bounded(t), "b", "o", r, o)
	}
	first, err := put(bytes.NewReader(data), peer.PutOptions{})
	must(t, err)
	// The second one's bytes would fail the checksum: they aren't looked at.
	same, err := put(bytes.NewReader(noise(2, 5000)), peer.PutOptions{})
	if err != nil || same.Version != first.Version {
		t.Errorf("%+v %v, want version %d", same, err, first.Version)
	}
	if n := total(t, c, "sheaf_put_same_total"); n != 1 {
		t.Errorf("%v early ends", n)
	}
	_, err = put(bytes.NewReader(data), peer.PutOptions{IfAbsent: true})
	fails(t, "only if absent", err, errs.AlreadyExists)
	labelled, err := put(bytes.NewReader(data), peer.PutOptions{Attrs: map[string]string{"a": "b"}})
	if err != nil || labelled.Version <= first.Version {
		t.Errorf("with other attributes: %+v %v", labelled, err)
	}
	other := holdersOf(c, "b", "o", 2)[1]
	must(t, c.Nodes[other].Store().Remove("b", "o", labelled.Version))
	whole, err := put(bytes.NewReader(data), peer.PutOptions{Attrs: map[string]string{"a": "b"}})
	if err != nil || whole.Version <= labelled.Version {
		t.Errorf("with a copy missing: %+v %v", whole, err)
	}
	held(t, c, "b", "o", 2, whole.Version, false)
}

func TestConditions(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	for copies := 1; copies <= 2; copies++ {
		b := fmt.Sprintf("b%d", copies)
		copied(t, c, b, copies)
		ctx := bounded(t)
		put := func(name, data string, o peer.PutOptions) (peer.ObjectInfo, error) {
			o.Size = int64(len(data))
			return c.Peer.Put(ctx, b, name, strings.NewReader(data), o)
		}
		first, err := put("o", "1", peer.PutOptions{IfAbsent: true})
		must(t, err)
		_, err = put("o", "x", peer.PutOptions{IfAbsent: true})
		fails(t, "PUT if absent", err, errs.AlreadyExists, "o")
		_, err = put("o", "x", peer.PutOptions{IfVersion: first.Version + 1})
		fails(t, "PUT if another version", err, errs.VersionMismatch, fmt.Sprint(first.Version))
		_, err = put("none", "x", peer.PutOptions{IfVersion: first.Version})
		fails(t, "PUT if version of nothing", err, errs.NotFound, "none")
		second, err := put("o", "2", peer.PutOptions{IfVersion: first.Version})
		must(t, err)
		fails(t, "DELETE of an older version", c.Peer.DeleteIf(ctx, b, "o", first.Version), errs.VersionMismatch, fmt.Sprint(second.Version))

		o, p := peer.ObjectName{Bucket: b, Object: "o"}, peer.ObjectName{Bucket: b, Object: "p"}
		none := peer.ObjectName{Bucket: b, Object: "none"}
		for what, do := range map[string]func(from, to peer.ObjectName, o peer.CopyOptions) (peer.ObjectInfo, error){
			"copy": func(from, to peer.ObjectName, o peer.CopyOptions) (peer.ObjectInfo, error) {
				return c.Peer.Copy(ctx, from, to, o)
			},
			"rename": func(from, to peer.ObjectName, o peer.CopyOptions) (peer.ObjectInfo, error) {
				return c.Peer.Rename(ctx, from, to, o)
			},
		} {
			third, err := put("p", "3", peer.PutOptions{})
			must(t, err)
			_, err = do(o, p, peer.CopyOptions{IfAbsent: true})
			fails(t, what+" if absent", err, errs.AlreadyExists)
			_, err = do(o, p, peer.CopyOptions{IfVersion: second.Version})
			fails(t, what+" if another version", err, errs.VersionMismatch)
			_, err = do(o, none, peer.CopyOptions{IfVersion: second.Version})
			fails(t, what+" if version of nothing", err, errs.NotFound)
			_, err = do(none, p, peer.CopyOptions{})
			fails(t, what+" of nothing", err, errs.NotFound, "none")
			if got, err := get(t, c.Peer, b, "p", peer.GetOptions{}); err != nil || string(got) != "3" {
				t.Errorf("after what was refused: %q %v", got, err)
			}
			done, err := do(o, p, peer.CopyOptions{IfVersion: third.Version})
			if err != nil || done.Version <= third.Version || done.Size != 1 {
				t.Errorf("%s: %+v %v", what, done, err)
			}
			if got, err := get(t, c.Peer, b, "p", peer.GetOptions{}); err != nil || string(got) != "2" {
				t.Errorf("after %s: %q %v", what, got, err)
			}
			held(t, c, b, "p", copies, done.Version, false)
			if what == "rename" {
				_, err := c.Peer.Head(ctx, b, "o")
				fails(t, "the first name", err, errs.NotFound)
			}
			second, err = put("o", "2", peer.PutOptions{})
			must(t, err)
		}
		must(t, c.Peer.DeleteIf(ctx, b, "o", second.Version))
		fails(t, "DELETE of a version of nothing", c.Peer.DeleteIf(ctx, b, "o", second.Version), errs.NotFound)
		_, err = put("o", "4", peer.PutOptions{IfVersion: second.Version})
		fails(t, "PUT over what was deleted", err, errs.NotFound)
		_, err = put("o", "5", peer.PutOptions{IfAbsent: true})
		must(t, err)
	}
	noWorkFiles(t, c)
}

// Of clients that make a write on the same condition at the same time, exactly one succeeds.
func TestOneWins(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	for _, unsettled := range []bool{false, true} {
		for _, n := range c.Nodes {
			n.Unsettle(unsettled)
		}
		var have peer.ObjectInfo
		for round := range 12 {
			const clients = 9
			won := make([]peer.ObjectInfo, clients)
			failed := make([]error, clients)
			var wg sync.WaitGroup
			begin := make(chan struct{})
			for i := range clients {
				wg.Go(func() {
					data := fmt.Sprintf("%v %d by %d", unsettled, round, i)
					req := &peer.PutRequest{Bucket: "b", Object: "o", Size: int64(len(data)), Sized: true, IfAbsent: have.Version == 0, IfVersion: have.Version}
					<-begin
					won[i], failed[i] = c.Peer.PutAt(bounded(t), c.Nodes[i%3].Addr(), req, strings.NewReader(data))
				})
			}
			close(begin)
			wg.Wait()
			winner := -1
			for i, err := range failed {
				if err == nil && winner >= 0 {
					t.Fatalf("round %d: both %d and %d", round, winner, i)
				}
				want := errs.VersionMismatch
				if have.Version == 0 {
					want = errs.AlreadyExists
				}
				if err == nil {
					winner = i
				} else if !errs.IsCode(err, want) {
					t.Errorf("round %d: %v", round, err)
				}
			}
			if winner < 0 {
				t.Fatalf("round %d: nobody: %v", round, failed)
			}
			have = won[winner]
			held(t, c, "b", "o", 2, have.Version, false)
			got, err := get(t, c.Peer, "b", "o", peer.GetOptions{})
			if want := fmt.Sprintf("%v %d by %d", unsettled, round, winner); err != nil || string(got) != want {
				t.Fatalf("%q %v, want %q", got, err, want)
			}
			if round%4 == 3 {
				must(t, c.Peer.DeleteIf(bounded(t), "b", "o", have.Version))
				have = peer.ObjectInfo{}
			}
		}
		if have.Version != 0 {
			t.Fatal("the rounds end with an object")
		}
	}
}

func TestAppend(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	ctx := bounded(t)
	add := func(data string, o peer.PutOptions) (peer.ObjectInfo, error) {
		if o.Size == 0 {
			o.Size = int64(len(data))
		}
		return c.Peer.Append(ctx, "b", "log", strings.NewReader(data), o)
	}
	is := func(want string) {
		t.Helper()
		if got, err := get(t, c.Peer, "b", "log", peer.GetOptions{}); err != nil || string(got) != want {
			t.Errorf("%d bytes %q %v, want %d", len(got), got[:min(len(got), 30)], err, len(want))
		}
	}
	_, err := add("x", peer.PutOptions{IfVersion: 7})
	fails(t, "to nothing, if version", err, errs.NotFound)
	one, err := add("one ", peer.PutOptions{Attrs: map[string]string{"k": "v"}})
	must(t, err)
	_, err = add("x", peer.PutOptions{IfAbsent: true})
	fails(t, "if absent", err, errs.AlreadyExists)
	_, err = add("x", peer.PutOptions{IfVersion: one.Version + 1})
	fails(t, "if another version", err, errs.VersionMismatch)
	sum := xxh3.HashString("two ")
	two, err := add("two ", peer.PutOptions{Sum: &sum, IfVersion: one.Version})
	must(t, err)
	if two.Size != 8 || two.Checksum != xxh3.HashString("one two ") || two.Version <= one.Version || two.Attrs["k"] != "v" {
		t.Errorf("%+v", two)
	}
	is("one two ")
	_, err = add("bad ", peer.PutOptions{Sum: &sum})
	fails(t, "another checksum", err, errs.ChecksumMismatch)
	_, err = add("more than that", peer.PutOptions{Size: 3})
	fails(t, "another size", err, errs.InvalidArgument)
	is("one two ")
	long := string(noise(4, 600_000))
	last, err := add(long, peer.PutOptions{Size: -1})
	must(t, err)
	is("one two " + long)
	held(t, c, "b", "log", 2, last.Version, false)

	// Many at once: each is there once, none within another.
	const writers, each = 5, 6
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for k := range each {
				line := fmt.Sprintf("<%d.%d>", i, k)
				req := &peer.PutRequest{Append: true, Bucket: "b", Object: "many", Size: int64(len(line)), Sized: true}
				if _, err := c.Peer.PutAt(bounded(t), c.Nodes[(i+k)%3].Addr(), req, strings.NewReader(line)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	got, err := get(t, c.Peer, "b", "many", peer.GetOptions{})
	must(t, err)
	for i := range writers {
		at := -1
		for k := range each {
			line := fmt.Sprintf("<%d.%d>", i, k)
			if n := strings.Count(string(got), line); n != 1 {
				t.Errorf("%s is there %d times", line, n)
			}
			if now := strings.Index(string(got), line); now < at {
				t.Errorf("%s comes before the one that was added before it", line)
			} else {
				at = now
			}
		}
	}
	if len(got) != writers*each*len("<0.0>") {
		t.Errorf("%d bytes in all", len(got))
	}
	noWorkFiles(t, c)
}

// Copies and renames between buckets, onto themselves, and of objects larger than what is
// under way.
func TestCopyAndRename(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "a", 2)
	copied(t, c, "b", 3)
	data := noise(8, 5<<20)
	attrs := map[string]string{"k": "v"}
	src, err := c.Peer.Put(bounded(t), "a", "o", bytes.NewReader(data), peer.PutOptions{Size: int64(len(data)), Attrs: attrs})
	must(t, err)
	from := peer.ObjectName{Bucket: "a", Object: "o"}
	to := peer.ObjectName{Bucket: "b", Object: "p"}
	dst, err := c.Peer.Copy(bounded(t), from, to, peer.CopyOptions{})
	must(t, err)
	if dst.Checksum != src.Checksum || !maps.Equal(dst.Attrs, attrs) || dst.Size != src.Size {
		t.Errorf("%+v is the copy of %+v", dst, src)
	}
	held(t, c, "b", "p", 3, dst.Version, false)
	if again, err := c.Peer.Copy(bounded(t), from, to, peer.CopyOptions{}); err != nil || again.Version != dst.Version {
		t.Errorf("a copy of the same: %+v %v", again, err)
	}
	for what, do := range map[string]func(context.Context, peer.ObjectName, peer.ObjectName, peer.CopyOptions) (peer.ObjectInfo, error){"copy": c.Peer.Copy, "rename": c.Peer.Rename} {
		if self, err := do(bounded(t), from, from, peer.CopyOptions{IfVersion: src.Version}); err != nil || self.Version != src.Version {
			t.Errorf("%s to itself: %+v %v", what, self, err)
		}
		_, err = do(bounded(t), from, from, peer.CopyOptions{IfAbsent: true})
		fails(t, what+" to itself if absent", err, errs.AlreadyExists)
		_, err = do(bounded(t), from, from, peer.CopyOptions{IfVersion: src.Version + 1})
		fails(t, what+" to itself if another version", err, errs.VersionMismatch)
		_, err = do(bounded(t), from, peer.ObjectName{Bucket: "none", Object: "o"}, peer.CopyOptions{})
		fails(t, what+" to no bucket", err, errs.BucketNotFound, "none")
	}
	for i, gateway := range c.Nodes { // through every node, to every owner
		for k := range c.Nodes {
			name := ownedBy(c, k, "a", fmt.Sprintf("moved%d-", i), "")
			moved, err := c.Peer.CopyAt(bounded(t), gateway.Addr(), &peer.CopyRequest{Kind: wire.TRename, From: from, To: peer.ObjectName{Bucket: "a", Object: name}})
			must(t, err)
			_, err = c.Peer.Head(bounded(t), from.Bucket, from.Object)
			fails(t, "the first name", err, errs.NotFound)
			held(t, c, "a", name, 2, moved.Version, false)
			from.Object = name
		}
	}
	if got, err := get(t, c.Peer, "a", from.Object, peer.GetOptions{}); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after all renames: %d bytes, %v", len(got), err)
	}
	noWorkFiles(t, c)
}

// brokenReader fails, or does something, after n bytes.
type brokenReader struct {
	r    io.Reader
	n    int
	then func() error
}

func (b *brokenReader) Read(p []byte) (int, error) {
	if b.n <= 0 && b.then != nil {
		err := b.then()
		b.then = nil
		if err != nil {
			return 0, err
		}
	}
	k, err := b.r.Read(p[:min(len(p), max(b.n, 1<<16))])
	b.n -= k
	return k, err
}

// What a PUT leaves when it ends early, whoever ends it: nothing.
func TestPutGivenUp(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Adjust: func(_ int, o *server.Options) { o.DrainTimeout = time.Millisecond }})
	copied(t, c, "b", 3)
	before, err := c.Peer.Put(bounded(t), "b", "o", strings.NewReader("before"), peer.PutOptions{Size: 6})
	must(t, err)
	data := noise(5, 8<<20)
	ctx, cancel := context.WithCancel(bounded(t))
	gone := errors.New("the disk of the caller")
	for what, then := range map[string]func() error{
		"the source fails":     func() error { return gone },
		"the caller goes away": func() error { cancel(); return nil },
	} {
		on := bounded(t)
		if what == "the caller goes away" {
			on = ctx
		}
		_, err := c.Peer.Put(on, "b", "o", &brokenReader{r: bytes.NewReader(data), n: 3 << 20, then: then}, peer.PutOptions{Size: int64(len(data))})
		if err == nil {
			t.Errorf("%s: it worked", what)
		}
		noWorkFiles(t, c)
		held(t, c, "b", "o", 3, before.Version, false)
	}

	// A holder dies within it.
	owner := holdersOf(c, "b", "o", 3)[0]
	victim := (owner + 1) % 3
	_, err = c.Peer.PutAt(bounded(t), c.Nodes[owner].Addr(), &peer.PutRequest{Bucket: "b", Object: "o"}, &brokenReader{r: bytes.NewReader(data), n: 2 << 20, then: c.Nodes[victim].Close})
	fails(t, "a PUT during which a holder died", err, errs.Unavailable, c.Nodes[victim].Name())
	for i, n := range c.Nodes {
		if i == victim {
			continue
		}
		got, err := getAt(t, c.Peer, n.Addr(), &peer.ObjectRequest{Bucket: "b", Object: "o"})
		if err != nil || string(got) != "before" {
			t.Errorf("through %s: %d bytes, %v", n.Name(), len(got), err)
		}
	}
	_, err = c.Peer.Put(bounded(t), "b", "p", strings.NewReader("x"), peer.PutOptions{Size: 1})
	fails(t, "a PUT with too few nodes", err, errs.Unavailable)
	waitFor(t, "work files of the survivors to go", func() bool {
		n := 0
		for i := range c.Nodes {
			left, _ := os.ReadDir(filepath.Join(c.Dir, c.Nodes[i].Name(), "@sheaf", "b", "%wk"))
			if i != victim {
				n += len(left)
			}
		}
		return n == 0
	})
}

// A commit that fails on one holder after the owner's is an unknown outcome to the caller,
// and soon the same on all.
func TestCommitFailsOnOneHolder(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	before, err := c.Peer.Put(bounded(t), "b", "o", strings.NewReader("before"), peer.PutOptions{Size: 6})
	must(t, err)
	hold := holdersOf(c, "b", "o", 2)
	c.Nodes[hold[1]].FailCommits(func(string, string) error { return errs.New(errs.Internal, "commit", "as the test wants it") })
	_, err = c.Peer.Put(bounded(t), "b", "o", strings.NewReader("after"), peer.PutOptions{Size: 5})
	fails(t, "the PUT", err, errs.Unavailable, "outcome isn't known", "as the test wants it", c.Nodes[hold[1]].Name())
	c.Nodes[hold[1]].FailCommits(func(string, string) error { return nil })
	if n := metric(t, c.Nodes[hold[0]], "sheaf_half_writes_total"); n != 1 {
		t.Errorf("%v half writes", n)
	}
	waitFor(t, "both copies to be the same", func() bool {
		recs := records(t, c, "b", "o")
		return recs[hold[0]].Version == recs[hold[1]].Version && recs[hold[0]].Version > before.Version
	})
	if got, err := get(t, c.Peer, "b", "o", peer.GetOptions{}); err != nil || string(got) != "after" {
		t.Errorf("%q %v", got, err)
	}
}

// A coordinator that isn't the owner by the newest map, or isn't the only one, changes
// nothing that the other decided.
func TestTwoCoordinators(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	copied(t, c, "b", 2)
	first, err := c.Peer.Put(bounded(t), "b", "o", strings.NewReader("1"), peer.PutOptions{Size: 1})
	must(t, err)
	hold := holdersOf(c, "b", "o", 2)
	other := 3 - hold[0] - hold[1]
	_, err = c.Peer.PutAt(bounded(t), c.Nodes[other].Addr(), &peer.PutRequest{Bucket: "b", Object: "o", Forwarded: true}, strings.NewReader("x"))
	fails(t, "a write passed on to who doesn't own it", err, errs.Unavailable, "map is changing", c.Nodes[hold[0]].Name())

	// Between the look and the commit somebody else writes to the owner's disks.
	node, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.NodeName), c.Nodes[hold[0]].Addr())
	far := first.Version + 1<<60
	_, err = c.Peer.PutAt(bounded(t), c.Nodes[hold[0]].Addr(), &peer.PutRequest{Bucket: "b", Object: "o", IfVersion: first.Version},
		&brokenReader{r: strings.NewReader("2"), then: func() error { return stageAt(t, node, c.Nodes[hold[0]].Addr(), "b", "o", "other", far) }})
	fails(t, "a write that came second", err, errs.VersionMismatch)
	if got, err := get(t, c.Peer, "b", "o", peer.GetOptions{}); err != nil || string(got) != "other" {
		t.Errorf("%q %v", got, err)
	}
	// The clock of that one goes ahead: the next write is newer all the same.
	next, err := c.Peer.Put(bounded(t), "b", "o", strings.NewReader("3"), peer.PutOptions{Size: 1})
	if err != nil || next.Version <= far {
		t.Errorf("%+v %v after version %d", next, err, far)
	}
	held(t, c, "b", "o", 2, next.Version, false)

	// The other holder has something newer that the owner hasn't heard of.
	must(t, stageAt(t, node, c.Nodes[hold[1]].Addr(), "b", "o", "newer", next.Version+1<<59))
	last, err := c.Peer.Put(bounded(t), "b", "o", strings.NewReader("4"), peer.PutOptions{Size: 1})
	must(t, err)
	held(t, c, "b", "o", 2, last.Version, false)
}

// stageAt writes a copy to one node alone, as an owner would.
func stageAt(t testing.TB, node *peer.Client, addr, bucket, object, data string, version uint64) error {
	t.Helper()
	call, err := node.StageAt(bounded(t), addr, &peer.StageRequest{Bucket: bucket, Object: object})
	if err != nil {
		return err
	}
	defer call.Close()
	if _, err := call.Write([]byte(data)); err != nil {
		return err
	}
	if _, err := call.Staged(); err != nil {
		return err
	}
	_, err = call.Commit(version)
	return err
}
