package store

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Whoever syncs gets a sync that began after the call, and its error.
func TestFolderSyncs(t *testing.T) {
	var began, ended atomic.Int64
	errOdd := errors.New("an odd one")
	s := &folderSyncs{folders: map[string]*folderSync{}, do: func(string) error {
		n := began.Add(1)
		defer ended.Add(1)
		if n%2 == 1 {
			return errOdd
		}
		return nil
	}}
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range 16 {
		wg.Add(1)
		go func() { // ends after its calls
			defer wg.Done()
			for range 500 {
				before := began.Load()
				err := s.sync("d")
				if ended.Load() <= before {
					t.Error("the sync began before the call")
				}
				if err == errOdd {
					failed.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	if len(s.folders) != 0 || failed.Load() == 0 || failed.Load() == 16*500 {
		t.Errorf("left %v, %d of %d failed", s.folders, failed.Load(), 16*500)
	}
}

// Writers that come while a sync runs share the next one.
func TestFolderSyncsShared(t *testing.T) {
	in, out := make(chan struct{}), make(chan struct{})
	n := 0
	s := &folderSyncs{folders: map[string]*folderSync{}, do: func(dir string) error {
		if dir == "d" {
			n++
			in <- struct{}{}
			<-out
		}
		return nil
	}}
	var wg sync.WaitGroup
	call := func() {
		wg.Add(1)
		go func() { // ends with its call
			defer wg.Done()
			if err := s.sync("d"); err != nil {
				t.Error(err)
			}
		}()
	}
	call()
	<-in
	for range 7 {
		call()
	}
	// Another folder doesn't wait.
	if err := s.sync("e"); err != nil {
		t.Error(err)
	}
	eventually(t, "all wait", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		f := s.folders["d"]
		return f.next != nil && f.next.size == 7
	})
	out <- struct{}{}
	<-in
	out <- struct{}{}
	wg.Wait()
	if n != 2 || len(s.folders) != 0 {
		t.Errorf("%d syncs, left %v", n, s.folders)
	}
}

// eventually waits until f is true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
