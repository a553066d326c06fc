package server

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// record is a bucket's record; two with one epoch are the same record.
func record(name string, epoch uint64) bucketRecord {
	return bucketRecord{Name: name, Provider: "sheaf", Created: time.Unix(0, int64(epoch)).UTC(), Epoch: epoch, Deleted: epoch%3 == 0, BucketProps: peer.BucketProps{Copies: 1 + int(epoch%2), Durability: peer.Sync}}
}

func randomState(r *rand.Rand) *state {
	s := &state{Name: "n", Buckets: map[string]bucketRecord{}}
	var nodes []peer.Node
	for _, name := range []string{"n1", "n2", "n3", "n4"} {
		if e := r.Uint64N(4); e > 0 {
			nodes = append(nodes, peer.Node{Name: name, Addr: name + string('0'+rune(e)) + ":1", Epoch: e})
		}
	}
	s.Map = peer.NewMap("c", r.Uint64N(9), nodes)
	for _, name := range []string{"a", "b", "c"} {
		if e := r.Uint64N(7); e > 0 {
			s.Buckets[name] = record(name, e)
		}
	}
	return s
}

// with is what s knows after it has met o.
func with(s, o *state) *state {
	m, _ := s.merge(o.Map, o.sortedBuckets(true))
	return m
}

// sameView compares what two nodes agree on; the map's version isn't a part of it.
func sameView(a, b *state) bool {
	return reflect.DeepEqual(a.Map.Nodes, b.Map.Nodes) && a.Map.Cluster == b.Map.Cluster && reflect.DeepEqual(a.Buckets, b.Buckets)
}

func TestMergeOfStatesIsJoin(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, b, c := randomState(r), randomState(r), randomState(r)
		before := with(a, &state{Map: peer.NewMap("", 0, nil)})
		ab := with(a, b)
		if !sameView(ab, with(b, a)) {
			t.Fatalf("seed %d: the order of two matters", seed)
		}
		if !sameView(with(ab, c), with(a, with(b, c))) {
			t.Fatalf("seed %d: the grouping of three matters", seed)
		}
		if again, changed := ab.merge(b.Map, b.sortedBuckets(true)); changed || !sameView(again, ab) {
			t.Fatalf("seed %d: the same records once more changed something", seed)
		}
		if !sameView(a, before) {
			t.Fatalf("seed %d: merging changed what it merged into", seed)
		}
		for name, rec := range ab.Buckets {
			if want := max(a.Buckets[name].Epoch, b.Buckets[name].Epoch); rec.Epoch != want {
				t.Fatalf("seed %d: bucket %s has epoch %d, want %d", seed, name, rec.Epoch, want)
			}
		}
	}
}

func TestMergeTellsOfChanges(t *testing.T) {
	s := &state{Name: "n", Map: peer.NewMap("c", 3, []peer.Node{{Name: "n", Addr: "x:1", Epoch: 5}}), Buckets: map[string]bucketRecord{"b": record("b", 5)}}
	for _, c := range []struct {
		name    string
		m       *peer.Map
		buckets []bucketRecord
		want    bool
	}{
		{"nothing", nil, nil, false},
		{"the same", s.Map, []bucketRecord{record("b", 5)}, false},
		{"older", peer.NewMap("c", 2, []peer.Node{{Name: "n", Addr: "y:1", Epoch: 4}}), []bucketRecord{record("b", 4)}, false},
		{"newer node", peer.NewMap("c", 2, []peer.Node{{Name: "n", Addr: "y:1", Epoch: 6}}), nil, true},
		{"another node", peer.NewMap("c", 2, []peer.Node{{Name: "m", Addr: "y:1", Epoch: 1}}), nil, true},
		{"newer bucket", nil, []bucketRecord{record("b", 7)}, true},
		{"another bucket", nil, []bucketRecord{record("z", 1)}, true},
	} {
		out, changed := s.merge(c.m, c.buckets)
		if changed != c.want {
			t.Errorf("%s: changed is %v", c.name, changed)
		}
		if changed && out.Map.Version < s.Map.Version {
			t.Errorf("%s: the map's version fell to %d", c.name, out.Map.Version)
		}
	}
	if _, ok := s.bucket("b"); !ok || s.Buckets["b"].Epoch != 5 {
		t.Error("merging changed the state that it merged into")
	}
	gone, _ := s.merge(nil, []bucketRecord{record("b", 6)})
	if _, ok := gone.bucket("b"); ok || len(gone.sortedBuckets(false)) != 0 || len(gone.sortedBuckets(true)) != 1 {
		t.Error("a destroyed bucket is there, or its record isn't")
	}
}

