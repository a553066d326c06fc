package peer

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/zeebo/xxh3"

	"sheaf/peer/wire"
)

// Limits of a cluster map.
const (
	MaxNodes    = 4096
	MaxNodeName = 64
)

// Node is one storage node as the map knows it.
type Node struct {
	Name   string // unique in the cluster, chosen once
	Addr   string // host:port of its QUIC endpoint
	Admin  string // host:port of its admin HTTP, for people
	Weight uint64 // share of objects relative to others; 0 counts as 1
	Epoch  uint64 // grows with each change of the record
	State  NodeState
}

// Newer tells whether n is to replace o, a record of the same node: the higher epoch
// does, at equal epochs the higher state. What comes after only makes the order total.
func (n Node) Newer(o Node) bool {
	return cmp.Or(cmp.Compare(n.Epoch, o.Epoch), cmp.Compare(n.State, o.State), cmp.Compare(n.Addr, o.Addr),
		cmp.Compare(n.Admin, o.Admin), cmp.Compare(n.Weight, o.Weight)) > 0
}

// Map is the cluster map: the nodes sorted by name. It is immutable; a change
// makes a new one with a higher Version.
type Map struct {
	Cluster string // id of the cluster, made with its CA
	Version uint64
	Nodes   []Node

	seeds   []uint64
	up      []int32 // indexes of the nodes that objects are placed on
	weights bool    // some of them weigh more than others
	hash    uint64
}

// NewMap makes a map from nodes in any order.
func NewMap(cluster string, version uint64, nodes []Node) *Map {
	m := &Map{Cluster: cluster, Version: version, Nodes: slices.Clone(nodes)}
	m.prepare()
	return m
}

func (m *Map) prepare() {
	slices.SortFunc(m.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	m.seeds = make([]uint64, len(m.Nodes))
	m.up, m.weights = make([]int32, 0, len(m.Nodes)), false
	h := xxh3.New()
	var b [17]byte
	for i, n := range m.Nodes {
		m.seeds[i] = xxh3.HashString(n.Name)
		_, _ = h.WriteString(n.Name) // never fails
		b[0] = byte(n.State)
		binary.BigEndian.PutUint64(b[1:], max(n.Weight, 1))
		binary.BigEndian.PutUint64(b[9:], n.Epoch)
		_, _ = h.Write(b[:])
		if n.State == Up {
			m.up = append(m.up, int32(i))
			m.weights = m.weights || n.Weight > 1
		}
	}
	m.hash = h.Sum64()
}

// Hash stands for the nodes with their states, weights and epochs: two maps with the
// same hash place all objects alike, and no node has changed its state between them.
func (m *Map) Hash() uint64 { return m.hash }

// Count is the number of nodes in a state.
func (m *Map) Count(s NodeState) int {
	n := 0
	for i := range m.Nodes {
		if m.Nodes[i].State == s {
			n++
		}
	}
	return n
}

// Readable gives the indexes of the nodes that serve what they hold: Up and Leaving.
func (m *Map) Readable() []int {
	out := make([]int, 0, len(m.Nodes))
	for i := range m.Nodes {
		if m.Nodes[i].State.Readable() {
			out = append(out, i)
		}
	}
	return out
}

// Find gives the index of the node with that name, −1 for none.
func (m *Map) Find(name string) int {
	i, ok := slices.BinarySearchFunc(m.Nodes, name, func(n Node, s string) int { return strings.Compare(n.Name, s) })
	if !ok {
		return -1
	}
	return i
}

// mix is the finalizer of splitmix64: it spreads what xor left together.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// score is the random weight of node i for a key's hash. Without weights it is the
// plain 64-bit number; with them −w/ln(u), u in (0,1), which keeps the shares
// proportional to the weights (Schindelhauer and Schomaker, "Weighted distributed
// hash tables", 2005).
func (m *Map) score(i int, h uint64) float64 {
	u := (float64(mix(h^m.seeds[i])>>12) + 0.5) / (1 << 52) // exact, and never 0 or 1
	return float64(max(m.Nodes[i].Weight, 1)) / -math.Log(u)
}

// HashKey hashes an HRW key: "bucket/object" for objects, the request id for a DT.
func HashKey(key string) uint64 { return xxh3.HashString(key) }

// HashObject is HashKey(bucket + "/" + object) without building the string.
func HashObject(bucket, object string) uint64 {
	var b [256]byte
	return xxh3.Hash(append(append(append(b[:0], bucket...), '/'), object...))
}

// Owner gives the index of the node, among those that are Up, with the highest random
// weight for a key's hash; −1 when none is. Equal weights go to the lower name.
func (m *Map) Owner(h uint64) int {
	best := -1
	if !m.weights {
		var top uint64
		for _, i := range m.up {
			if v := mix(h ^ m.seeds[i]); best < 0 || v > top {
				best, top = int(i), v
			}
		}
		return best
	}
	var top float64
	for _, i := range m.up {
		if v := m.score(int(i), h); best < 0 || v > top {
			best, top = int(i), v
		}
	}
	return best
}

// Holders gives the indexes of the n nodes, among those that are Up, with the highest
// random weights, best first: the owner, then those who would own the object without
// it. They are fewer when fewer nodes are Up.
func (m *Map) Holders(h uint64, n int) []int {
	if n == 1 {
		if o := m.Owner(h); o >= 0 {
			return []int{o}
		}
		return nil
	}
	return m.rank(h, m.up, min(n, len(m.up)))
}

// Rank gives the indexes of all nodes in one of the states, or of all nodes when none
// is given, by their random weights for a key's hash, best first.
func (m *Map) Rank(h uint64, states ...NodeState) []int {
	among := make([]int32, 0, len(m.Nodes))
	for i := range m.Nodes {
		if len(states) == 0 || slices.Contains(states, m.Nodes[i].State) {
			among = append(among, int32(i))
		}
	}
	return m.rank(h, among, len(among))
}

// rank gives the n best of some nodes.
func (m *Map) rank(h uint64, among []int32, n int) []int {
	weights := false
	for _, i := range among {
		weights = weights || m.Nodes[i].Weight > 1
	}
	type ranked struct {
		i int32
		v float64
		u uint64
	}
	all := make([]ranked, len(among))
	for k, i := range among {
		all[k] = ranked{i: i, u: mix(h ^ m.seeds[i])}
		if weights {
			all[k] = ranked{i: i, v: m.score(int(i), h)}
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(b.v, a.v), cmp.Compare(b.u, a.u), cmp.Compare(a.i, b.i))
	})
	out := make([]int, n)
	for k := range out {
		out[k] = int(all[k].i)
	}
	return out
}

