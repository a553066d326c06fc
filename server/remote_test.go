package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/internal/backend"
	"sheaf/internal/backend/s3test"
	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/server"
)

// remoteCluster is a cluster with the bucket "r" over a bucket "data" of an S3 server.
func remoteCluster(t *testing.T, nodes int, p peer.BucketProps) (*testcluster.Cluster, *s3test.Server) {
	t.Helper()
	return remoteClusterWith(t, nodes, p, func(*server.Options) {})
}

func remoteClusterWith(t *testing.T, nodes int, p peer.BucketProps, adjust func(*server.Options)) (*testcluster.Cluster, *s3test.Server) {
	t.Helper()
	s := s3test.Start(t, "data")
	c := testcluster.Start(t, testcluster.Options{Nodes: nodes, Adjust: func(_ int, o *server.Options) {
		o.Backend = backend.Options{Attempts: 3, MaxBackoff: 20 * time.Millisecond}
		adjust(o)
	}})
	p.Backend = s.BackendURL("data")
	if err := c.Peer.CreateBucket(t.Context(), "r", p); err != nil {
		t.Fatal(err)
	}
	return c, s
}

func mustGet(t *testing.T, c *peer.Client, name string, want []byte) peer.ObjectInfo {
	t.Helper()
	info, got, err := getAll(t.Context(), c, "r", name)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s: %d bytes of %d, %v", name, len(got), len(want), err)
	}
	return info
}

func getAll(ctx context.Context, c *peer.Client, bucket, name string) (peer.ObjectInfo, []byte, error) {
	info, body, err := c.Get(ctx, bucket, name, peer.GetOptions{})
	if err != nil {
		return info, nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	return info, b, err
}

// waitKept waits until a copy is kept: a cold GET is answered before that.
func waitKept(t *testing.T, c *testcluster.Cluster, name string) {
	t.Helper()
	waitFor(t, name+" to be kept", func() bool {
		info, err := c.Peer.Head(t.Context(), "r", name)
		return err == nil && info.Checksum != 0
	})
}

func TestRemoteColdAndWarm(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	data := noise(1, 3<<20)
	s.Put(t, "data", "dir/o", data)
	cold, err := c.Peer.Head(t.Context(), "r", "dir/o")
	if err != nil || cold.Size != int64(len(data)) || cold.Version == 0 || cold.Checksum != 0 {
		t.Fatalf("%+v, %v", cold, err)
	}
	if info := mustGet(t, c.Peer, "dir/o", data); info.Version != cold.Version {
		t.Errorf("the version is %d, was %d", info.Version, cold.Version)
	}
	waitKept(t, c, "dir/o")
	gets := s.Seen("GET /data/dir/o")
	for range 3 {
		if info := mustGet(t, c.Peer, "dir/o", data); info.Version != cold.Version || info.Checksum == 0 {
			t.Errorf("%+v", info)
		}
	}
	if n := s.Seen("GET /data/dir/o"); n != gets || gets != 1 {
		t.Errorf("the server was asked %d times, %d before", n, gets)
	}
	// Not validated: what changes past the cluster isn't seen, until the copy is evicted.
	newer := noise(2, 1000)
	s.Put(t, "data", "dir/o", newer)
	mustGet(t, c.Peer, "dir/o", data)
	if err := c.Peer.Evict(t.Context(), "r", "dir/o"); err != nil {
		t.Fatal(err)
	}
	mustGet(t, c.Peer, "dir/o", newer)
	if err := c.Peer.Evict(t.Context(), "r", "dir/never"); err != nil {
		t.Errorf("evicting what isn't kept: %v", err)
	}
	if _, _, err := getAll(t.Context(), c.Peer, "r", "dir/none"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("an object that isn't there: %v", err)
	}
	if _, err := c.Peer.Head(t.Context(), "r", "dir/none"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("an object that isn't there: %v", err)
	}
	empty := []byte{}
	s.Put(t, "data", "empty", empty)
	mustGet(t, c.Peer, "empty", empty)
	mustGet(t, c.Peer, "empty", empty)
}

func TestRemoteValidates(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{Validate: true})
	first, second := noise(1, 5000), noise(2, 5000)
	s.Put(t, "data", "o", first)
	a := mustGet(t, c.Peer, "o", first)
	waitKept(t, c, "o")
	gets := s.Seen("GET /data/o")
	mustGet(t, c.Peer, "o", first)
	if n := s.Seen("GET /data/o"); n != gets {
		t.Errorf("a copy that is current was fetched again")
	}
	s.Put(t, "data", "o", second)
	if b := mustGet(t, c.Peer, "o", second); b.Version <= a.Version {
		t.Errorf("the newer content has version %d, the older %d", b.Version, a.Version)
	}
	waitKept(t, c, "o")
	mustGet(t, c.Peer, "o", second)
	s.Delete(t, "data", "o")
	if _, _, err := getAll(t.Context(), c.Peer, "r", "o"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("deleted at the backend: %v", err)
	}
	s.Put(t, "data", "o", first)
	mustGet(t, c.Peer, "o", first)
}

