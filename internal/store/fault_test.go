package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// failing makes the operations on a mountpath fail.
func failing(s *Store, dir string, err error, ops ...string) {
	s.disk.fault = func(op, path string) error {
		if strings.HasPrefix(path, dir+"/") && (len(ops) == 0 || strings.Contains(" "+strings.Join(ops, " ")+" ", " "+op+" ")) {
			return &os.PathError{Op: op, Path: path, Err: err}
		}
		return nil
	}
}

// filled opens a store with objects on each of n mountpaths; on tells where each lies.
func filled(t testing.TB, n, objects int) (s *Store, on map[string]string) {
	t.Helper()
	s = newStore(t, n)
	on = map[string]string{}
	for i := range objects {
		name := fmt.Sprintf("d%d/o%d", i%5, i)
		if i%10 == 9 {
			name = strings.Repeat("l", 260+i) // has no plain place
		}
		put(t, s, name, "body of "+name)
		on[name] = lies(t, s, name)
	}
	return s, on
}

func lies(t testing.TB, s *Store, name string) string {
	t.Helper()
	path := diskPath(t, s, name)
	for _, m := range s.mounts {
		if strings.HasPrefix(path, m.dir+"/") {
			return m.dir
		}
	}
	t.Fatalf("%q lies at %q", name, path)
	return ""
}

func wantDown(t testing.TB, s *Store, dirs ...string) {
	t.Helper()
	down := map[string]bool{}
	for _, d := range dirs {
		down[d] = true
	}
	for _, st := range s.Mountpaths() {
		if st.Enabled == down[st.Dir] || st.Enabled == (st.Err != "") || st.Enabled == (st.Total == 0) {
			t.Fatalf("mountpath %+v; want disabled: %q", st, dirs)
		}
	}
}

// The operation that meets the fault says so, the mountpath is disabled and stays so; the
// others serve what they have and take what is new.
func TestFault(t *testing.T) {
	for _, c := range []struct {
		op string
		do func(s *Store, name string) error
	}{
		{"open", func(s *Store, name string) error { _, err := s.Open("b", name); return err }},
		{"open", func(s *Store, name string) error { _, err := s.Stat("b", name); return err }},
		{"read", func(s *Store, name string) error { _, _, err := get(s, name); return err }},
		{"create", func(s *Store, name string) error {
			_, err := s.Put(context.Background(), "b", name, strings.NewReader("x"), PutOptions{Size: 1})
			return err
		}},
		{"write", func(s *Store, name string) error {
			_, err := s.Put(context.Background(), "b", name, strings.NewReader("x"), PutOptions{Size: 1})
			return err
		}},
		{"rename", func(s *Store, name string) error {
			_, err := s.Put(context.Background(), "b", name, strings.NewReader("x"), PutOptions{Size: 1})
			return err
		}},
		{"remove", func(s *Store, name string) error { return remove(s, name) }},
	} {
		for _, no := range []unix.Errno{unix.EIO, unix.EROFS} {
			t.Run(c.op+" "+no.Error(), func(t *testing.T) {
				var told atomic.Int64
				s, on := filled(t, 3, 30)
				s.onFault = func(dir string, err error) {
					if errors.Is(err, no) {
						told.Add(1)
					}
				}
				bad := s.mounts[1].dir
				var victim string
				for name, dir := range on {
					if dir == bad {
						victim = name
					}
				}
				failing(s, bad, no, c.op)
				err := c.do(s, victim)
				wantCode(t, err, errs.Unavailable)
				if !strings.Contains(err.Error(), bad) || !errors.Is(err, no) {
					t.Errorf("%v doesn't name the mountpath and the cause", err)
				}
				s.disk.fault = nil
				wantDown(t, s, bad)
				eventually(t, "the fault is told", func() bool { return told.Load() == 1 })
				for name, dir := range on {
					if dir != bad {
						wantBody(t, s, name, "body of "+name)
						continue
					}
					if c.op == "remove" && name == victim {
						continue // its tombstone went down with the mountpath
					}
					_, err := s.Stat("b", name)
					wantCode(t, err, errs.Unavailable)
					_, err = s.Lookup("b", name)
					wantCode(t, err, errs.Unavailable)
					wantCode(t, remove(s, name), errs.Unavailable)
					_, err = s.Put(t.Context(), "b", name, strings.NewReader("x"), PutOptions{Size: 1, If: Condition{Absent: true}})
					wantCode(t, err, errs.Unavailable)
				}
				page, err := s.List(t.Context(), "b", ListOptions{})
				if err != nil || !page.Incomplete || len(page.Objects) == 0 {
					t.Errorf("%d objects, incomplete %v, %v", len(page.Objects), page.Incomplete, err)
				}
				// A name that can't lie there isn't there.
				for i := range 100 {
					name := fmt.Sprint("never", i)
					want := errs.NotFound
					if s.buckets["b"].ranking(name)[0].mount.dir == bad {
						want = errs.Unavailable
					}
					_, err := s.Stat("b", name)
					wantCode(t, err, want)
				}
				// New objects go elsewhere, over what is out of reach too.
				for name := range on {
					put(t, s, name, "newer")
					wantBody(t, s, name, "newer")
				}
				del(t, s, victim)
				_, err = s.Stat("b", victim)
				wantCode(t, err, errs.NotFound)
			})
		}
	}
}

