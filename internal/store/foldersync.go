package store

import "sync"

// folderSyncs lets writers of one folder share its syncs: one that comes while a sync runs
// waits for the next, which does for all that came meanwhile. (The syncs of the files
// themselves need no such thing: a journaling file system commits those that run at
// once together, and batching them by hand measured no better.)
type folderSyncs struct {
	do func(dir string) error

	mu      sync.Mutex
	folders map[string]*folderSync // those in which a sync runs
}

type folderSync struct {
	next *syncRound // nil: nobody waits
}

// syncRound is one sync and those who share it.
type syncRound struct {
	lead chan struct{} // tells one of the waiting to do it
	done chan struct{} // closed when it is done
	err  error
	size int // how many share it
}

// sync returns when the folder was synced by a sync that began after the call.
func (s *folderSyncs) sync(dir string) error {
	s.mu.Lock()
	f, busy := s.folders[dir]
	if !busy {
		f = &folderSync{}
		s.folders[dir] = f
	}
	r := f.next
	if r == nil {
		r = &syncRound{lead: make(chan struct{}, 1), done: make(chan struct{})}
		f.next = r
	}
	r.size++
	if busy {
		s.mu.Unlock()
		select {
		case <-r.done:
			return r.err
		case <-r.lead:
		}
		s.mu.Lock()
	}
	f.next = nil
	s.mu.Unlock()
	r.err = s.do(dir)
	close(r.done)
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.next != nil {
		f.next.lead <- struct{}{}
	} else {
		delete(s.folders, dir)
	}
	return r.err
}