// Many readers, one download; each is served what has come before the rest has.
func TestRemoteOneDownload(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	data := noise(1, 4<<20)
	s.Put(t, "data", "o", data)
	open := make(chan struct{})
	var once sync.Once
	let := func() { once.Do(func() { close(open) }) }
	t.Cleanup(let)
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet {
			s3test.Gate(w, r, next, 2<<20, open)
			return
		}
		next.ServeHTTP(w, r)
	})
	const readers = 8
	var half, all sync.WaitGroup
	half.Add(readers)
	errors := make([]error, readers)
	for i := range readers {
		all.Go(func() {
			_, body, err := c.Peer.Get(t.Context(), "r", "o", peer.GetOptions{})
			if err != nil {
				errors[i] = err
				half.Done()
				return
			}
			defer body.Close()
			begin := make([]byte, 1<<20)
			_, err = io.ReadFull(body, begin)
			half.Done()
			rest, rerr := io.ReadAll(body)
			if err == nil {
				err = rerr
			}
			if err == nil && !bytes.Equal(slices.Concat(begin, rest), data) {
				err = fmt.Errorf("other bytes")
			}
			errors[i] = err
		})
	}
	half.Wait() // the server still holds the second half back
	let()
	all.Wait()
	for i, err := range errors {
		if err != nil {
			t.Errorf("reader %d: %v", i, err)
		}
	}
	if n := s.Seen("GET /data/o"); n != 1 {
		t.Errorf("the server was asked %d times", n)
	}
}

// A reader that goes away doesn't stop the others; when all have gone, the download stops.
func TestRemoteReadersLeave(t *testing.T) {
	c, s := remoteCluster(t, 1, peer.BucketProps{})
	data := noise(1, 4<<20)
	s.Put(t, "data", "o", data)
	var stopped atomic.Int32
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet {
			defer stopped.Add(1)
			s3test.Gate(w, r, next, 1<<20, nil) // for ever
			return
		}
		next.ServeHTTP(w, r)
	})
	for range 2 {
		_, body, err := c.Peer.Get(t.Context(), "r", "o", peer.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		_ = body.Close()
	}
	waitFor(t, "the download that nobody wants to stop", func() bool { return stopped.Load() > 0 })
	s.Intercept(nil)
	mustGet(t, c.Peer, "o", data)
}