// Errors that say nothing about the disk disable nothing.
func TestNoFault(t *testing.T) {
	for no, want := range map[unix.Errno]errs.Code{unix.ENOSPC: errs.NoSpace, unix.EDQUOT: errs.NoSpace, unix.EMFILE: errs.TooManyRequests, unix.ENOMEM: errs.TooManyRequests, unix.EACCES: errs.PermissionDenied} {
		s, _ := filled(t, 2, 4)
		for _, m := range s.mounts {
			failing(s, m.dir, no, "create", "write", "open")
			for i := range 4 {
				if _, err := s.Put(t.Context(), "b", fmt.Sprint("n", i), strings.NewReader("x"), PutOptions{Size: 1}); err != nil {
					wantCode(t, err, want)
				}
			}
		}
		s.disk.fault = nil
		wantDown(t, s)
		wantNoWork(t, s)
	}
}

// What a mountpath missed while it wasn't in use it learns when it comes back: writes,
// deletions, destroyed buckets.
func TestComesBack(t *testing.T) {
	for _, restart := range []bool{false, true} {
		s, on := filled(t, 3, 40)
		bad := s.mounts[0].dir
		must(t, s.CreateBucket("gone"))
		must(t, s.CreateBucket("anew"))
		for _, b := range []string{"gone", "anew"} {
			for i := range 10 {
				_, err := s.Put(t.Context(), b, fmt.Sprint("o", i), strings.NewReader("x"), PutOptions{Size: 1})
				must(t, err)
			}
		}
		must(t, s.SetMountpath(bad, false))
		wantDown(t, s, bad)
		want := map[string]string{}
		i := 0
		for name, dir := range on {
			want[name] = "body of " + name
			if i++; i%3 == 0 {
				put(t, s, name, "newer")
				want[name] = "newer"
			} else if i%3 == 1 {
				if dir == bad { // blind
					_, err := s.Delete("b", name, s.pick(0, 0), Condition{})
					must(t, err)
				} else {
					del(t, s, name)
				}
				delete(want, name)
			}
		}
		must(t, s.DestroyBucket("gone"))
		must(t, s.DestroyBucket("anew"))
		must(t, s.CreateBucket("anew"))
		must(t, s.CreateBucket("later"))
		if n, err := s.ForgetTombstones(t.Context(), "b", 1<<63); n != 0 || err != nil {
			t.Errorf("forgot %d tombstones while a mountpath is away, %v", n, err)
		}
		if restart {
			s = crash(t, s)
			wantDown(t, s, bad)
		}
		must(t, s.SetMountpath(bad, true))
		wantDown(t, s)
		check := func() {
			t.Helper()
			for name := range on {
				if want[name] != "" {
					wantBody(t, s, name, want[name])
				} else if _, err := s.Stat("b", name); !errs.IsCode(err, errs.NotFound) {
					t.Errorf("%.20q: %v", name, err)
				}
				if r, err := s.Lookup("b", name); err != nil || r.Deleted != (want[name] == "") {
					t.Errorf("%.20q: %+v, %v", name, r, err)
				}
			}
			for _, b := range []string{"anew", "later"} {
				if empty, err := s.Empty(b); !empty || err != nil {
					t.Errorf("bucket %s: empty %v, %v", b, empty, err)
				}
			}
			if _, err := s.Empty("gone"); !errs.IsCode(err, errs.BucketNotFound) {
				t.Errorf("the destroyed bucket: %v", err)
			}
		}
		check()
		if !s.Scattered() {
			t.Error("nothing is scattered")
		}
		must(t, s.Resilver(t.Context(), nil))
		check()
		wantHome(t, s, len(want))
		s = crash(t, s)
		check()
		if s.Scattered() {
			t.Error("still scattered")
		}
	}
}

