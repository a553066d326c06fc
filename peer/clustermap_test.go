package peer

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"sheaf/peer/wire/wiretest"
)

func someMap(n int) *Map {
	var nodes []Node
	for i := range n {
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("127.0.0.1:%d", 7070+i), Epoch: 1})
	}
	return NewMap("c", 1, nodes)
}

// Placement is part of the protocol: other programs compute it too.
func TestPlacementVectors(t *testing.T) {
	type node struct {
		Name   string `json:"name"`
		Weight uint64 `json:"weight"`
	}
	type placed struct {
		Nodes []node `json:"nodes"`
		Key   string `json:"key"`
		Owner string `json:"owner"`
	}
	const path = "testdata/placement.json"
	var want []placed
	for k, weights := range [][]uint64{{0, 0, 0}, {1, 1, 1, 1, 1}, {0}, {1, 2, 4}, {10, 1}, {0, 3, 1}} {
		for i := range 12 {
			p := placed{Key: fmt.Sprintf("bucket-%d/dir/objekt-ö-%d", k, i)}
			if i%6 == 5 {
				p.Key = fmt.Sprintf("request-%d.%d", k, i)
			}
			if i%6 == 5 {
				p.Key = fmt.Sprintf("request-%d.%d", k, i)
			}
			var nodes []Node
			for j, w := range weights {
				name := fmt.Sprintf("node%d-%d", k, j)
				p.Nodes = append(p.Nodes, node{name, w})
				nodes = append(nodes, Node{Name: name, Addr: "x", Weight: w})
			}
			m := NewMap("", 0, nodes)
			p.Owner = m.Nodes[m.Owner(HashKey(p.Key))].Name
			want = append(want, p)
		}
	}
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) && wiretest.Update() {
		if b, err = json.MarshalIndent(want, "", " "); err == nil {
			err = os.WriteFile(path, append(b, '\n'), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	var got []placed
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d cases in the file, %d here", len(got), len(want))
	}
	for i := range got {
		if got[i].Owner != want[i].Owner || got[i].Key != want[i].Key {
			t.Errorf("case %d: %s belongs to %s, the file says %s", i, want[i].Key, want[i].Owner, got[i].Owner)
		}
	}
}

func TestOwnersFollowWeights(t *testing.T) {
	m := NewMap("c", 1, []Node{{Name: "a", Addr: "x"}, {Name: "b", Addr: "x", Weight: 2}, {Name: "c", Addr: "x", Weight: 3}})
	const n = 60_000
	var count [3]int
	for i := range n {
		count[m.Owner(HashObject("b", fmt.Sprint(i)))]++
	}
	for i, share := range []float64{1.0 / 6, 2.0 / 6, 3.0 / 6} {
		if got := float64(count[i]) / n; math.Abs(got-share) > 0.02 {
			t.Errorf("node %d owns %.3f, its weight stands for %.3f", i, got, share)
		}
	}
}

// Taking a node away moves only what it owned, to the next holder.
func TestHoldersAreWhoIsNext(t *testing.T) {
	for _, weight := range []uint64{0, 3} {
		m := someMap(7)
		m.Nodes[2].Weight = weight
		m = NewMap("c", 1, m.Nodes)
		for i := range 500 {
			h := HashObject("bucket", fmt.Sprint(i))
			holders := m.Holders(h, 3)
			if len(holders) != 3 || holders[0] != m.Owner(h) {
				t.Fatalf("holders %v, owner %d", holders, m.Owner(h))
			}
			rest := slices.Delete(slices.Clone(m.Nodes), holders[0], holders[0]+1)
			without := NewMap("c", 2, rest)
			if got := without.Nodes[without.Owner(h)].Name; got != m.Nodes[holders[1]].Name {
				t.Fatalf("without the owner %s takes over, not %s", got, m.Nodes[holders[1]].Name)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	a := NewMap("c", 5, []Node{{Name: "x", Addr: "1", Epoch: 1}, {Name: "y", Addr: "1", Epoch: 3}})
	if a.Merge(nil) != a || a.Merge(a) != a || a.Merge(NewMap("c", 2, a.Nodes[:1])) != a {
		t.Error("merging nothing new isn't the same map")
	}
	b := NewMap("c", 5, []Node{{Name: "y", Addr: "2", Epoch: 4}, {Name: "z", Addr: "1", Epoch: 1}})
	ab, ba := a.Merge(b), b.Merge(a)
	if !slices.Equal(ab.Nodes, ba.Nodes) {
		t.Errorf("%v and %v", ab.Nodes, ba.Nodes)
	}
	if ab.Version != 6 || len(ab.Nodes) != 3 || ab.Nodes[ab.Find("y")].Addr != "2" {
		t.Errorf("%+v", ab)
	}
	// Whoever merges the merged map takes it as it is: versions settle.
	if got := a.Merge(ab); got.Version != ab.Version || !slices.Equal(got.Nodes, ab.Nodes) {
		t.Errorf("version %d, want %d", got.Version, ab.Version)
	}
	if ab.Find("w") != -1 || NewMap("", 0, nil).Owner(1) != -1 {
		t.Error("found what isn't there")
	}
}

// Only nodes that are Up own and hold; the others are ranked when they are asked for.
func TestPlacementByState(t *testing.T) {
	all := someMap(6)
	nodes := slices.Clone(all.Nodes)
	nodes[1].State, nodes[3].State, nodes[4].State = Leaving, Down, Left
	m := NewMap("c", 2, nodes)
	if got := m.Readable(); !slices.Equal(got, []int{0, 1, 2, 5}) {
		t.Errorf("readable are %v", got)
	}
	if m.Count(Up) != 3 || m.Count(Left) != 1 {
		t.Errorf("%d up, %d left", m.Count(Up), m.Count(Left))
	}
	for i := range 500 {
		h := HashObject("b", fmt.Sprint(i))
		full := all.Rank(h)
		want := func(of []int, states ...NodeState) []int {
			return slices.DeleteFunc(slices.Clone(of), func(i int) bool { return !slices.Contains(states, m.Nodes[i].State) })
		}
		if got := m.Rank(h); !slices.Equal(got, full) {
			t.Fatalf("rank %v, want %v", got, full)
		}
		if got := m.Rank(h, Up, Leaving); !slices.Equal(got, want(full, Up, Leaving)) {
			t.Fatalf("rank of readable nodes %v", got)
		}
		up := want(full, Up)
		for n := range 5 {
			if got := m.Holders(h, n); !slices.Equal(got, up[:min(n, 3)]) {
				t.Fatalf("%d holders are %v, want the first of %v", n, got, up)
			}
		}
		if m.Owner(h) != up[0] {
			t.Fatalf("the owner is %d, want %d", m.Owner(h), up[0])
		}
	}
	for i := range nodes {
		nodes[i].State = Down
	}
	if none := NewMap("c", 3, nodes); none.Owner(7) != -1 || len(none.Holders(7, 1)) != 0 || len(none.Holders(7, 3)) != 0 {
		t.Error("a map without nodes that are up has an owner")
	}
}

func TestMapHash(t *testing.T) {
	base := someMap(4)
	if base.Hash() != NewMap("other", 9, base.Nodes).Hash() {
		t.Error("the hash depends on the version")
	}
	seen := map[uint64]string{base.Hash(): "the map itself"}
	for what, change := range map[string]func(n *Node){
		"name": func(n *Node) { n.Name = "x" }, "weight": func(n *Node) { n.Weight = 2 }, "epoch": func(n *Node) { n.Epoch++ }, "state": func(n *Node) { n.State = Down },
	} {
		nodes := slices.Clone(base.Nodes)
		change(&nodes[2])
		h := NewMap("c", 1, nodes).Hash()
		if same, ok := seen[h]; ok {
			t.Errorf("a change of the %s hashes like %s", what, same)
		}
		seen[h] = what
	}
	nodes := slices.Clone(base.Nodes)
	nodes[0].Weight = 1
	if NewMap("c", 1, nodes).Hash() != base.Hash() {
		t.Error("weights 0 and 1 differ")
	}
}

// Whatever order records of a node come in, the newest wins, and of equal epochs the
// higher state.
func TestNewestRecordWins(t *testing.T) {
	var all []Node
	for epoch := range uint64(3) {
		for s := Up; s <= Left; s++ {
			all = append(all, Node{Name: "n", Addr: "a:1", Epoch: epoch, State: s})
		}
	}
	for i, a := range all {
		for j, b := range all {
			want := all[max(i, j)]
			got := NewMap("c", 1, []Node{a}).Merge(NewMap("c", 1, []Node{b}))
			if got.Nodes[0] != want {
				t.Errorf("%+v and %+v give %+v", a, b, got.Nodes[0])
			}
			if a.Newer(b) != (i > j) {
				t.Errorf("%+v newer than %+v: %v", a, b, a.Newer(b))
			}
		}
	}
}

func BenchmarkOwner(b *testing.B) {
	for _, n := range []int{3, 1000} {
		m := someMap(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			i := uint64(0)
			for b.Loop() {
				i++
				m.Owner(i)
			}
		})
	}
}
