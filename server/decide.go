package server

// holding is what a holder of an object has of it.
type holding struct {
	known   bool   // it answered, and goes by the same placement
	version uint64 // 0: nothing. A tombstone counts like a write
	done    bool   // its own pass has been around: what it was to send it has sent, or it failed
}

// verdict is what a node does with one of its records.
type verdict struct {
	push   []int // the holders that it sends the record to
	remove bool  // the own copy may go
	wait   bool  // the record isn't where it belongs yet: look again
	pull   bool  // a newer record is needed that nobody is going to send
}

// decide tells what a node does with a record of version mine. holders are those of the
// object, the owner first; self is the node's own place among them, −1 when it isn't one;
// enough tells that they are as many as the bucket wants copies.
//
// Every copy that is missing has one sender: the first holder that has the newest
// version and isn't done, or else whoever has it. So two nodes that walk the same names
// don't send the same bytes; and nobody waits for a node that itself waits.
func decide(mine uint64, self int, holders []holding, enough bool) (v verdict) {
	if len(holders) == 0 {
		return verdict{wait: true}
	}
	top, all, unasked := mine, true, false
	for i, h := range holders {
		switch {
		case i == self:
		case !h.known:
			all, unasked = false, true
		default:
			top = max(top, h.version)
			all = all && h.version >= mine
		}
	}
	if self < 0 && all {
		return verdict{remove: enough, wait: !enough}
	}
	var missing []int
	sender := -1 // the first that has the newest and will send it
	for i, h := range holders {
		switch {
		case i == self && mine == top, i != self && h.known && h.version == top && !h.done:
			if sender < 0 {
				sender = i
			}
		case i == self, h.known && h.version < top:
			missing = append(missing, i)
		}
	}
	switch {
	case len(missing) == 0:
		v.wait = unasked
	case top > mine:
		// Whoever has the newer one sends it. This node's own record is of no use.
		v.pull = sender < 0 && !unasked
		v.wait = self < 0 || v.pull || unasked
	case sender >= 0 && sender != self:
		v.wait = self < 0 || unasked
	default:
		v.push, v.wait = missing, true
	}
	return v
}
