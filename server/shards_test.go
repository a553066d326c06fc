package server_test

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
)

func TestMembers(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	files := []file{{"z/last.jpg", noise(1, 40_000)}, {"./dot/a", noise(2, 10)}, {"empty", nil}, {"big", noise(3, 400_000)}, {"twice", []byte("old")}, {"twice", []byte("new")}}
	shard := makeTar(t, files...)
	c.Put(t, "b", "dir/s.tar", shard)
	whole, err := c.Peer.Head(bounded(t), "b", "dir/s.tar")
	must(t, err)

	info, members, err := c.Peer.Members(bounded(t), "b", "dir/s.tar")
	must(t, err)
	if info.Size != int64(len(shard)) || info.Version != whole.Version || info.Checksum != whole.Checksum {
		t.Errorf("%+v, the shard is %+v", info, whole)
	}
	want := []file{{"z/last.jpg", noise(1, 40_000)}, {"dot/a", noise(2, 10)}, {"empty", nil}, {"big", noise(3, 400_000)}, {"twice", []byte("new")}}
	if len(members) != len(want) {
		t.Fatalf("members %+v", members)
	}
	for i, f := range want {
		if members[i].Name != f.name || members[i].Size != int64(len(f.data)) {
			t.Errorf("member %d is %+v, want %s", i, members[i], f.name)
		}
		if got, err := get(t, c.Peer, "b", "dir/s.tar", peer.GetOptions{ArchPath: f.name}); err != nil || !bytes.Equal(got, f.data) {
			t.Errorf("%s: %d bytes %v", f.name, len(got), err)
		}
		if h, err := c.Peer.HeadMember(bounded(t), "b", "dir/s.tar", f.name); err != nil || h.Size != int64(len(f.data)) || h.Version != whole.Version {
			t.Errorf("%s: %+v %v", f.name, h, err)
		}
	}
	for _, r := range []struct{ start, length, from, to int64 }{{0, 1, 0, 1}, {5, 100, 5, 105}, {399_999, 1, 399_999, 400_000}, {130_000, -1, 130_000, 400_000}, {400_000, -1, 400_000, 400_000}} {
		got, err := get(t, c.Peer, "b", "dir/s.tar", peer.GetOptions{ArchPath: "big", Start: r.start, Length: r.length})
		if err != nil || !bytes.Equal(got, noise(3, 400_000)[r.from:r.to]) {
			t.Errorf("start %d length %d: %d bytes %v", r.start, r.length, len(got), err)
		}
	}
	_, err = get(t, c.Peer, "b", "dir/s.tar", peer.GetOptions{ArchPath: "dot/a", Start: 5, Length: 6})
	fails(t, "a range beyond the member's end", err, errs.RangeNotSatisfiable, "b/dir/s.tar@/dot/a", "10 bytes")
	for _, name := range []string{"none", "z", "z/last.jp", "./dot/a"} {
		_, err = get(t, c.Peer, "b", "dir/s.tar", peer.GetOptions{ArchPath: name})
		if name == "./dot/a" {
			fails(t, "a name with a dot", err, errs.InvalidArgument)
			continue
		}
		fails(t, "no such member", err, errs.NotFound, "b/dir/s.tar@/"+name)
		_, err = c.Peer.HeadMember(bounded(t), "b", "dir/s.tar", name)
		fails(t, "HEAD of no such member", err, errs.NotFound, "b/dir/s.tar@/"+name)
	}
	_, _, err = c.Peer.Members(bounded(t), "b", "none.tar")
	fails(t, "members of no object", err, errs.NotFound, "b/none.tar")
}

