package server_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/server"
)

// calm waits until all nodes go by one map, every object lies where it belongs, and nothing
// waits to be repaired.
func calm(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	waitFor(t, "the cluster to be calm", func() bool {
		for _, n := range c.Nodes {
			s, err := c.Peer.Status(bounded(t), n.Addr())
			if err != nil || !s.Settled || n.Map().Hash() != c.Nodes[0].Map().Hash() || metric(t, n, "sheaf_repair_waiting") > 0 {
				return false
			}
		}
		return true
	})
}

// joins adds a node to a cluster.
func joins(t *testing.T, c *testcluster.Cluster, name string, suspect time.Duration) *server.Node {
	t.Helper()
	o := options(t, c, name, c.Endpoint())
	o.Dirs, o.SuspectAfter = []string{filepath.Join(c.Dir, name)}, suspect
	n := start(t, o)
	c.Nodes = append(c.Nodes, n)
	return n
}

// stock is what a test has put into a bucket.
type stock struct {
	bucket   string
	copies   int
	versions map[string]uint64
	data     map[string][]byte // nil: deleted
}

// fill makes a bucket and puts n objects there, of which it deletes every fifth.
func fill(t *testing.T, c *testcluster.Cluster, bucket string, copies, n int) *stock {
	t.Helper()
	copied(t, c, bucket, copies)
	s := &stock{bucket, copies, map[string]uint64{}, map[string][]byte{}}
	for i := range n {
		s.put(t, c, fmt.Sprintf("dir%d/o%03d", i%7, i), noise(uint64(i), 500+i))
	}
	for i := 0; i < n; i += 5 {
		s.delete(t, c, fmt.Sprintf("dir%d/o%03d", i%7, i))
	}
	return s
}

func (s *stock) put(t *testing.T, c *testcluster.Cluster, name string, data []byte) {
	t.Helper()
	c.Put(t, s.bucket, name, data)
	s.data[name] = data
}

func (s *stock) delete(t *testing.T, c *testcluster.Cluster, name string) {
	t.Helper()
	must(t, c.Peer.Delete(bounded(t), s.bucket, name))
	s.data[name] = nil
}

// check compares what lies on the disks and what each node answers with what was put.
func (s *stock) check(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	alive := 0
	for name, data := range s.data {
		var top uint64
		for _, r := range records(t, c, s.bucket, name) {
			top = max(top, r.Version)
		}
		held(t, c, s.bucket, name, s.copies, top, data == nil)
		if data == nil {
			continue
		}
		alive++
		got, err := getAt(t, c.Peer, c.Nodes[alive%len(c.Nodes)].Addr(), &peer.ObjectRequest{Bucket: s.bucket, Object: name})
		if err != nil || string(got) != string(data) {
			t.Errorf("%s/%s: %d bytes, %v; want %d", s.bucket, name, len(got), err, len(data))
		}
	}
	if names, _, _ := listAll(t, c.Peer, s.bucket, peer.ListOptions{}); len(names) != alive {
		t.Errorf("bucket %s lists %d objects, want %d", s.bucket, len(names), alive)
	}
}

func TestJoinBringsObjects(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	one, two := fill(t, c, "one", 1, 150), fill(t, c, "two", 2, 150)
	n4 := joins(t, c, "n4", 10*time.Minute)
	calm(t, c)
	one.check(t, c)
	two.check(t, c)
	if got := metric(t, n4, "sheaf_reconcile_received_total"); got == 0 {
		t.Error("the new node has received nothing")
	}
	for _, n := range c.Nodes {
		if got := metric(t, n, "sheaf_reconcile_passes_total"); got == 0 {
			t.Errorf("node %s counts no pass", n.Name())
		}
	}
	// What is asked for explicitly runs, and changes nothing.
	sent := total(t, c, "sheaf_reconcile_sent_total")
	passes := metric(t, c.Nodes[0], "sheaf_reconcile_passes_total")
	must(t, c.Peer.Rebalance(bounded(t), c.Nodes[0].Addr()))
	waitFor(t, "another pass", func() bool { return metric(t, c.Nodes[0], "sheaf_reconcile_passes_total") > passes })
	if now := total(t, c, "sheaf_reconcile_sent_total"); now != sent {
		t.Errorf("%v records were sent again", now-sent)
	}
}