// wantHome tells whether each object has one file, where it belongs, and the catalogs agree.
func wantHome(t testing.TB, s *Store, objects int) {
	t.Helper()
	page, err := s.List(t.Context(), "b", ListOptions{})
	must(t, err)
	if len(page.Objects) != objects || page.Incomplete {
		t.Errorf("%d objects are listed, want %d", len(page.Objects), objects)
	}
	var all []string
	for _, f := range files(t, s) {
		if strings.Contains(f, "/b/") {
			all = append(all, f)
		}
	}
	if len(all) != objects {
		t.Errorf("%d files for %d objects: %q", len(all), objects, all)
	}
	var n int64
	for _, st := range s.Mountpaths() {
		n += st.Objects
	}
	if n != int64(objects) {
		t.Errorf("the catalogs have %d objects, want %d", n, objects)
	}
	for _, o := range page.Objects {
		if home := s.buckets["b"].ranking(o.Name)[0].mount.dir; lies(t, s, o.Name) != home {
			t.Errorf("%.20q lies on %s, its home is %s", o.Name, lies(t, s, o.Name), home)
		}
	}
}

// A folder that can't be had at the start is disabled when the others know of it.
func TestStartsWithout(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(dir string) (mend func())
	}{
		{"the folder is gone", func(dir string) func() {
			must(t, os.Rename(dir, dir+".away"))
			return func() { must(t, os.Rename(dir+".away", dir)) }
		}},
		{"a read-only disk", func(dir string) func() {
			must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
			return func() { must(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "")) }
		}},
		{"not mounted", func(dir string) func() {
			other := t.TempDir()
			must(t, unix.Mount(dir, other, "", unix.MS_BIND, ""))
			must(t, unix.Unmount(dir, 0))
			return func() {
				must(t, unix.Mount(other, dir, "", unix.MS_BIND, ""))
				must(t, unix.Unmount(other, 0))
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := filepath.Join(t.TempDir(), "bad")
			if c.name != "the folder is gone" {
				bad = mount(t, "tmpfs", "size=16m")
			}
			good := t.TempDir()
			s := reopen(t, good, bad)
			must(t, s.CreateBucket("b"))
			on := map[string]string{}
			for i := range 20 {
				name := fmt.Sprint("o", i)
				put(t, s, name, name)
				on[name] = lies(t, s, name)
			}
			must(t, s.Close())
			mend := c.spoil(bad)
			s, err := Open(Options{Dirs: []string{good, bad}})
			if err != nil {
				mend()
				t.Fatal(err)
			}
			defer s.Close()
			wantDown(t, s, bad)
			for name, dir := range on {
				if dir == good {
					wantBody(t, s, name, name)
				} else {
					_, err := s.Stat("b", name)
					wantCode(t, err, errs.Unavailable)
				}
			}
			if err := s.SetMountpath(bad, true); err == nil {
				t.Error("it comes into use as it is")
			}
			wantDown(t, s, bad)
			mend()
			must(t, s.SetMountpath(bad, true))
			for name := range on {
				wantBody(t, s, name, name)
			}
			must(t, s.Resilver(t.Context(), nil))
			wantHome(t, s, 20)
			must(t, s.Close())
		})
	}
}