func TestRemoteWrites(t *testing.T) {
	c, s := remoteCluster(t, 3, peer.BucketProps{})
	ctx := t.Context()
	put := func(name string, data []byte, o peer.PutOptions) (peer.ObjectInfo, error) {
		o.Size = int64(len(data))
		return c.Peer.Put(ctx, "r", name, bytes.NewReader(data), o)
	}
	data := noise(1, 200_000)
	info, err := put("a/b", data, peer.PutOptions{Attrs: map[string]string{"label": "cat"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Has("data", "a/b", data); err != nil {
		t.Errorf("at the backend: %v", err)
	}
	if got := mustGet(t, c.Peer, "a/b", data); got.Version != info.Version || got.Attrs["label"] != "cat" {
		t.Errorf("%+v, written as %+v", got, info)
	}
	if n := s.Seen("GET /data/a/b"); n != 0 {
		t.Errorf("what was written here was fetched %d times", n)
	}
	// The same bytes announced end at once.
	puts := s.Seen("PUT /data/a/b")
	if again, err := put("a/b", data, peer.PutOptions{Sum: &info.Checksum, Attrs: map[string]string{"label": "cat"}}); err != nil || again.Version != info.Version || s.Seen("PUT /data/a/b") != puts {
		t.Errorf("%+v, %v", again, err)
	}
	// Attributes come back after an eviction.
	if err := c.Peer.Evict(ctx, "r", "a/b"); err != nil {
		t.Fatal(err)
	}
	if got := mustGet(t, c.Peer, "a/b", data); got.Attrs["label"] != "cat" {
		t.Errorf("after eviction: %+v", got)
	}
	// Conditions.
	s.Put(t, "data", "past", []byte("x"))
	if _, err := put("past", data, peer.PutOptions{IfAbsent: true}); !errs.IsCode(err, errs.AlreadyExists) {
		t.Errorf("only if absent: %v", err)
	}
	if _, err := put("new", data, peer.PutOptions{IfAbsent: true}); err != nil {
		t.Error(err)
	}
	head, err := c.Peer.Head(ctx, "r", "past")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put("past", []byte("y"), peer.PutOptions{IfVersion: head.Version + 1}); !errs.IsCode(err, errs.VersionMismatch) {
		t.Errorf("another version: %v", err)
	}
	if _, err := put("past", []byte("y"), peer.PutOptions{IfVersion: head.Version}); err != nil {
		t.Errorf("the version it has: %v", err)
	}
	// Append, copy, rename.
	if _, err := c.Peer.Append(ctx, "r", "past", strings.NewReader("z"), peer.PutOptions{Size: 1}); err != nil {
		t.Error(err)
	}
	if err := s.Has("data", "past", []byte("yz")); err != nil {
		t.Error(err)
	}
	s.Put(t, "data", "cold", data)
	if _, err := c.Peer.Append(ctx, "r", "cold", strings.NewReader("!"), peer.PutOptions{Size: 1}); err != nil {
		t.Errorf("append to a cold object: %v", err)
	}
	if err := s.Has("data", "cold", slices.Concat(data, []byte("!"))); err != nil {
		t.Error(err)
	}
	s.Put(t, "data", "cold2", data)
	if _, err := c.Peer.Copy(ctx, peer.ObjectName{Bucket: "r", Object: "cold2"}, peer.ObjectName{Bucket: "r", Object: "copy"}, peer.CopyOptions{}); err != nil {
		t.Errorf("copy of a cold object: %v", err)
	}
	if err := s.Has("data", "copy", data); err != nil {
		t.Error(err)
	}
	if _, err := c.Peer.Rename(ctx, peer.ObjectName{Bucket: "r", Object: "copy"}, peer.ObjectName{Bucket: "r", Object: "renamed"}, peer.CopyOptions{}); err != nil {
		t.Errorf("rename: %v", err)
	}
	if err := s.Has("data", "renamed", data); err != nil {
		t.Error(err)
	}
	if err := s.Has("data", "copy", data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the first name: %v", err)
	}
	// Delete.
	if err := c.Peer.Delete(ctx, "r", "renamed"); err != nil {
		t.Error(err)
	}
	if err := s.Has("data", "renamed", data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after delete: %v", err)
	}
	if err := c.Peer.Delete(ctx, "r", "renamed"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("deleting twice: %v", err)
	}
	if _, _, err := getAll(ctx, c.Peer, "r", "renamed"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("after delete: %v", err)
	}
	// What comes back past the cluster is seen: a deletion here hides nothing there.
	s.Put(t, "data", "renamed", []byte("again"))
	mustGet(t, c.Peer, "renamed", []byte("again"))
	// The bucket goes, the objects stay.
	if err := c.Peer.DestroyBucket(ctx, "r", false); err != nil {
		t.Error(err)
	}
	if err := s.Has("data", "a/b", data); err != nil {
		t.Error(err)
	}
}

// A write that the backend refuses has happened nowhere.
func TestRemoteWriteRefused(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	s.Put(t, "data", "o", []byte("old"))
	mustGet(t, c.Peer, "o", []byte("old"))
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPut || r.Method == http.MethodDelete {
			s3test.SlowDown(w)
			return
		}
		next.ServeHTTP(w, r)
	})
	_, err := c.Peer.Put(t.Context(), "r", "o", strings.NewReader("new"), peer.PutOptions{Size: 3})
	if !errs.IsCode(err, errs.Unavailable) || !strings.Contains(err.Error(), "SlowDown") {
		t.Errorf("put: %v", err)
	}
	if err := c.Peer.Delete(t.Context(), "r", "o"); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("delete: %v", err)
	}
	mustGet(t, c.Peer, "o", []byte("old"))
	s.Intercept(nil)
	if _, err := c.Peer.Put(t.Context(), "r", "o", strings.NewReader("new"), peer.PutOptions{Size: 3}); err != nil {
		t.Fatal(err)
	}
	mustGet(t, c.Peer, "o", []byte("new"))
}

