package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// crash closes a store so that its catalogs keep what a process that was killed would have
// left, and opens it again.
func crash(t testing.TB, s *Store) *Store {
	t.Helper()
	kill(s)
	return reopen(t, s.dirs()...)
}

func kill(s *Store) {
	for _, m := range s.mounts {
		m.catalog.Load().fail(errors.New("the process is killed"))
	}
	s.Close()
}

// wantAgree tells whether catalogs and files say the same, and what they say is want.
func wantAgree(t *testing.T, s *Store, want map[string]string) {
	t.Helper()
	page, err := s.List(t.Context(), "b", ListOptions{})
	must(t, err)
	got := map[string]bool{}
	for _, o := range page.Objects {
		got[o.Name] = true
		if st, err := s.Stat("b", o.Name); err != nil || !same(st, o) {
			t.Errorf("listed %+v, stat %+v, %v", o, st, err)
		}
		if r, err := s.Lookup("b", o.Name); err != nil || r.Deleted || !same(r.Info, o) {
			t.Errorf("listed %+v, looked up %+v, %v", o, r, err)
		}
	}
	for name, body := range want {
		if !got[name] {
			t.Errorf("%.40q isn't listed", name)
		}
		wantBody(t, s, name, body)
	}
	if len(got) != len(want) {
		t.Errorf("%d objects are listed, not %d", len(got), len(want))
	}
	n := int64(0)
	for _, m := range s.mounts {
		n += m.catalog.Load().objects.Load()
	}
	if n != int64(len(want)) {
		t.Errorf("%d objects are counted, not %d", n, len(want))
	}
	if empty, err := s.Empty("b"); empty != (len(want) == 0) || err != nil {
		t.Errorf("empty: %v, %v", empty, err)
	}
}

// Whatever happens to the process, the catalog or the files between two runs, the catalog
// says what the files say, and tombstones stay.
func TestCatalogAfter(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("SHEAF_SEED"); v != "" {
		fmt.Sscan(v, &seed)
	}
	t.Logf("SHEAF_SEED=%d", seed)
	aside := func(t *testing.T, s *Store) {
		for _, m := range s.mounts {
			if found, _ := filepath.Glob(m.dir + "/" + catalogDir + asideSuffix + "*"); len(found) != 1 {
				t.Errorf("moved aside: %q", found)
			}
		}
	}
	catalogFiles := func(s *Store, f func(path string)) {
		for _, m := range s.mounts {
			entries, _ := os.ReadDir(m.catalog.Load().dir())
			for _, e := range entries {
				f(m.catalog.Load().dir() + "/" + e.Name())
			}
		}
	}
	for _, c := range []struct {
		name   string
		happen func(t *testing.T, s *Store) // closes it
		lost   bool                         // the tombstones are
		after  func(t *testing.T, s *Store)
	}{
		{name: "a close", happen: func(t *testing.T, s *Store) { must(t, s.Close()) }},
		{name: "a kill", happen: func(t *testing.T, s *Store) { kill(s) }},
		{name: "the catalog's removal", lost: true, happen: func(t *testing.T, s *Store) {
			must(t, s.Close())
			for _, m := range s.mounts {
				must(t, os.RemoveAll(m.catalog.Load().dir()))
			}
		}},
		{name: "damage to every file of the catalog", lost: true, after: aside, happen: func(t *testing.T, s *Store) {
			must(t, s.Close())
			catalogFiles(s, func(path string) {
				b, err := os.ReadFile(path)
				must(t, err)
				for i := range b {
					b[i] ^= 0x55
				}
				must(t, os.WriteFile(path, b, 0o644))
			})
		}},
		{name: "a lost manifest", lost: true, after: aside, happen: func(t *testing.T, s *Store) {
			must(t, s.Close())
			catalogFiles(s, func(path string) {
				if strings.Contains(path, "/MANIFEST") {
					must(t, os.Remove(path))
				}
			})
		}},
		{name: "a failure of pebble's files", after: func(t *testing.T, s *Store) {
			for _, dir := range s.dirs() {
				must(t, s.SetMountpath(dir, true))
			}
		}, happen: func(t *testing.T, s *Store) {
			for _, m := range s.mounts {
				m.catalog.Load().fs.keep(unix.EIO)
			}
			_, err := s.Put(t.Context(), "b", "late", strings.NewReader("x"), PutOptions{Size: -1})
			if !errors.Is(err, unix.EIO) {
				t.Errorf("a put on a failed catalog: %v", err)
			}
			_, err = s.Delete("b", "late", 0, Condition{})
			if err == nil {
				t.Error("a delete on a failed catalog is acknowledged")
			}
			s.Close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			s := newStore(t, 2)
			quick(t, s)
			have, dead := map[string]string{}, map[string]uint64{}
			for range 150 {
				name := nastyName(r)
				if r.IntN(3) > 0 {
					body := fmt.Sprint(r.Uint64())
					put(t, s, name, body)
					have[name] = body
					delete(dead, name)
				} else if have[name] != "" || r.IntN(2) == 0 {
					rec, err := s.Delete("b", name, uint64(time.Now().UnixNano()), Condition{})
					must(t, err)
					delete(have, name)
					dead[name] = rec.Version
				}
			}
			dirs := s.dirs()
			c.happen(t, s)
			s = reopen(t, dirs...)
			if c.after != nil {
				c.after(t, s)
			}
			wantAgree(t, s, have)
			if c.lost {
				dead = nil
			}
			got := map[string]uint64{}
			recs, err := s.Records(t.Context(), "b", "", 10_000)
			must(t, err)
			for _, r := range recs {
				if r.Deleted {
					got[r.Name] = r.Version
				}
			}
			if !maps.Equal(got, dead) {
				t.Errorf("%d tombstones, not %d", len(got), len(dead))
			}
			// And it goes on.
			put(t, s, "after", "x")
			have["after"] = "x"
			must(t, s.Close())
			s = reopen(t, dirs...)
			for _, m := range s.mounts {
				if !m.agrees {
					t.Error("after a close the catalog isn't clean")
				}
			}
			wantAgree(t, s, have)
		})
	}
}

