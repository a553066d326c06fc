package server

// holding is what a holder of an object has of it.
type holding struct {
	known   bool   // it answered, and goes by the same placement
	version uint64 // 0: nothing. A tombstone counts like a write
	done    bool   // its own pass is over: it won't send anything of its own accord
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
// don't send the same bytes.
func decide(mine uint64, self int, holders []holding, enough bool) (v verdict) {
	if len(holders) == 0 {
		return verdict{wait: true}
	}
	var (
		top     = mine
		missing []int
		unasked bool
	)
	for i, h := range holders {
		switch {
		case i == self:
		case !h.known:
			unasked = true
		default:
			top = max(top, h.version)
		}
	}
	sender := -1 // the first that has the newest and will send it
	for i, h := range holders {
		switch {
		case i == self && mine == top, i != self && h.known && h.version == top && !h.done:
			if sender < 0 {
				sender = i
			}
		case i != self && !h.known:
		case i == self || h.version < top:
			missing = append(missing, i)
		}
	}
	switch {
	case len(missing) == 0:
		v.remove = self < 0 && enough && !unasked
		v.wait = unasked || self < 0 && !enough
		return v
	case top > mine:
		// Whoever has the newer one sends it. This node's own record is of no use.
		v.pull = sender < 0 && !unasked
		v.wait = self < 0 || v.pull || unasked
		return v
	case sender >= 0 && sender != self:
		v.wait = self < 0 || unasked
		return v
	}
	v.push, v.wait = missing, true
	return v
}
