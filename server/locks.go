package server

import (
	"context"
	"sync"
)

// nameLocks are locks that come into being with their first use: those of the names that
// this node coordinates writes of. The zero nameLocks is ready.
type nameLocks struct {
	mu sync.Mutex
	by map[string]*nameLock // guarded by mu
}

type nameLock struct {
	held  chan struct{} // holds one while somebody has the lock
	users int           // guarded by nameLocks.mu: who has it and who waits
}

// lock waits for the lock of a name, or for ctx to end. unlock gives it back.
func (l *nameLocks) lock(ctx context.Context, bucket, object string) (unlock func(), err error) {
	key := bucket + "/" + object
	l.mu.Lock()
	if l.by == nil {
		l.by = map[string]*nameLock{}
	}
	k := l.by[key]
	if k == nil {
		k = &nameLock{held: make(chan struct{}, 1)}
		l.by[key] = k
	}
	k.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if k.users--; k.users == 0 {
			delete(l.by, key)
		}
	}
	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, ctx.Err()
	}
}
