package batching

import (
	"sheaf/peer"
)

// plan says which node delivers which entries: a pure function of the cluster map
// and the request.
type plan struct {
	owner  []int32          // by entry: index of the node in the map
	shares map[int][]uint32 // by node: the entries it delivers, ascending
}

func makePlan(m *peer.Map, in []Entry) *plan {
	p := &plan{owner: make([]int32, len(in)), shares: make(map[int][]uint32, len(m.Nodes))}
	for i := range in {
		o := m.Owner(peer.HashObject(in[i].Bucket, in[i].ObjName))
		p.owner[i] = int32(o)
		p.shares[o] = append(p.shares[o], uint32(i))
	}
	return p
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