// Whatever a node hears of itself, it ends with a record that says what it is, and that
// wins over what it heard; but for the news that it has left.
func TestNodeRefutes(t *testing.T) {
	me := peer.Node{Name: "n1", Addr: "a:1", Admin: "a:2"}
	for _, c := range []struct {
		name  string
		heard peer.Node
		want  peer.NodeState // what the node wants to be
		same  bool           // nothing to refute
		is    peer.NodeState
	}{
		{"what is true", peer.Node{Addr: "a:1", Admin: "a:2"}, peer.Up, true, peer.Up},
		{"that it is down", peer.Node{Addr: "a:1", Admin: "a:2", State: peer.Down}, peer.Up, false, peer.Up},
		{"that it is down while it leaves", peer.Node{Addr: "a:1", Admin: "a:2", State: peer.Down}, peer.Leaving, false, peer.Leaving},
		{"that it is up while it leaves", peer.Node{Addr: "a:1", Admin: "a:2"}, peer.Leaving, false, peer.Leaving},
		{"that it leaves and doesn't", peer.Node{Addr: "a:1", Admin: "a:2", State: peer.Leaving}, peer.Up, false, peer.Up},
		{"an address of before", peer.Node{Addr: "b:1", Admin: "a:2"}, peer.Up, false, peer.Up},
		{"an admin address of before", peer.Node{Addr: "a:1", Admin: "b:2"}, peer.Up, false, peer.Up},
		{"that it has left", peer.Node{Addr: "a:1", Admin: "a:2", State: peer.Left}, peer.Up, true, peer.Left},
		{"that it has left, as it knows", peer.Node{Addr: "b:1", State: peer.Left}, peer.Left, true, peer.Left},
		{"a weight that was given to it", peer.Node{Addr: "a:1", Admin: "a:2", Weight: 7}, peer.Up, true, peer.Up},
	} {
		c.heard.Name, c.heard.Epoch = "n1", 50
		s := &state{Name: "n1", Want: c.want, Map: peer.NewMap("c", 3, []peer.Node{c.heard, {Name: "n2", Addr: "x:1", Epoch: 9}}), Buckets: map[string]bucketRecord{}}
		out := s.asserted(me)
		if (out == s) != c.same {
			t.Errorf("%s: refuted is %v", c.name, out != s)
		}
		got := out.Map.Nodes[out.Map.Find("n1")]
		if got.State != c.is || got.Weight != c.heard.Weight || len(out.Map.Nodes) != 2 {
			t.Errorf("%s: the record is %+v", c.name, got)
		}
		if out != s && (!got.Newer(c.heard) || got.Addr != me.Addr || got.Admin != me.Admin || out.Map.Version <= s.Map.Version) {
			t.Errorf("%s: %+v doesn't win over %+v", c.name, got, c.heard)
		}
		if again := out.asserted(me); again != out {
			t.Errorf("%s: refuted once more", c.name)
		}
	}
	alone := (&state{Name: "n1", Map: peer.NewMap("c", 0, nil), Buckets: map[string]bucketRecord{}}).asserted(me)
	if i := alone.Map.Find("n1"); i < 0 || alone.Map.Nodes[i] != me {
		t.Errorf("a node that isn't in its map: %+v", alone.Map.Nodes)
	}
}

// Two that notice one death write the same record, and the node's answer ends it for both.
func TestDeathAndRefutationInAnyOrder(t *testing.T) {
	up := peer.Node{Name: "n1", Addr: "a:1", Epoch: 7}
	down := up
	down.State, down.Epoch = peer.Down, 8
	of := func(n peer.Node) *state {
		return &state{Name: "n9", Map: peer.NewMap("c", 1, []peer.Node{n}), Buckets: map[string]bucketRecord{}}
	}
	back := (&state{Name: "n1", Map: of(down).Map, Buckets: map[string]bucketRecord{}}).asserted(up).Map.Nodes[0]
	records := []peer.Node{up, down, down, back}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {3, 0, 1, 2}, {2, 0, 3, 1}} {
		s := of(records[order[0]])
		for _, i := range order[1:] {
			s = s.with(records[i])
		}
		if got := s.Map.Nodes[0]; got != back || got.State != peer.Up {
			t.Errorf("in the order %v the record is %+v, want %+v", order, got, back)
		}
	}
}

func TestDigest(t *testing.T) {
	s := &state{Name: "n1", Map: peer.NewMap("c", 3, []peer.Node{{Name: "n1", Addr: "a:1", Epoch: 5}}), Buckets: map[string]bucketRecord{"a": record("a", 5)}}
	same := &state{Name: "n2", Map: peer.NewMap("c", 9, s.Map.Nodes), Buckets: map[string]bucketRecord{"a": record("a", 5)}}
	if s.digest() != same.digest() {
		t.Error("two nodes that know the same have different digests")
	}
	for what, o := range map[string]*state{
		"a node's record":  s.with(peer.Node{Name: "n1", Addr: "a:1", Epoch: 6}),
		"another node":     s.with(peer.Node{Name: "n2", Addr: "a:1", Epoch: 6}),
		"a bucket's epoch": {Map: s.Map, Buckets: map[string]bucketRecord{"a": record("a", 7)}},
		"a bucket's name":  {Map: s.Map, Buckets: map[string]bucketRecord{"b": record("b", 5)}},
		"no bucket":        {Map: s.Map, Buckets: map[string]bucketRecord{}},
	} {
		if o.digest() == s.digest() {
			t.Errorf("%s isn't in the digest", what)
		}
	}
}