func TestBadShards(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	good := makeTar(t, file{"a", noise(1, 3000)}, file{"b", noise(2, 3000)})
	lying := bytes.Clone(good)
	copy(lying[512+3072+124:], "77777777777\x00") // the second member claims 8 GiB
	sum := 0
	header := lying[512+3072 : 512+3072+512]
	copy(header[148:156], "        ")
	for _, b := range header {
		sum += int(b)
	}
	copy(header[148:156], fmt.Sprintf("%06o\x00 ", sum))
	for name, data := range map[string][]byte{
		"truncated.tar": good[:512+3072+512+100],
		"lying.tar":     lying,
		"noise.tar":     noise(9, 5000),
		"zip.tar":       append([]byte("PK\x03\x04"), noise(9, 1000)...),
		"text.txt":      []byte("not a shard by its name"),
		"shard.TAR":     good,
	} {
		c.Put(t, "b", name, data)
		_, _, err := c.Peer.Members(bounded(t), "b", name)
		fails(t, "members of "+name, err, errs.BadShard, "b/"+name)
		_, err = get(t, c.Peer, "b", name, peer.GetOptions{ArchPath: "a"})
		fails(t, "a member of "+name, err, errs.BadShard, "b/"+name)
		_, err = c.Peer.HeadMember(bounded(t), "b", name, "a")
		fails(t, "HEAD of a member of "+name, err, errs.BadShard, "b/"+name)
		// As an object it is as good as any.
		if got, err := get(t, c.Peer, "b", name, peer.GetOptions{}); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes %v", name, len(got), err)
		}
		req := &batching.Request{Bucket: "b", Coer: true, In: []batching.Entry{{ObjName: name, ArchPath: "a"}, {ObjName: name}}}
		s, err := c.Batch.GetBatch(bounded(t), req)
		must(t, err)
		it, err := s.Next()
		must(t, err)
		fails(t, "a batch's member of "+name, it.Err, errs.BadShard, "b/"+name)
		it, err = s.Next()
		must(t, err)
		if b, err := it.Bytes(); err != nil || !bytes.Equal(b, data) {
			t.Errorf("%s in a batch: %d bytes %v", name, len(b), err)
		}
		must(t, s.Close())
		// A whole shard in its place is one at once.
		if filepath.Ext(name) == ".tar" {
			c.Put(t, "b", name, good)
			if got, err := get(t, c.Peer, "b", name, peer.GetOptions{ArchPath: "b"}); err != nil || !bytes.Equal(got, noise(2, 3000)) {
				t.Errorf("%s mended: %d bytes %v", name, len(got), err)
			}
		}
	}
}

// A shard is read through once in its life; after a restart its index comes from disk.
func TestIndexIsKept(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "b")
	const shards = 5
	p := c.Peer
	read := func() {
		t.Helper()
		var wg sync.WaitGroup
		for i := range 4 * shards {
			wg.Go(func() {
				name := fmt.Sprintf("s%d.tar", i%shards)
				if got, err := get(t, p, "b", name, peer.GetOptions{ArchPath: "m"}); err != nil || string(got) != name {
					t.Errorf("%s: %q %v", name, got, err)
				}
			})
		}
		wg.Wait()
	}
	counts := func(builds, loads float64) {
		t.Helper()
		if b, l := metric(t, c.Nodes[0], "sheaf_index_builds_total"), metric(t, c.Nodes[0], "sheaf_index_loads_total"); b != builds || l != loads {
			t.Errorf("%v builds, %v loads; want %v, %v", b, l, builds, loads)
		}
	}
	put := func(i int) {
		name := fmt.Sprintf("s%d.tar", i)
		data := makeTar(t, file{"before", noise(uint64(i), 100*i)}, file{"m", []byte(name)})
		_, err := p.Put(bounded(t), "b", name, bytes.NewReader(data), peer.PutOptions{Size: int64(len(data))})
		must(t, err)
	}
	for i := range shards {
		put(i)
	}
	counts(0, 0)
	read()
	read()
	counts(shards, 0)

	addr := c.Nodes[0].Addr()
	must(t, c.Nodes[0].Close())
	n := testcluster.Restart(t, c, 0, addr)
	t.Cleanup(func() { must(t, n.Close()) })
	p, _ = testcluster.Client(t, testcluster.Identity(t, c.Certs, peer.ClientName), addr)
	read()
	read()
	counts(0, shards)

	// A new version has a new index, and another one's stays.
	put(2)
	read()
	counts(1, shards)
	must(t, p.Delete(bounded(t), "b", "s3.tar"))
	_, err := get(t, p, "b", "s3.tar", peer.GetOptions{ArchPath: "m"})
	fails(t, "a member of a deleted shard", err, errs.NotFound, "b/s3.tar")
	put(3)
	read()
	counts(2, shards)
}