func TestLeaveDrains(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Nodes: 4})
	one, three := fill(t, c, "one", 1, 100), fill(t, c, "three", 3, 100)
	calm(t, c)
	must(t, leave(t, c, c.Nodes[3].Addr(), &peer.LeaveRequest{}))
	inState(t, c.Nodes[:3], "n4", peer.Left)
	for _, b := range []string{"one", "three"} {
		if recs, err := c.Nodes[3].Store().Records(bounded(t), b, "", 10); err != nil || len(recs) > 0 {
			t.Errorf("the node that left still has %d records of %s, %v", len(recs), b, err)
		}
	}
	must(t, c.Nodes[3].Close())
	c.Nodes = c.Nodes[:3]
	calm(t, c)
	one.check(t, c)
	three.check(t, c)
}

func TestReturnAfterDeletes(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	two := fill(t, c, "two", 2, 120)
	calm(t, c)
	addr := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close())
	inState(t, []*server.Node{c.Nodes[0], c.Nodes[2]}, "n2", peer.Down)
	i := 0
	for name, data := range two.data {
		switch i++; {
		case i%3 == 0 && data != nil:
			two.delete(t, c, name)
		case i%3 == 1:
			two.put(t, c, name, noise(uint64(i), 300))
		}
	}
	again(t, c, 1, addr)
	inState(t, c.Nodes, "n2", peer.Up)
	calm(t, c)
	two.check(t, c)
}

func TestCopiesRaisedAndLowered(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{})
	s := fill(t, c, "b", 1, 80)
	for _, copies := range []int{3, 2, 1, 2} {
		_, err := c.Peer.SetBucket(bounded(t), "b", peer.BucketChange{Copies: &copies})
		must(t, err)
		s.copies = copies
		waitFor(t, fmt.Sprintf("%d copies", copies), func() bool {
			n := 0
			for _, node := range c.Nodes {
				recs, err := node.Store().Records(bounded(t), "b", "", 1000)
				must(t, err)
				n += len(recs)
			}
			return n == copies*len(s.data)
		})
		calm(t, c)
		s.check(t, c)
	}
}

func TestTombstonesAreForgotten(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	s := fill(t, c, "b", 2, 20)
	calm(t, c)
	tombs := func() (n int) {
		for _, node := range c.Nodes {
			recs, err := node.Store().Records(bounded(t), "b", "", 100)
			must(t, err)
			for _, r := range recs {
				if r.Deleted {
					n++
				}
			}
		}
		return n
	}
	before := tombs()
	if before != 8 {
		t.Fatalf("%d tombstones on all nodes, want 8", before)
	}
	addr := c.Nodes[2].Addr()
	must(t, c.Nodes[2].Close())
	down := c.Nodes[2]
	c.Nodes = c.Nodes[:2]
	inState(t, c.Nodes, "n3", peer.Down)
	calm(t, c)
	before = tombs()
	for _, n := range c.Nodes {
		n.ForgetTombstones(bounded(t))
	}
	if now := tombs(); now != before {
		t.Errorf("%d of %d tombstones are left while a node is down that may bring back what they deleted", now, before)
	}
	c.Nodes = append(c.Nodes, down)
	again(t, c, 2, addr)
	inState(t, c.Nodes, "n3", peer.Up)
	calm(t, c)
	for _, n := range c.Nodes {
		n.ForgetTombstones(bounded(t))
	}
	if now := tombs(); now != 0 {
		t.Errorf("%d tombstones are left in a settled cluster", now)
	}
	for name, data := range s.data {
		if data == nil {
			delete(s.data, name)
		}
	}
	s.check(t, c)
}

// A node that sends is killed in the middle of its pass, and comes back.
func TestKilledInAPass(t *testing.T) {
	t.Parallel()
	slow := func(_ int, o *server.Options) { o.RebalanceObjects = 40 }
	c := testcluster.Start(t, testcluster.Options{Adjust: slow})
	s := fill(t, c, "b", 1, 200)
	calm(t, c)
	n4 := joins(t, c, "n4", 10*time.Minute)
	waitFor(t, "the first objects", func() bool { return metric(t, n4, "sheaf_reconcile_received_total") > 3 })
	addr := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close())
	testcluster.Restart(t, c, 1, addr)
	t.Cleanup(func() { _ = c.Nodes[1].Close() })
	calm(t, c)
	s.check(t, c)
}