func TestStateOnDisk(t *testing.T) {
	dirs := []string{t.TempDir(), t.TempDir()}
	empty, err := loadState(dirs)
	if err != nil || empty.Name != "" || len(empty.Map.Nodes) != 0 || len(empty.Buckets) != 0 {
		t.Fatalf("%+v %v from empty folders", empty, err)
	}
	want := &state{Name: "n1", Map: peer.NewMap("c", 9, []peer.Node{{Name: "n1", Addr: "h:1", Admin: "h:2", Weight: 3, Epoch: 4}, {Name: "n2", Addr: "h:3", Epoch: 1}}),
		Buckets: map[string]bucketRecord{"a": record("a", 4), "b": record("b", 6)}}
	if err := want.save(dirs); err != nil {
		t.Fatal(err)
	}
	for _, d := range append([][]string{dirs}, dirs[:1], dirs[1:]) {
		got, err := loadState(d)
		if err != nil {
			t.Fatal(err)
		}
		if got.Name != "n1" || got.Map.Version != 9 || !sameView(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if o := got.Map.Owner(peer.HashObject("a", "x")); o != want.Map.Owner(peer.HashObject("a", "x")) {
			t.Error("the map that was read places objects differently")
		}
	}

	// A disk that was away holds an older state: the newest record of each counts.
	newer, _ := want.merge(peer.NewMap("c", 12, []peer.Node{{Name: "n2", Addr: "h:9", Epoch: 2}}), []bucketRecord{record("a", 8)})
	if err := newer.save(dirs[1:]); err != nil {
		t.Fatal(err)
	}
	for _, d := range [][]string{dirs, {dirs[1], dirs[0]}, {dirs[0], t.TempDir(), dirs[1]}} {
		if got, err := loadState(d); err != nil || !sameView(got, newer) || got.Map.Version < 12 {
			t.Errorf("%+v %v, want %+v", got, err, newer)
		}
	}
}

func TestStateOnDiskRefused(t *testing.T) {
	good := t.TempDir()
	s := &state{Name: "n1", Map: peer.NewMap("c", 1, []peer.Node{{Name: "n1", Addr: "h:1", Epoch: 1}}), Buckets: map[string]bucketRecord{"a": record("a", 1)}}
	if err := s.save([]string{good}); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(good, stateFile))
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(good); err != nil || len(left) != 1 {
		t.Errorf("saving left %v %v", left, err)
	}
	// Torn anywhere: an error that names the file, never a part of the state.
	for n := range whole {
		dir := t.TempDir()
		path := filepath.Join(dir, stateFile)
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := loadState([]string{dir}); err == nil || !strings.Contains(err.Error(), path) {
			t.Fatalf("cut to %d of %d bytes: %+v %v", n, len(whole), got, err)
		}
	}
	other := t.TempDir()
	s.Name = "n2"
	if err := s.save([]string{other}); err != nil {
		t.Fatal(err)
	}
	_, err = loadState([]string{good, other})
	if !errs.IsCode(err, errs.InvalidArgument) || !strings.Contains(err.Error(), `"n1"`) || !strings.Contains(err.Error(), `"n2"`) {
		t.Errorf("folders of two nodes: %v", err)
	}
}

func TestOptionsValidateListsEveryFault(t *testing.T) {
	err := Options{Name: "a b", Listen: "nowhere", Advertise: "x", Admin: "y", Join: []string{"ok:1", "z"}, MaxBatches: -1, IndexCache: -1,
		SenderTimeout: -1, JoinTimeout: -1, GossipEvery: -1, DrainTimeout: -1}.Validate()
	if !errs.IsCode(err, errs.InvalidArgument) {
		t.Fatal(err)
	}
	for _, want := range []string{`name "a b"`, "no data folder", "no certificate", `listen "nowhere"`, `advertise "x"`, `admin "y"`, `join "z"`,
		"max batches", "index cache", "sender timeout", "join timeout", "gossip interval", "drain timeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %q in: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "ok:1") {
		t.Errorf("a good address is named: %v", err)
	}
	good := Options{Name: "n", Dirs: []string{"d"}, Listen: "127.0.0.1:0", Identity: &peer.Identity{}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for _, listen := range []string{"0.0.0.0:1", ":1", "[::]:1"} {
		o := good
		o.Listen = listen
		if err := o.Validate(); !errs.IsCode(err, errs.InvalidArgument) || !strings.Contains(err.Error(), "advertise") {
			t.Errorf("listen %q without advertise: %v", listen, err)
		}
		o.Advertise = "host:1"
		if err := o.Validate(); err != nil {
			t.Errorf("listen %q with advertise: %v", listen, err)
		}
	}
	if o := (Options{}).withDefaults(); o.Logger == nil || o.JoinTimeout <= 0 || o.SenderTimeout <= 0 || o.GossipEvery <= 0 || o.DrainTimeout <= 0 || o.MaxBatches <= 0 || o.IndexCache <= 0 {
		t.Errorf("defaults: %+v", o)
	}
}
