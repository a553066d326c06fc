package store

import (
	"maps"
	"slices"
	"sync"
)

// Where an object's file lies on its mountpath.
const (
	placePlain  uint8 = 0
	placeHashed uint8 = 1
)

// records is what a mountpath knows beside its files: which names were deleted, and when.
type records interface {
	// put notes an object whose file is in place. It needn't be durable: the file says it.
	put(bucket string, r Record, place uint8) error
	// tomb notes a deletion, durably.
	tomb(bucket string, r Record) error
	// del forgets a name.
	del(bucket, name string) error
	get(bucket, name string) (Record, bool, error)
	// scan gives what comes after a name, in order, until f is false.
	scan(bucket, after string, f func(Record) bool) error
	// drop forgets a bucket.
	drop(bucket string) error
}

// tombs keeps deletions as long as the store is open.
type tombs struct {
	mu  sync.Mutex
	all map[string]map[string]Record
}

var _ records = (*tombs)(nil)

func (t *tombs) put(bucket string, r Record, _ uint8) error { return t.del(bucket, r.Name) }

func (t *tombs) tomb(bucket string, r Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[bucket] == nil {
		t.all[bucket] = map[string]Record{}
	}
	t.all[bucket][r.Name] = r
	return nil
}

func (t *tombs) del(bucket, name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all[bucket], name)
	return nil
}

func (t *tombs) get(bucket, name string) (Record, bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.all[bucket][name]
	return r, ok, nil
}

func (t *tombs) scan(bucket, after string, f func(Record) bool) error {
	t.mu.Lock()
	all := maps.Clone(t.all[bucket])
	t.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if name > after && !f(all[name]) {
			break
		}
	}
	return nil
}

func (t *tombs) drop(bucket string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, bucket)
	return nil
}