// While a shard is replaced over and over, each read of a member gives the bytes of one
// version: never those at its place in another, never a mixture.
func TestShardReplacedUnderReaders(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	const versions = 60
	// Every version has its members elsewhere and of other sizes.
	size := func(v, m int) int { return 1000 + 37*v + 5000*m*((v+m)%3) }
	shard := func(v int) []byte {
		var files []file
		for m := range 4 {
			k := (m + v) % 4
			files = append(files, file{fmt.Sprint("m", k), bytes.Repeat([]byte{byte(v)}, size(v, k))})
		}
		return makeTar(t, append(files, file{fmt.Sprint("only", v), []byte("x")})...)
	}
	check := func(what string, m int, b []byte) int {
		v := -1
		if len(b) > 0 {
			v = int(b[0])
		}
		if v < 1 || v > versions || len(b) != size(v, m) || bytes.Count(b, b[:1]) != len(b) {
			t.Errorf("%s: %d bytes that are no version's", what, len(b))
		}
		return v
	}
	c.Put(t, "b", "s.tar", shard(1))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { // ends with stop
			for seen := 0; ; {
				select {
				case <-stop:
					return
				default:
				}
				for m := range 4 {
					b, err := get(t, c.Peer, "b", "s.tar", peer.GetOptions{ArchPath: fmt.Sprint("m", m)})
					if err != nil {
						t.Errorf("m%d: %v", m, err)
						return
					}
					v := check("GET", m, b)
					if v < seen {
						t.Errorf("version %d after %d", v, seen)
					}
					seen = v
				}
			}
		})
	}
	wg.Go(func() { // ends with stop
		for {
			select {
			case <-stop:
				return
			default:
			}
			req := &batching.Request{Bucket: "b"}
			for m := range 4 {
				req.In = append(req.In, batching.Entry{ObjName: "s.tar", ArchPath: fmt.Sprint("m", m)})
			}
			s, err := c.Batch.GetBatch(bounded(t), req)
			if err != nil {
				t.Error(err)
				return
			}
			for it, err := range s.Items() {
				if err != nil {
					t.Error(err)
					break
				}
				b, err := it.Bytes()
				if err != nil {
					t.Error(err)
					break
				}
				check("batch", it.Index, b)
			}
			_ = s.Close()
		}
	})
	for v := 2; v <= versions; v++ {
		c.Put(t, "b", "s.tar", shard(v))
		// What was acknowledged is what the next read gives.
		b, err := get(t, c.Peer, "b", "s.tar", peer.GetOptions{ArchPath: "m1"})
		if err != nil || check("after PUT", 1, b) != v {
			t.Errorf("after version %d was put: %d bytes %v", v, len(b), err)
		}
		if _, err := get(t, c.Peer, "b", "s.tar", peer.GetOptions{ArchPath: fmt.Sprint("only", v)}); err != nil {
			t.Errorf("the new member of version %d: %v", v, err)
		}
		_, err = get(t, c.Peer, "b", "s.tar", peer.GetOptions{ArchPath: fmt.Sprint("only", v-1)})
		fails(t, "a member of the version before", err, errs.NotFound, fmt.Sprint("b/s.tar@/only", v-1))
	}
	close(stop)
	wg.Wait()
}

// One GetBatch is one request, whoever was asked, and counts its entries by kind.
func TestOneBatchIsOneRequest(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	req := &batching.Request{Bucket: "b"}
	for i := range 30 {
		name := fmt.Sprintf("s%d.tar", i)
		c.Put(t, "b", name, makeTar(t, file{"m", noise(uint64(i), 200)}))
		req.In = append(req.In, batching.Entry{ObjName: name}, batching.Entry{ObjName: name, ArchPath: "m"}, batching.Entry{ObjName: name, ArchPath: "m", Start: 1, Length: 9})
	}
	const batches = 12
	for k := range batches {
		req.ID, req.Coloc, req.OutputFormat = "", k%3, ""
		if k%2 == 0 {
			totals, err := c.Batch.GetArchive(bounded(t), req, io.Discard)
			must(t, err)
			if totals.OK != len(req.In) {
				t.Errorf("%+v", totals)
			}
			continue
		}
		s, err := c.Batch.GetBatch(bounded(t), req)
		must(t, err)
		for it, err := range s.Items() {
			must(t, err)
			_, err = it.WriteTo(io.Discard)
			must(t, err)
		}
		must(t, s.Close())
	}
	waitFor(t, "the counters of batches that have ended", func() bool {
		return total(t, c, "sheaf_getbatch_seconds") == batches && total(t, c, "sheaf_getbatch_inflight") == 0 && total(t, c, "sheaf_getbatch_sending") == 0
	})
	for name, want := range map[string]float64{"requests_total": batches, "entries_total": batches * 90, "hard_errors_total": 0, "soft_errors_total": 0, "redirects_total": 0, "rejected_total": 0} {
		if got := total(t, c, "sheaf_getbatch_"+name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