// A catalog that is older than the files, though it was closed properly, isn't believed.
func TestCatalogOlder(t *testing.T) {
	s := newStore(t, 1)
	put(t, s, "stays", "1")
	put(t, s, "changes", "1")
	put(t, s, "goes", "1")
	dirs := s.dirs()
	must(t, s.Close())
	old := t.TempDir() + "/old"
	must(t, os.CopyFS(old, os.DirFS(dirs[0]+"/"+catalogDir)))
	s = reopen(t, dirs...)
	put(t, s, "changes", "2")
	put(t, s, "comes", "1")
	del(t, s, "goes")
	must(t, s.Close())
	must(t, os.RemoveAll(dirs[0]+"/"+catalogDir))
	must(t, os.CopyFS(dirs[0]+"/"+catalogDir, os.DirFS(old)))
	s = reopen(t, dirs...)
	wantAgree(t, s, map[string]string{"stays": "1", "changes": "2", "comes": "1"})
	must(t, s.Close())

	// Nor is another mountpath's.
	other := newStore(t, 1)
	put(t, other, "foreign", "1")
	from := other.dirs()[0]
	must(t, other.Close())
	must(t, os.RemoveAll(dirs[0]+"/"+catalogDir))
	must(t, os.CopyFS(dirs[0]+"/"+catalogDir, os.DirFS(from+"/"+catalogDir)))
	s = reopen(t, dirs...)
	wantAgree(t, s, map[string]string{"stays": "1", "changes": "2", "comes": "1"})
}

