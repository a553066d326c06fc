package server

import (
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"sheaf/peer"
)

// placement says where every object belongs. It is immutable; a change of the cluster map
// or of a bucket's copies makes another one.
type placement struct {
	st   *state
	self int    // index of this node in the map, −1 when it isn't in it
	hash uint64 // two placements with one hash place all objects alike
}

func newPlacement(st *state) *placement {
	h := xxh3.New()
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], st.Map.Hash())
	_, _ = h.Write(b[:8]) // never fails
	for _, r := range st.sortedBuckets(false) {
		if r.Placed == 0 {
			continue // its copies are those it was made with: nothing ever has to move for it
		}
		_, _ = h.WriteString(r.Name)
		binary.BigEndian.PutUint64(b[:], uint64(r.Copies))
		binary.BigEndian.PutUint64(b[8:], r.Placed)
		_, _ = h.Write(b[:])
	}
	return &placement{st: st, self: st.Map.Find(st.Name), hash: h.Sum64()}
}

// nodeState is the state of this node itself.
func (p *placement) nodeState() peer.NodeState {
	if p.self < 0 {
		return peer.Left
	}
	return p.st.Map.Nodes[p.self].State
}

// place gives an object's holders by name, the owner first, this node's place among them,
// −1 for none, and whether they are as many as its bucket wants.
func (p *placement) place(bucket, object string) (holders []string, self int, enough bool) {
	b, ok := p.st.bucket(bucket)
	if !ok {
		return nil, -1, false
	}
	m := p.st.Map
	self = -1
	for i, h := range m.Holders(peer.HashObject(bucket, object), b.Copies) {
		holders = append(holders, m.Nodes[h].Name)
		if h == p.self {
			self = i
		}
	}
	return holders, self, len(holders) >= b.Copies
}

// addr gives a node's address, "" for one that can't be asked.
func (p *placement) addr(node string) string {
	i := p.st.Map.Find(node)
	if i < 0 || !p.st.Map.Nodes[i].State.Readable() {
		return ""
	}
	return p.st.Map.Nodes[i].Addr
}

// others gives the nodes beside this one that serve what they hold.
func (p *placement) others() []string {
	var all []string
	for _, i := range p.st.Map.Readable() {
		if i != p.self {
			all = append(all, p.st.Map.Nodes[i].Name)
		}
	}
	return all
}
