package store

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
)

func stage(t *testing.T, s *Store, name, body string, o StageOptions) *Staged {
	t.Helper()
	o.Size = int64(len(body))
	st, err := s.Stage(t.Context(), "b", name, strings.NewReader(body), o)
	must(t, err)
	return st
}

func commit(t *testing.T, s *Store, name, body string, version uint64) Info {
	t.Helper()
	info, err := stage(t, s, name, body, StageOptions{}).Commit(version, Condition{})
	must(t, err)
	return info
}

// Whatever the order in which versions arrive, the highest stays.
func TestNewestWins(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, name := range []string{"d/o", strings.Repeat("l", 300)} {
			s := newStore(t, n)
			if info := commit(t, s, name, "five", 5); info.Version != 5 {
				t.Errorf("version %d", info.Version)
			}
			if info := commit(t, s, name, "four", 4); info.Version != 5 || info.Size != 4 {
				t.Errorf("an older commit gives %+v", info)
			}
			commit(t, s, name, "five again", 5)
			wantBody(t, s, name, "five")
			if r, err := s.Delete("b", name, 4, Condition{}); err != nil || r.Deleted || r.Version != 5 {
				t.Errorf("an older delete: %+v, %v", r, err)
			}
			if r, err := s.Delete("b", name, 7, Condition{}); err != nil || !r.Deleted || r.Version != 7 {
				t.Errorf("delete: %+v, %v", r, err)
			}
			if info := commit(t, s, name, "six", 6); info.Version != 7 || info.Size != 0 {
				t.Errorf("a commit older than the tombstone gives %+v", info)
			}
			_, err := s.Stat("b", name)
			wantCode(t, err, errs.NotFound)
			if r, err := s.Lookup("b", name); err != nil || !r.Deleted || r.Version != 7 || r.Name != name || r.ModTime.IsZero() {
				t.Errorf("lookup: %+v, %v", r, err)
			}
			wantCode(t, remove(s, name), errs.NotFound)
			commit(t, s, name, "eight", 8)
			wantBody(t, s, name, "eight")
			if r, err := s.Lookup("b", name); err != nil || r.Deleted || r.Version != 8 {
				t.Errorf("lookup: %+v, %v", r, err)
			}
			wantNoWork(t, s)
		}
	}
}

// A delete with a version leaves a tombstone even where nothing was.
func TestTombstones(t *testing.T) {
	s := newStore(t, 2)
	for i := range 10 {
		_, err := s.Delete("b", fmt.Sprint("gone", i), uint64(100+i), Condition{})
		must(t, err)
		commit(t, s, fmt.Sprint("live", i), "body", uint64(200+i))
	}
	var all []Record
	for after := ""; ; {
		page, err := s.Records(t.Context(), "b", after, 3)
		must(t, err)
		if len(page) == 0 {
			break
		}
		all, after = append(all, page...), page[len(page)-1].Name
	}
	if len(all) != 20 {
		t.Fatalf("%d records", len(all))
	}
	names := []string{"nothing"}
	for i, r := range all {
		if r.Deleted != (i < 10) || r.Version != uint64([]int{100, 200}[i/10]+i%10) {
			t.Errorf("record %d: %+v", i, r)
		}
		names = append(names, r.Name)
	}
	many, err := s.LookupMany("b", names)
	must(t, err)
	for i, r := range many {
		if i == 0 && r.Version != 0 || i > 0 && (r.Version != all[i-1].Version || r.Deleted != all[i-1].Deleted) || r.Name != names[i] {
			t.Errorf("%q: %+v", names[i], r)
		}
	}
	if n, err := s.ForgetTombstones(t.Context(), "b", 104); n != 4 || err != nil {
		t.Errorf("forgot %d, %v", n, err)
	}
	_, err = s.Lookup("b", "gone3")
	wantCode(t, err, errs.NotFound)
	_, err = s.Lookup("b", "gone4")
	must(t, err)
	wantCode(t, s.Remove("b", "gone4", 105), errs.VersionMismatch)
	must(t, s.Remove("b", "gone4", 104))
	wantCode(t, s.Remove("b", "gone4", 104), errs.NotFound)
	wantCode(t, s.Remove("b", "live1", 200), errs.VersionMismatch)
	must(t, s.Remove("b", "live1", 201))
	_, err = s.Lookup("b", "live1")
	wantCode(t, err, errs.NotFound)
	commit(t, s, "live1", "older, and welcome", 3)
	wantBody(t, s, "live1", "older, and welcome")
}

