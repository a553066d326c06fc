package crash

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
)

// absent is the payload's number of a name that was deleted or never written.
const absent = 0

// payload makes the bytes of payload number id: its number, then what follows from it.
// Most are small, some take several frames.
func payload(id uint64) []byte {
	r := rand.New(rand.NewPCG(id, 0x5eaf))
	size := 8 + r.IntN(4<<10)
	switch r.IntN(20) {
	case 0:
		size = 8 + r.IntN(3<<20)
	case 1, 2, 3:
		size = 8 + r.IntN(200<<10)
	}
	b := make([]byte, size)
	binary.LittleEndian.PutUint64(b, id)
	word := r.Uint64()
	for i := 8; i+8 <= size; i += 8 {
		word = word*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(b[i:], word)
	}
	return b
}

// identify tells which payload some bytes are; an error for bytes that are none.
func identify(b []byte) (uint64, error) {
	if len(b) < 8 {
		return 0, fmt.Errorf("%d bytes are no payload", len(b))
	}
	id := binary.LittleEndian.Uint64(b)
	if want := payload(id); !bytes.Equal(b, want) {
		return 0, fmt.Errorf("torn: begins as payload %d, which has %d bytes, and has %d", id, len(want), len(b))
	}
	return id, nil
}

// name is what the model knows of one object name. Only one worker writes it, so its
// writes have an order; anybody may read it.
type name struct {
	key  string
	kept bool // it is overwritten but never deleted once it was written

	mu     sync.Mutex
	writes []uint64 // payload numbers, absent for deletes, in the order of their attempts
	acked  int      // index of the last one that was acknowledged
}

func newName(key string, kept bool) *name {
	return &name{key: key, kept: kept, writes: []uint64{absent}}
}

// begin notes an attempt and gives its index.
func (n *name) begin(id uint64) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.writes = append(n.writes, id)
	return len(n.writes) - 1
}

// ack notes that an attempt was acknowledged.
func (n *name) ack(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.acked = max(n.acked, i)
}

// undo takes the last attempt back, of which it is certain that it had no effect.
func (n *name) undo(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i == len(n.writes)-1 {
		n.writes = n.writes[:i]
	}
}

// floor is the index that a read which begins now may not fall behind.
func (n *name) floor() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.acked
}

// allows tells whether a read that began when floor was as given may see id.
func (n *name) allows(floor int, id uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, w := range n.writes[floor:] {
		if w == id {
			return nil
		}
	}
	what := "payload " + fmt.Sprint(id)
	if id == absent {
		what = "nothing"
	}
	return fmt.Errorf("%s: read %s; acknowledged is write %d, allowed are %v", n.key, what, floor, n.writes[floor:])
}

// certain tells what the name must hold, when there is no doubt.
func (n *name) certain() (id uint64, sure bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writes[len(n.writes)-1], n.acked == len(n.writes)-1
}

// stream gives each worker its own reproducible choices.
func stream(seed uint64, who string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(who))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}