// A disk replaced by an empty one: what was on the old is lost, and no error.
func TestDiskReplaced(t *testing.T) {
	for _, running := range []bool{false, true} {
		s, on := filled(t, 2, 20)
		bad := s.mounts[1].dir
		dirs := s.dirs()
		replace := func() {
			must(t, os.RemoveAll(bad))
			must(t, os.Mkdir(bad, 0o755))
		}
		if running {
			failing(s, bad, unix.EIO)
			for name := range on {
				s.Stat("b", name)
			}
			s.disk.fault = nil
			wantDown(t, s, bad)
			replace()
			must(t, s.SetMountpath(bad, true))
		} else {
			must(t, s.Close())
			replace()
			s = reopen(t, dirs...)
		}
		wantDown(t, s)
		if !s.Scattered() {
			t.Error("nothing is scattered")
		}
		left := 0
		for name, dir := range on {
			if dir == bad {
				_, err := s.Stat("b", name)
				wantCode(t, err, errs.NotFound)
			} else {
				left++
				wantBody(t, s, name, "body of "+name)
			}
		}
		must(t, s.Resilver(t.Context(), nil))
		wantHome(t, s, left)
	}
}

// Folders are added and taken away between starts.
func TestResilver(t *testing.T) {
	s, on := filled(t, 2, 60)
	was := map[string]Info{}
	for name := range on {
		info, err := s.Stat("b", name)
		must(t, err)
		was[name] = info
	}
	dirs := append(s.dirs(), filepath.Join(t.TempDir(), "new"))
	must(t, s.Close())
	s = reopen(t, dirs...)
	var done, moved, bytes int64
	must(t, s.Resilver(t.Context(), func(d, m, b int64) { done, moved, bytes = d, m, b }))
	if done < 60 || moved < 5 || moved > 50 || bytes < moved {
		t.Errorf("%d names, %d moved, %d bytes", done, moved, bytes)
	}
	wantHome(t, s, 60)
	for name := range on {
		wantBody(t, s, name, "body of "+name)
		if info, err := s.Stat("b", name); err != nil || !same(info, was[name]) {
			t.Errorf("%+v became %+v, %v", was[name], info, err)
		}
	}
	must(t, s.Resilver(t.Context(), func(_, m, _ int64) { moved = m }))
	if moved != 0 {
		t.Errorf("%d moved again", moved)
	}
	must(t, s.Close())

	// The third goes: what it had is lost, and what is left is where it belongs.
	s = reopen(t, dirs[:2]...)
	left := 0
	for name := range on {
		if s.buckets["b"].ranking(name) == nil {
			continue
		}
		if _, err := s.Stat("b", name); err == nil {
			left++
		} else {
			wantCode(t, err, errs.NotFound)
		}
	}
	if s.Scattered() {
		t.Error("scattered")
	}
	wantHome(t, s, left)
	must(t, s.Close())

	// It is back.
	s = reopen(t, dirs...)
	must(t, s.Resilver(t.Context(), nil))
	wantHome(t, s, 60)
}