func TestConditions(t *testing.T) {
	s := newStore(t, 1)
	put := func(c Condition) (Info, error) {
		return s.Put(t.Context(), "b", "o", strings.NewReader("body"), PutOptions{Size: 4, If: c})
	}
	_, err := put(Condition{Version: 1})
	wantCode(t, err, errs.NotFound)
	a, err := put(Condition{Absent: true})
	must(t, err)
	_, err = put(Condition{Absent: true})
	wantCode(t, err, errs.AlreadyExists)
	b, err := put(Condition{Version: a.Version})
	must(t, err)
	_, err = put(Condition{Version: a.Version})
	wantCode(t, err, errs.VersionMismatch)
	_, err = put(Condition{Absent: true, Version: 1})
	wantCode(t, err, errs.InvalidArgument)

	// The condition is about what is there at the commit.
	late := stage(t, s, "o", "late", StageOptions{})
	c, err := put(Condition{Version: b.Version})
	must(t, err)
	_, err = late.Commit(0, Condition{Version: b.Version})
	wantCode(t, err, errs.VersionMismatch)
	wantBody(t, s, "o", "body")

	// A put that ends early keeps to it too.
	unread := readerFunc(func([]byte) (int, error) { t.Error("the reader was read"); return 0, io.EOF })
	sum := c.Checksum
	_, err = s.Put(t.Context(), "b", "o", unread, PutOptions{Size: 4, Checksum: &sum, If: Condition{Absent: true}})
	wantCode(t, err, errs.AlreadyExists)
	if info, err := s.Put(t.Context(), "b", "o", unread, PutOptions{Size: 4, Checksum: &sum, If: Condition{Version: c.Version}}); err != nil || !same(info, c) {
		t.Errorf("%+v, %v", info, err)
	}

	_, err = s.Delete("b", "o", 0, Condition{Version: b.Version})
	wantCode(t, err, errs.VersionMismatch)
	_, err = s.Delete("b", "o", 0, Condition{Version: c.Version})
	must(t, err)
	_, err = s.Delete("b", "o", 0, Condition{Version: c.Version})
	wantCode(t, err, errs.NotFound)
	d, err := put(Condition{Absent: true})
	if err != nil || d.Version <= c.Version {
		t.Errorf("%+v, %v", d, err)
	}
	wantNoWork(t, s)
}

func TestStaged(t *testing.T) {
	s := newStore(t, 1)
	when := time.Unix(1, 2)
	attrs := map[string]string{"k": "v"}
	st := stage(t, s, "o", "body", StageOptions{ModTime: when, Attrs: attrs, Version: 9})
	_, err := s.Stat("b", "o")
	wantCode(t, err, errs.NotFound)
	if info := st.Info(); info.Size != 4 || info.Version != 9 || !info.ModTime.Equal(when) || info.Attrs["k"] != "v" {
		t.Errorf("staged: %+v", info)
	}
	info, err := st.Commit(9, Condition{})
	must(t, err)
	_, err = st.Commit(0, Condition{})
	wantCode(t, err, errs.Internal)
	st.Discard()
	dirs := s.dirs()
	must(t, s.Close())
	s = reopen(t, dirs...)
	if got, err := s.Stat("b", "o"); err != nil || !same(got, info) || got.Attrs["k"] != "v" {
		t.Errorf("%+v, %v; the commit said %+v", got, err, info)
	}
	// Other attributes make another object of the same bytes.
	sum := info.Checksum
	if got, err := s.Put(t.Context(), "b", "o", strings.NewReader("body"), PutOptions{Size: 4, Checksum: &sum}); err != nil || got.Version == 9 || got.Attrs != nil {
		t.Errorf("%+v, %v", got, err)
	}
	long := strings.Repeat("n", 1024)
	commitAttrs := map[string]string{"k": strings.Repeat("v", MaxAttrs-5)}
	_, err = stage(t, s, long, "body", StageOptions{Attrs: commitAttrs}).Commit(0, Condition{})
	must(t, err)
	if got, err := s.Stat("b", long); err != nil || got.Attrs["k"] != commitAttrs["k"] {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = s.Stage(t.Context(), "b", "o", strings.NewReader(""), StageOptions{Attrs: map[string]string{"k": strings.Repeat("v", MaxAttrs)}})
	wantCode(t, err, errs.TooLarge)

	st = stage(t, s, "other", "body", StageOptions{})
	st.Discard()
	st.Discard()
	_, err = st.Commit(0, Condition{})
	wantCode(t, err, errs.Internal)
	wantNoWork(t, s)

	st = stage(t, s, "other", "body", StageOptions{})
	must(t, s.DestroyBucket("b"))
	must(t, s.CreateBucket("b"))
	_, err = st.Commit(0, Condition{})
	wantCode(t, err, errs.BucketNotFound)
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// A relaxed write syncs nothing; a write of the same that isn't relaxed makes up for it.
func TestRelaxed(t *testing.T) {
	s := newStore(t, 1)
	put(t, s, "d/first", "makes the folder")
	real, syncs := s.disk, 0
	s.disk = disk{
		sync:    func(f *os.File) error { syncs++; return real.sync(f) },
		syncDir: func(dir string) error { syncs++; return real.syncDir(dir) },
	}
	sum, err := s.Put(context.Background(), "b", "d/o", strings.NewReader("body"), PutOptions{Size: 4, Relaxed: true})
	if err != nil || syncs != 0 {
		t.Errorf("%v, %d syncs", err, syncs)
	}
	wantBody(t, s, "d/o", "body")
	for _, c := range []struct {
		relaxed bool
		syncs   int
	}{{true, 0}, {false, 2}} {
		syncs = 0
		info, err := s.Put(context.Background(), "b", "d/o", strings.NewReader("body"), PutOptions{Size: 4, Checksum: &sum.Checksum, Relaxed: c.relaxed})
		if err != nil || info.Version != sum.Version || syncs != c.syncs {
			t.Errorf("relaxed %v: %+v, %v, %d syncs", c.relaxed, info, err, syncs)
		}
	}
}