// Merge joins two views of a cluster: the union of the nodes, each in its newest record. The result is m itself when o adds nothing to it; else it
// has a version above both, unless it equals o.
func (m *Map) Merge(o *Map) *Map {
	if o == nil {
		return m
	}
	byName := map[string]Node{}
	for _, n := range m.Nodes {
		byName[n.Name] = n
	}
	changed := false
	for _, n := range o.Nodes {
		if have, ok := byName[n.Name]; !ok || n.Newer(have) {
			byName[n.Name] = n
			changed = true
		}
	}
	cluster := m.Cluster
	if cluster == "" {
		cluster = o.Cluster
	}
	nodes := make([]Node, 0, len(byName))
	for _, n := range byName {
		nodes = append(nodes, n)
	}
	out := NewMap(cluster, max(m.Version, o.Version), nodes)
	switch {
	case !changed && o.Version <= m.Version && cluster == m.Cluster:
		return m
	case slices.Equal(out.Nodes, o.Nodes):
		out.Version = o.Version
		if m.Version > o.Version {
			out.Version = m.Version
		}
	case changed:
		out.Version++
	}
	return out
}

// MapMessage carries a cluster map; as TMapPush it is sent by a node that has a
// newer one, as TJoin by a node that wants to be in it.
type MapMessage struct {
	Kind wire.Type // TMap, TMapPush or TJoin
	Map  *Map
	Node string // name of the node that speaks; "" in answers to clients
}

func (m *MapMessage) Type() wire.Type { return m.Kind }

// Encode writes the fields.
func (m *MapMessage) Encode(e *wire.Encoder) {
	e.Str("cluster", m.Map.Cluster)
	e.Uint("version", m.Map.Version)
	e.Maps("nodes", len(m.Map.Nodes), func(i int) {
		n := &m.Map.Nodes[i]
		e.Str("name", n.Name)
		e.Str("addr", n.Addr)
		e.Str("admin", n.Admin)
		e.Uint("weight", n.Weight)
		e.Uint("epoch", n.Epoch)
		e.Uint("state", uint64(n.State))
	})
	e.Str("node", m.Node)
}

// Field reads one field.
func (m *MapMessage) Field(key string, d *wire.Decoder) {
	if m.Map == nil {
		m.Map = &Map{}
	}
	switch key {
	case "cluster":
		m.Map.Cluster = d.Str(64)
	case "version":
		m.Map.Version = d.Uint()
	case "node":
		m.Node = d.Str(MaxNodeName)
	case "nodes":
		m.Map.Nodes = nil
		d.Array(MaxNodes, func(int, int) {
			var n Node
			d.Map(func(key string) {
				switch key {
				case "name":
					n.Name = d.Str(MaxNodeName)
				case "addr":
					n.Addr = d.Str(256)
				case "admin":
					n.Admin = d.Str(256)
				case "weight":
					n.Weight = d.Max(1 << 20)
				case "epoch":
					n.Epoch = d.Uint()
				case "state":
					n.State = NodeState(d.Max(uint64(Left)))
				default:
					d.Skip()
				}
			})
			if n.Name == "" || n.Addr == "" {
				d.Fail("a node without a name or address")
			}
			m.Map.Nodes = append(m.Map.Nodes, n)
		})
		m.Map.prepare()
	default:
		d.Skip()
	}
}
