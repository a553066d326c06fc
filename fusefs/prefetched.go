package fusefs

import (
	"sync"

	"sheaf/batching"
)

// maxPrefetched bounds the memory of the table; batches beyond it are still
// served below .sheaf/batch.
const maxPrefetched = 1 << 20

// location is where a live batch holds a whole object or member.
type location struct {
	b         *batch
	off, size int64
	version   uint64
}

// wholeKey names an object, or a member of a shard.
type wholeKey struct{ bucket, object, member string }

// prefetched finds the bytes of ordinary paths in live batches, so that programs
// that know nothing of batches gain too.
type prefetched struct {
	mu sync.Mutex // taken before batch.mu
	at map[wholeKey]location
}

func newPrefetched() *prefetched { return &prefetched{at: map[wholeKey]location{}} }

func keyOf(e *batching.Entry) wholeKey { return wholeKey{e.Bucket, e.ObjName, e.ArchPath} }

// add says where an entry lies; of several places the last one counts, as its batch
// lives longest. A released batch is not added: its drop may have passed.
func (p *prefetched) add(e *batching.Entry, l location) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.b.mu.Lock()
	released := l.b.released
	l.b.mu.Unlock()
	k := keyOf(e)
	if _, known := p.at[k]; !released && (known || len(p.at) < maxPrefetched) {
		p.at[k] = l
	}
}

// drop forgets what lies in b.
func (p *prefetched) drop(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range b.req.In {
		k := keyOf(&b.req.In[i])
		if p.at[k].b == b {
			delete(p.at, k)
		}
	}
}

// open finds exactly this version and takes a reference to its batch.
func (p *prefetched) open(k wholeKey, version uint64, size int64) (location, bool) {
	p.mu.Lock()
	l, ok := p.at[k]
	p.mu.Unlock()
	if !ok || l.version != version || l.size != size {
		return location{}, false
	}
	return l, l.b.open()
}