func TestRemoteRanges(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	data := noise(1, 12<<20)
	s.Put(t, "data", "big", data)
	read := func(from, n int64) {
		t.Helper()
		_, body, err := c.Peer.Get(t.Context(), "r", "big", peer.GetOptions{Start: from, Length: n})
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		got, err := io.ReadAll(body)
		if err != nil || !bytes.Equal(got, data[from:from+n]) {
			t.Fatalf("range %d+%d: %d bytes, %v", from, n, len(got), err)
		}
	}
	read(5<<20, 1000)
	read(7<<20+1, 3<<20)
	if info, err := c.Peer.Head(t.Context(), "r", "big"); err != nil || info.Checksum != 0 {
		t.Errorf("small parts brought the whole: %+v, %v", info, err)
	}
	read(0, 4<<20) // with this more than half was asked for
	waitKept(t, c, "big")
	gets := s.Seen("GET /data/big")
	read(11<<20, 1<<20)
	if n := s.Seen("GET /data/big"); n != gets {
		t.Errorf("a part of a kept object was fetched")
	}
	if _, _, err := c.Peer.Get(t.Context(), "r", "big", peer.GetOptions{Start: 13 << 20, Length: 1}); !errs.IsCode(err, errs.RangeNotSatisfiable) {
		t.Errorf("behind the end: %v", err)
	}
	s.Put(t, "data", "cold", data)
	if _, _, err := c.Peer.Get(t.Context(), "r", "cold", peer.GetOptions{Start: 13 << 20, Length: 1}); !errs.IsCode(err, errs.RangeNotSatisfiable) {
		t.Errorf("behind the end of a cold object: %v", err)
	}
}

func TestRemoteFaults(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	data := noise(1, 3<<20)
	for _, n := range []string{"cut", "busy", "dead"} {
		s.Put(t, "data", n, data)
	}
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) { s3test.Cut(w, r, next, 1<<20) })
	mustGet(t, c.Peer, "cut", data)
	var left atomic.Int32
	left.Store(2)
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if left.Add(-1) >= 0 {
			s3test.SlowDown(w)
			return
		}
		next.ServeHTTP(w, r)
	})
	mustGet(t, c.Peer, "busy", data)
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) { s3test.SlowDown(w) })
	if _, _, err := getAll(t.Context(), c.Peer, "r", "dead"); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("a server that is overloaded for good: %v", err)
	}
	mustGet(t, c.Peer, "busy", data) // it is kept
	s.CloseClientConnections()
	s.Server.Close()
	if _, _, err := getAll(t.Context(), c.Peer, "r", "dead"); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("a server that is gone: %v", err)
	}
	mustGet(t, c.Peer, "cut", data)
}