// A crash at any of its steps leaves every object readable, and the next run ends the work.
func TestResilverCrash(t *testing.T) {
	r := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for round := range 6 {
		s, on := filled(t, 2, 30)
		dirs := append(s.dirs(), filepath.Join(t.TempDir(), "new"))
		must(t, s.Close())
		s = reopen(t, dirs...)
		for name := range on {
			if r.IntN(10) == 0 {
				del(t, s, name)
				delete(on, name)
			}
		}
		at, n := r.IntN(60), 0
		killed := errors.New("the process is killed")
		s.disk.fault = func(op, _ string) error {
			if n++; n > at && op != "open" {
				return killed
			}
			return nil
		}
		err := s.Resilver(t.Context(), nil)
		s.disk.fault = nil
		s = crash(t, s)
		for name := range on {
			if got, _, err := get(s, name); err != nil || got != "body of "+name {
				t.Fatalf("round %d, killed at %d: %.20q: %q, %v", round, at, name, got, err)
			}
		}
		if err != nil && !s.Scattered() {
			t.Error("the crash is forgotten")
		}
		must(t, s.Resilver(t.Context(), nil))
		wantHome(t, s, len(on))
	}
}

// An object whose bytes changed on disk isn't moved.
func TestResilverCorrupt(t *testing.T) {
	s, on := filled(t, 1, 20)
	dirs := append(s.dirs(), filepath.Join(t.TempDir(), "new"))
	for name := range on {
		f, err := os.OpenFile(diskPath(t, s, name), os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 0)
		must(t, errors.Join(err, f.Close()))
	}
	must(t, s.Close())
	s = reopen(t, dirs...)
	err := s.Resilver(t.Context(), nil)
	wantCode(t, err, errs.ChecksumMismatch)
	for name := range on {
		if lies(t, s, name) != dirs[0] {
			t.Errorf("%.20q was moved", name)
		}
	}
	if !s.Scattered() {
		t.Error("it counts as done")
	}
	wantNoWork(t, s)
}