// spoil changes a byte of an object on a node's disk.
func spoil(t *testing.T, c *testcluster.Cluster, i int, bucket, object string) {
	t.Helper()
	path := filepath.Join(c.Dir, c.Nodes[i].Name(), "@sheaf", bucket, "%ob", object)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt([]byte{0xff, 0x00, 0xff}, 10)
	must(t, err)
}

func TestScrub(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Adjust: func(_ int, o *server.Options) { o.ScrubEvery = 100 * time.Millisecond }})
	copied(t, c, "two", 2)
	copied(t, c, "one", 1)
	data := noise(1, 3000)
	c.Put(t, "two", "o", data)
	c.Put(t, "one", "o", data)
	two, one := holdersOf(c, "two", "o", 2), holdersOf(c, "one", "o", 1)
	calm(t, c)

	spoil(t, c, two[0], "two", "o")
	waitFor(t, "the bad copy to be replaced", func() bool {
		_, err := c.Nodes[two[0]].Store().Verify(bounded(t), "two", "o", nil)
		return err == nil
	})
	if metric(t, c.Nodes[two[0]], "sheaf_scrub_corrupt_total")+metric(t, c.Nodes[two[0]], "sheaf_repair_replaced_total") < 2 {
		t.Error("the metrics don't tell of a bad copy that was replaced")
	}

	spoil(t, c, one[0], "one", "o")
	waitFor(t, "the loss to be told", func() bool { return metric(t, c.Nodes[one[0]], "sheaf_scrub_lost") == 1 })
	_, err := get(t, c.Peer, "one", "o", peer.GetOptions{})
	fails(t, "GET of the only copy, which is bad", err, errs.ChecksumMismatch)
	c.Put(t, "one", "o", data) // whoever writes it anew has it again
	waitFor(t, "the loss to be over", func() bool { return metric(t, c.Nodes[one[0]], "sheaf_scrub_lost") == 0 })
	waitFor(t, "some rounds", func() bool { return metric(t, c.Nodes[0], "sheaf_scrub_rounds_total") > 1 })
	if s, err := c.Peer.Status(bounded(t), c.Nodes[two[0]].Addr()); err != nil || s.Scrub.Started.IsZero() {
		t.Errorf("the status tells nothing of the scrub: %+v %v", s.Scrub, err)
	}
}

// A mountpath goes out of use: what it had comes from the other nodes. It comes back, with
// what it had, and what was deleted meanwhile stays deleted.
func TestMountpathOutOfUse(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Adjust: func(_ int, o *server.Options) { o.Dirs = append(o.Dirs, o.Dirs[0]+"-second") }})
	s := fill(t, c, "b", 2, 60)
	calm(t, c)
	n := c.Nodes[0]
	disks, err := c.Peer.Mountpaths(bounded(t), n.Addr())
	must(t, err)
	if len(disks) != 2 || !disks[0].Enabled || disks[1].Objects == 0 {
		t.Fatalf("mountpaths %+v", disks)
	}
	must(t, c.Peer.SetMountpath(bounded(t), n.Addr(), disks[1].Dir, false))
	waitFor(t, "the copies to be made anew", func() bool { return metric(t, n, "sheaf_reconcile_received_total") > 0 })
	calm(t, c)
	s.check(t, c)
	if got := metric(t, n, "sheaf_mountpaths_disabled"); got != 1 {
		t.Errorf("%v mountpaths are out of use", got)
	}
	i := 0
	for name, data := range s.data {
		if i++; data != nil && i%3 == 0 {
			s.delete(t, c, name)
		}
	}
	must(t, c.Peer.SetMountpath(bounded(t), n.Addr(), disks[1].Dir, true))
	waitFor(t, "the resilver", func() bool {
		st, err := c.Peer.Status(bounded(t), n.Addr())
		return err == nil && !st.Resilver.Active && !st.Resilver.Finished.IsZero() && st.Resilver.Finished.After(st.Resilver.Started)
	})
	calm(t, c)
	s.check(t, c)
}