// A tombstone newer than a file wins over it at the next open, on whichever mountpath
// either is; an older one doesn't.
func TestTombstoneAndFile(t *testing.T) {
	s := newStore(t, 3)
	dirs := s.dirs()
	want := map[string]string{}
	for i := range 40 {
		name := fmt.Sprintf("d%d/%s", i, strings.Repeat("n", 100+i*10)) // some are in the hashed place
		v := put(t, s, name, "body").Version
		// As a crash between the tombstone and the removal leaves it, or one between a
		// commit and the note of it.
		tomb := Record{Info: Info{Name: name, Version: v + 1, ModTime: time.Now()}, Deleted: true}
		if i%2 == 1 {
			tomb.Version = v - 1
			want[name] = "body"
		}
		at := s.mounts[i%3].catalog.Load()
		b := at.db.NewBatch()
		must(t, b.Set(tombKey("b", name), encodeTomb(tomb), nil))
		must(t, at.apply(b, true))
		must(t, b.Close())
	}
	kill(s)
	s = reopen(t, dirs...)
	wantAgree(t, s, want)
	if got := files(t, s); len(got) != len(want) {
		t.Errorf("%d files for %d objects", len(got), len(want))
	}
	recs, err := s.Records(t.Context(), "b", "", 1000)
	must(t, err)
	for _, r := range recs {
		if (want[r.Name] == "") != r.Deleted {
			t.Errorf("%.10q: deleted %v", r.Name, r.Deleted)
		}
	}
	if len(recs) != 40 {
		t.Errorf("%d records", len(recs))
	}
}

// A check that finds nothing wrong writes nothing, and one that finds stale records, files
// without a record and foreign buckets mends just those.
func TestCatalogCheck(t *testing.T) {
	s := newStore(t, 1)
	quick(t, s)
	want := map[string]string{}
	for i := range 300 {
		name := fmt.Sprintf("%d/o%03d", i%7, i)
		put(t, s, name, "body")
		want[name] = "body"
	}
	cat := s.mounts[0].catalog.Load()
	must(t, cat.put("b", Record{Info: Info{Name: "ghost", Version: 1}}, placePlain))
	must(t, cat.del("b", "3/o003"))
	must(t, cat.put("nobucket", Record{Info: Info{Name: "o", Version: 1}}, placePlain))
	must(t, cat.tomb("nobucket", Record{Info: Info{Name: "p", Version: 1}, Deleted: true}))
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.mounts[0].agrees = false
	must(t, s.checkCatalogs(t.Context()))
	if !strings.Contains(log.String(), "files=300 added=1 stale=1 deleted=0") {
		t.Errorf("log: %s", log.String())
	}
	wantAgree(t, s, want)
	if all, err := cat.buckets(); err != nil || !slices.Equal(all, []string{"b"}) {
		t.Errorf("buckets %q, %v", all, err)
	}
	log.Reset()
	s.mounts[0].agrees = false
	must(t, s.checkCatalogs(t.Context()))
	if !strings.Contains(log.String(), "files=300 added=0 stale=0 deleted=0") {
		t.Errorf("log: %s", log.String())
	}
	wantAgree(t, s, want)
}

// On a full disk objects can still be deleted; after that there is room again.
func TestCatalogDiskFull(t *testing.T) {
	dir := mount(t, "tmpfs", "size=64m")
	s, err := Open(Options{Dirs: []string{dir}})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	must(t, s.CreateBucket("b"))
	var names []string
	for i := 0; ; i++ {
		name := fmt.Sprintf("o%05d", i)
		if _, err = s.Put(t.Context(), "b", name, bytes.NewReader(make([]byte, 64<<10)), PutOptions{Size: -1}); err != nil {
			break
		}
		names = append(names, name)
	}
	wantCode(t, err, errs.NoSpace)
	must(t, os.WriteFile(dir+"/filler", nil, 0o644))
	f, err := os.OpenFile(dir+"/filler", os.O_WRONLY, 0)
	must(t, err)
	for _, n := range []int{64 << 10, 4 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, n))
		}
	}
	f.Close()
	// Larger than the log's block: it must be written.
	cat := s.mounts[0].catalog.Load()
	for i := range 400 {
		must(t, cat.tomb("b", Record{Info: Info{Name: fmt.Sprintf("%d%s", i, strings.Repeat("t", 1000)), Version: 1, ModTime: time.Now()}, Deleted: true}))
	}
	for _, name := range names[:len(names)/2] {
		_, err := s.Delete("b", name, 0, Condition{})
		must(t, err)
	}
	must(t, os.Remove(dir+"/filler"))
	_, err = s.Put(t.Context(), "b", "o", strings.NewReader("x"), PutOptions{Size: -1})
	must(t, err)
	page, err := s.List(t.Context(), "b", ListOptions{})
	if err != nil || len(page.Objects) != len(names)-len(names)/2+1 {
		t.Errorf("%d objects, %v", len(page.Objects), err)
	}
}