// Reads, writes, deletions and listings go on while objects move and mountpaths go and come.
func TestResilverConcurrent(t *testing.T) {
	s := newStore(t, 3)
	quick(t, s)
	const objects = 24
	name := func(i int) string {
		if i%8 == 7 {
			return fmt.Sprintf("%s%d", strings.Repeat("l", 300), i)
		}
		return fmt.Sprintf("d%d/o%d", i%3, i)
	}
	body := func(i, v int) string { return fmt.Sprintf("%d %d %s", i, v, strings.Repeat("x", v%3000)) }
	for i := range objects {
		put(t, s, name(i), body(i, 0))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var reads atomic.Int64
	for i := range objects {
		if i%6 != 0 {
			continue // those are only read
		}
		wg.Go(func() { // ends with ctx
			for v := 1; ctx.Err() == nil; v++ {
				if _, err := s.Put(context.Background(), "b", name(i), strings.NewReader(body(i, v)), PutOptions{Size: -1}); err != nil && !errs.IsCode(err, errs.Unavailable) {
					t.Errorf("put: %v", err)
				} else if err != nil {
					continue
				}
				if got, _, err := get(s, name(i)); err == nil && got != body(i, v) {
					t.Errorf("%q after %d was written", got, v)
				} else if err != nil && !errs.IsCode(err, errs.Unavailable) {
					t.Errorf("get: %v", err)
				}
				if v%3 == 0 {
					if err := remove(s, name(i)); err != nil && !errs.IsCode(err, errs.Unavailable) {
						t.Errorf("delete: %v", err)
					} else if err == nil {
						if _, err := s.Stat("b", name(i)); !errs.IsCode(err, errs.NotFound) && !errs.IsCode(err, errs.Unavailable) {
							t.Errorf("after the delete: %v", err)
						}
					}
				}
			}
		})
	}
	for g := range 2 {
		wg.Go(func() { // ends with ctx
			for n := g; ctx.Err() == nil; n++ {
				i := n % objects
				if i%6 == 0 {
					continue
				}
				got, _, err := get(s, name(i))
				if err != nil && !errs.IsCode(err, errs.Unavailable) || err == nil && got != body(i, 0) {
					t.Errorf("%.20q: %q, %v", name(i), got, err)
				}
				reads.Add(1)
			}
		})
	}
	for round := range 6 {
		dir := s.mounts[round%3].dir
		must(t, s.SetMountpath(dir, false))
		must(t, s.SetMountpath(dir, true))
		for {
			err := s.Resilver(t.Context(), nil)
			if err == nil {
				break
			}
			// A name that was written to another place meanwhile.
			wantCode(t, err, errs.Unavailable)
		}
	}
	before := reads.Load()
	eventually(t, "reads", func() bool { return reads.Load() > before+100 })
	cancel()
	wg.Wait()
	must(t, s.Resilver(t.Context(), nil))
	page, err := s.List(t.Context(), "b", ListOptions{})
	must(t, err)
	wantHome(t, s, len(page.Objects))
	if len(page.Objects) < objects*5/6 {
		t.Errorf("%d objects", len(page.Objects))
	}
}

// The only mountpath fails: everything is Unavailable; it is tried again by hand, or by the next start.
func TestOnlyMountpath(t *testing.T) {
	s := newStore(t, 1)
	put(t, s, "o", "body")
	dir := s.mounts[0].dir
	failing(s, dir, unix.EIO, "open")
	_, err := s.Stat("b", "o")
	wantCode(t, err, errs.Unavailable)
	s.disk.fault = nil
	_, err = s.Put(t.Context(), "b", "o", strings.NewReader("x"), PutOptions{Size: 1})
	wantCode(t, err, errs.Unavailable)
	_, err = s.Delete("b", "o", 1<<63, Condition{})
	wantCode(t, err, errs.Unavailable)
	wantCode(t, s.CreateBucket("c"), errs.Unavailable)
	wantCode(t, s.DestroyBucket("b"), errs.Unavailable)
	_, err = s.Empty("b")
	wantCode(t, err, errs.Unavailable)
	must(t, s.Close())
	s = reopen(t, dir)
	wantBody(t, s, "o", "body")
	must(t, s.SetMountpath(dir, false))
	_, err = s.Stat("b", "o")
	wantCode(t, err, errs.Unavailable)
	must(t, s.Close())
	s = reopen(t, dir) // it stays as somebody wanted it, and the store opens
	wantDown(t, s, dir)
	must(t, s.SetMountpath(dir, true))
	wantBody(t, s, "o", "body")
	wantCode(t, s.SetMountpath(t.TempDir(), true), errs.NotFound)
	if s.Scattered() {
		t.Error("one mountpath can't be scattered")
	}
}

// A work file doesn't outlive its mountpath.
func TestStagedMountpathGone(t *testing.T) {
	s := newStore(t, 2)
	st := stage(t, s, "o", "body", StageOptions{})
	dir := st.w.br.mount.dir
	must(t, s.SetMountpath(dir, false))
	must(t, s.SetMountpath(dir, true))
	_, err := st.Commit(0, Condition{})
	wantCode(t, err, errs.Unavailable)
	must(t, s.SetMountpath(dir, false))
	st = stage(t, s, "o", "body", StageOptions{})
	must(t, s.SetMountpath(dir, true))
	_, err = st.Commit(0, Condition{})
	wantCode(t, err, errs.Unavailable)
	_, err = s.Stat("b", "o")
	wantCode(t, err, errs.NotFound)
	wantNoWork(t, s)
}

// A reader's own error isn't the disk's.
func TestReaderFault(t *testing.T) {
	s := newStore(t, 1)
	_, err := s.Put(t.Context(), "b", "o", io.MultiReader(strings.NewReader("x"), readerFunc(func([]byte) (int, error) { return 0, unix.EIO })), PutOptions{Size: -1})
	if !errors.Is(err, unix.EIO) || errs.IsCode(err, errs.Unavailable) {
		t.Errorf("%v", err)
	}
	wantDown(t, s)
}
