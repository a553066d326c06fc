package batching

import (
	"sheaf/peer"
)

// plan says which stream delivers which entries. It begins as a pure function of the
// cluster map and the request; when a node is lost, its entries are planned anew.
type plan struct {
	stream []int32 // by entry: which of the streams, here for what this node delivers itself
	nodes  []int   // by stream: index of the node in the map
	shares [][]uint32
}

// here is the stream of what the DT reads from its own source.
const here = -1

// makePlan gives every entry to its owner. self is the node that makes it.
func makePlan(m *peer.Map, self int, in []Entry) *plan {
	p := &plan{stream: make([]int32, len(in))}
	all := make([]uint32, len(in))
	for i := range in {
		all[i] = uint32(i)
	}
	p.add(in, all, func(e *Entry) int {
		if o := m.Owner(peer.HashObject(e.Bucket, e.ObjName)); o != self {
			return o
		}
		return here
	})
	return p
}

// add gives the entries of which the indexes are listed to the nodes that pick says, each
// node's by a stream of its own. It tells where the new streams begin.
func (p *plan) add(in []Entry, index []uint32, pick func(e *Entry) int) (first int) {
	first = len(p.nodes)
	streams := map[int]int32{here: here}
	for _, i := range index {
		node := pick(&in[i])
		s, ok := streams[node]
		if !ok {
			s = int32(len(p.nodes))
			streams[node] = s
			p.nodes, p.shares = append(p.nodes, node), append(p.shares, nil)
		}
		p.stream[i] = s
		if s != here {
			p.shares[s] = append(p.shares[s], i)
		}
	}
	return first
}

// another gives the first node, in HRW order, that isn't lost; here when there is none
// or it is the DT itself.
func another(m *peer.Map, self int, lost map[int]error, e *Entry) int {
	for _, i := range m.Holders(peer.HashObject(e.Bucket, e.ObjName), len(m.Nodes)) {
		if i == self {
			return here
		}
		if lost[i] == nil {
			return i
		}
	}
	return here
}

// chooseDT gives the index of the node that assembles a batch: by HRW over the
// request id, which spreads batches over the nodes (the paper, section 2.3.1), or
// with a colocation hint the node that owns most entries (section 2.4.1).
func chooseDT(m *peer.Map, id string, coloc int, in []Entry) int {
	if coloc == 0 || len(m.Nodes) == 0 {
		return m.Owner(peer.HashKey(id))
	}
	count := make([]int, len(m.Nodes))
	best := 0
	for i := range in {
		o := m.Owner(peer.HashObject(in[i].Bucket, in[i].ObjName))
		if o < 0 {
			return -1
		}
		count[o]++
	}
	for o, c := range count {
		if c > count[best] {
			best = o
		}
	}
	return best
}