func TestRemoteList(t *testing.T) {
	c, s := remoteCluster(t, 3, peer.BucketProps{})
	var names []string
	for i := range 30 {
		n := fmt.Sprintf("d%d/o%02d", i%3, i)
		names = append(names, n)
		s.Put(t, "data", n, []byte(n))
	}
	slices.Sort(names)
	mustGet(t, c.Peer, names[3], []byte(names[3]))
	waitKept(t, c, names[3])
	mustGet(t, c.Peer, names[4], []byte(names[4]))
	waitKept(t, c, names[4])
	s.Delete(t, "data", names[4]) // kept, and gone at the backend
	want := slices.Concat(names[:4], names[5:])
	for _, limit := range []int{0, 1, 7} {
		var got []string
		for o := (peer.ListOptions{Limit: limit}); ; {
			p, err := c.Peer.List(t.Context(), "r", o)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range p.Objects {
				got = append(got, obj.Name)
				if kept := obj.Checksum != 0; kept != (obj.Name == names[3]) {
					t.Errorf("%s: kept is %v", obj.Name, kept)
				}
				if obj.Size != int64(len(obj.Name)) || obj.Version == 0 {
					t.Errorf("%+v", obj)
				}
			}
			if p.Token == "" {
				break
			}
			o.Token = p.Token
		}
		if !slices.Equal(got, want) {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
	p, err := c.Peer.List(t.Context(), "r", peer.ListOptions{Delimiter: "/"})
	if err != nil || !slices.Equal(p.Prefixes, []string{"d0/", "d1/", "d2/"}) || len(p.Objects) > 0 {
		t.Errorf("%+v, %v", p, err)
	}
	p, err = c.Peer.List(t.Context(), "r", peer.ListOptions{Prefix: "d1/", StartAfter: "d1/o10"})
	if err != nil || len(p.Objects) != 6 {
		t.Errorf("%+v, %v", p, err)
	}
}

func TestRemotePrefetch(t *testing.T) {
	c, s := remoteCluster(t, 3, peer.BucketProps{})
	var names []string
	for i := range 40 {
		n := fmt.Sprintf("o%02d", i)
		names = append(names, n)
		s.Put(t, "data", n, []byte(n))
	}
	started, err := c.Peer.PrefetchObjects(t.Context(), "r", append(names, "none"))
	if err != nil || started != len(names)+1 {
		t.Fatalf("%d, %v", started, err)
	}
	for _, n := range names {
		waitKept(t, c, n)
	}
	s.CloseClientConnections()
	s.Server.Close()
	for _, n := range names {
		mustGet(t, c.Peer, n, []byte(n))
	}
	c.Bucket(t, "local")
	if _, err := c.Peer.PrefetchObjects(t.Context(), "local", names); !errs.IsCode(err, errs.NotSupported) {
		t.Errorf("a bucket without backend: %v", err)
	}
	if err := c.Peer.Evict(t.Context(), "local", "x"); !errs.IsCode(err, errs.NotSupported) {
		t.Errorf("a bucket without backend: %v", err)
	}
}

// A batch's cold objects come side by side: the server answers none before several were
// asked for.
func TestRemoteBatch(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	const objects = 24
	var in []batching.Entry
	for i := range objects {
		n := fmt.Sprintf("o%02d", i)
		s.Put(t, "data", n, noise(uint64(i), 50_000))
		in = append(in, batching.Entry{Bucket: "r", ObjName: n})
	}
	shard := makeTar(t, file{"m1", []byte("one")}, file{"m2", []byte("two")})
	s.Put(t, "data", "s.tar", shard)
	in = append(in, batching.Entry{Bucket: "r", ObjName: "s.tar", ArchPath: "m2"}, batching.Entry{Bucket: "r", ObjName: "s.tar", ArchPath: "m1"},
		batching.Entry{Bucket: "r", ObjName: "o01", Start: 10, Length: 5}, batching.Entry{Bucket: "r", ObjName: "none"})
	var waiting atomic.Int32
	many := make(chan struct{})
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet {
			if waiting.Add(1) == 8 {
				close(many)
			}
			select {
			case <-many:
			case <-r.Context().Done():
			}
		}
		next.ServeHTTP(w, r)
	})
	st, err := c.Batch.GetBatch(t.Context(), &batching.Request{In: in, Coer: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	for i := range in {
		it, err := st.Next()
		if err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
		got, err := it.Bytes()
		var want []byte
		switch {
		case i < objects:
			want = noise(uint64(i), 50_000)
		case in[i].ObjName == "none":
			if !errs.IsCode(it.Err, errs.NotFound) {
				t.Errorf("an object that isn't there: %v", it.Err)
			}
			continue
		case in[i].ArchPath == "m2":
			want = []byte("two")
		case in[i].ArchPath == "m1":
			want = []byte("one")
		default:
			want = noise(1, 50_000)[10:15]
		}
		if err != nil || it.Err != nil || !bytes.Equal(got, want) {
			t.Errorf("entry %d %+v: %d bytes, %v, %v", i, in[i], len(got), err, it.Err)
		}
	}
	if n := s.Seen("GET /data/s.tar"); n != 1 {
		t.Errorf("the shard was fetched %d times", n)
	}
	_, members, err := c.Peer.Members(t.Context(), "r", "s.tar")
	if err != nil || len(members) != 2 {
		t.Errorf("%v, %v", members, err)
	}
}

// What the cluster wrote while a node was away isn't served stale by that node.
func TestRemoteNodeReturns(t *testing.T) {
	c, s := remoteCluster(t, 2, peer.BucketProps{})
	var names []string
	for i := range 12 {
		n := fmt.Sprintf("o%02d", i)
		names = append(names, n)
		s.Put(t, "data", n, []byte("old"))
		mustGet(t, c.Peer, n, []byte("old"))
		waitKept(t, c, n)
	}
	addr := c.Nodes[1].Addr()
	if err := c.Nodes[1].Close(); err != nil {
		t.Fatal(err)
	}
	for i, n := range names {
		if i%2 == 0 {
			s.Put(t, "data", n, []byte("new"))
		} else {
			s.Delete(t, "data", n)
		}
	}
	back := testcluster.Restart(t, c, 1, addr)
	t.Cleanup(func() { _ = back.Close() })
	for i, n := range names {
		m := c.Nodes[0].Map()
		if m.Nodes[m.Owner(peer.HashObject("r", n))].Name != back.Name() {
			continue
		}
		_, got, err := getAll(t.Context(), c.Peer, "r", n)
		if i%2 == 0 && string(got) != "new" || i%2 == 1 && !errs.IsCode(err, errs.NotFound) {
			t.Errorf("%s: %q, %v", n, got, err)
		}
	}
}

func TestRemoteBadCopyIsFetchedAgain(t *testing.T) {
	c, s := remoteCluster(t, 1, peer.BucketProps{})
	data := noise(1, 100_000)
	s.Put(t, "data", "o", data)
	mustGet(t, c.Peer, "o", data)
	waitKept(t, c, "o")
	path := filepath.Join(c.Dir, "n1", "@sheaf", "r", "%ob", "o")
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{data[5] ^ 1}, 5); err != nil {
		t.Fatal(err)
	}
	f.Close()
	mustGet(t, c.Peer, "o", data)
}

func TestRemoteCreate(t *testing.T) {
	s := s3test.Start(t, "data")
	root := t.TempDir()
	c := testcluster.Start(t, testcluster.Options{Nodes: 1, Adjust: func(_ int, o *server.Options) {
		o.Backend = backend.Options{Attempts: 1, Roots: []string{root}}
	}})
	k := 0
	for url, want := range map[string]errs.Code{
		s.BackendURL("data"):             errs.OK,
		s.BackendURL("nothing"):          errs.Unavailable,
		"file://" + root:                 errs.OK,
		"file://" + t.TempDir():          errs.PermissionDenied,
		"file://" + root + "/none":       errs.NotFound,
		"s3://user:hunter2@data":         errs.InvalidArgument,
		"http://127.0.0.1/":              errs.InvalidArgument,
		s.BackendURL("data") + "&x=y":    errs.InvalidArgument,
		"s3://b?endpoint=http://1.2.3.4": errs.InvalidArgument,
	} {
		k++
		err := c.Peer.CreateBucket(t.Context(), fmt.Sprintf("b%d", k), peer.BucketProps{Backend: url})
		if errs.CodeOf(err) != want {
			t.Errorf("%s: %v, want %v", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the key: %v", err)
		}
	}
	if err := c.Peer.CreateBucket(t.Context(), "two", peer.BucketProps{Backend: "file://" + root, Copies: 2}); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("copies of a remote bucket: %v", err)
	}
}

func TestRemoteFolder(t *testing.T) {
	root := t.TempDir()
	c := testcluster.Start(t, testcluster.Options{Nodes: 2, Adjust: func(_ int, o *server.Options) { o.Backend.AnyFolder = true }})
	if err := c.Peer.CreateBucket(t.Context(), "r", peer.BucketProps{Backend: "file://" + root}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "there"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustGet(t, c.Peer, "there", []byte("hello"))
	c.Put(t, "r", "a/b", []byte("written"))
	if got, err := os.ReadFile(filepath.Join(root, "a/b")); err != nil || string(got) != "written" {
		t.Errorf("%q, %v", got, err)
	}
	p, err := c.Peer.List(t.Context(), "r", peer.ListOptions{})
	if err != nil || len(p.Objects) != 2 {
		t.Errorf("%+v, %v", p, err)
	}
	if err := c.Peer.Delete(t.Context(), "r", "a/b"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(root, "a")); !os.IsNotExist(err) {
		t.Errorf("an empty folder is left: %v", err)
	}
}