// Writers, deleters and listings at once, and a failure in the middle: nobody hangs, and
// what was acknowledged is there.
func TestCatalogConcurrent(t *testing.T) {
	s := newStore(t, 2)
	quick(t, s)
	var mu sync.Mutex
	acked := map[string]bool{} // name → live
	var wg sync.WaitGroup
	for g := range 6 {
		wg.Go(func() {
			for i := range 60 {
				name := fmt.Sprintf("g%d/%02d", g, i)
				if _, err := s.Put(t.Context(), "b", name, strings.NewReader("x"), PutOptions{Size: -1}); err != nil {
					return
				}
				mu.Lock()
				acked[name] = true
				mu.Unlock()
				if i%3 == 0 {
					mu.Lock()
					delete(acked, name) // until the answer is there, either is right
					mu.Unlock()
					if _, err := s.Delete("b", name, 0, Condition{}); err != nil {
						return
					}
					mu.Lock()
					acked[name] = false
					mu.Unlock()
				}
				if g == 0 && i == 30 {
					s.mounts[1].catalog.Load().fs.keep(unix.EIO)
				}
				if i%10 == 0 {
					s.List(t.Context(), "b", ListOptions{Limit: 20})
				}
			}
		})
	}
	wg.Wait()
	s.Close()
	s = reopen(t, s.dirs()...)
	must(t, s.SetMountpath(s.mounts[1].dir, true))
	for name, live := range acked {
		if _, err := s.Stat("b", name); live && err != nil || !live && !errs.IsCode(err, errs.NotFound) {
			t.Errorf("%s: there %v, %v", name, live, err)
		}
		if r, err := s.Lookup("b", name); err != nil || r.Deleted == live {
			t.Errorf("%s: there %v, %+v, %v", name, live, r, err)
		}
	}
}

func TestCatalogValues(t *testing.T) {
	for _, r := range []Record{
		{Info: Info{Name: "n", ModTime: time.Unix(0, 0)}},
		{Info: Info{Name: "n", Version: 1<<64 - 1, Size: 1<<63 - 1, Checksum: 1<<64 - 1, ModTime: time.Unix(0, -5), Attrs: map[string]string{"a": "b", "c": ""}}},
	} {
		b := encodeLive(r, placeHashed)
		got, place, err := decodeLive("n", b)
		if err != nil || place != placeHashed || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v comes back as %+v, %v", r, got, err)
		}
		for i := range len(b) - len(encodeMust(t, r.Attrs)) {
			if _, _, err := decodeLive("n", b[:i]); !damaged(err) {
				t.Errorf("cut off after %d: %v", i, err)
			}
		}
		tomb := Record{Info: Info{Name: "n", Version: r.Version, ModTime: r.ModTime}, Deleted: true}
		b = encodeTomb(tomb)
		if got, err := decodeTomb("n", b); err != nil || !reflect.DeepEqual(got, tomb) {
			t.Errorf("%+v comes back as %+v, %v", tomb, got, err)
		}
		for i := range b {
			if _, err := decodeTomb("n", b[:i]); !damaged(err) {
				t.Errorf("cut off after %d: %v", i, err)
			}
		}
	}
}

func encodeMust(t *testing.T, a map[string]string) string {
	c, err := encodeCustom(a)
	must(t, err)
	return c
}
