package store

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sheaf/internal/errs"
)

// modelList is what List must give, computed the plain way.
func modelList(names []string, o ListOptions) (keys []string, token string) {
	var all []string
	for _, n := range names {
		if !strings.HasPrefix(n, o.Prefix) {
			continue
		}
		if o.Delimiter != "" {
			if i := strings.Index(n[len(o.Prefix):], o.Delimiter); i >= 0 {
				n = "p:" + n[:len(o.Prefix)+i+1]
			} else {
				n = "o:" + n
			}
		} else {
			n = "o:" + n
		}
		if n[2:] > o.StartAfter {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	all = slices.Compact(all)
	if len(all) > o.Limit {
		all = all[:o.Limit]
		token = all[o.Limit-1][2:]
	}
	return all, token
}

func pageKeys(p Page) (all []string) {
	for _, o := range p.Objects {
		all = append(all, "o:"+o.Name)
	}
	for _, x := range p.Prefixes {
		all = append(all, "p:"+x)
	}
	slices.SortFunc(all, func(a, b string) int { return strings.Compare(a[2:], b[2:]) })
	return all
}

func nastyName(r *rand.Rand) string {
	parts := []string{"a", "b", "a-b", "a0", "a.b", "", "", "%", "%2E", ".", "..", "ü", "\U0001F600", "A", strings.Repeat("l", 256), strings.Repeat("m", 255)}
	switch r.IntN(12) {
	case 0:
		return strings.Repeat("x", 1024)
	case 1:
		return strings.Repeat("y/", 511) + "yy"
	case 2:
		return strings.Repeat("%", 1024)
	}
	var c []string
	for range 1 + r.IntN(4) {
		c = append(c, parts[r.IntN(len(parts))])
	}
	name := strings.Join(c, "/")
	if name == "" {
		return "/"
	}
	return name[:min(len(name), 1024)]
}

// cutAnywhere gives a part of a name, so that prefixes and starts fall inside components.
func cutAnywhere(r *rand.Rand, names []string) string {
	if r.IntN(3) == 0 || len(names) == 0 {
		return ""
	}
	n := names[r.IntN(len(names))]
	n = n[:r.IntN(len(n)+1)]
	if r.IntN(6) == 0 {
		n += string(rune('!' + r.IntN(60)))
	}
	return n
}

func TestListModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("SHEAF_SEED"); v != "" {
		fmt.Sscan(v, &seed)
	}
	t.Logf("SHEAF_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for round := range 6 {
		s := newStore(t, 1+round%3)
		real := s.disk
		s.disk = disk{sync: func(*os.File) error { return nil }, syncDir: func(string) error { return nil }} // for speed
		have := map[string]bool{}
		for range 120 {
			if name := nastyName(r); r.IntN(4) > 0 {
				put(t, s, name, "body")
				have[name] = true
			} else if err := remove(s, name); (err == nil) != have[name] {
				t.Fatalf("delete %.40q, there %v: %v", name, have[name], err)
			} else {
				delete(have, name)
			}
		}
		s.disk = real
		// Neither objects nor prefixes.
		for _, m := range s.mounts {
			ob := bucketDir(m.dir, "sheaf", "b") + "/%ob"
			must(t, os.MkdirAll(ob+"/a-c/emptydir/deeper", 0o755))
			must(t, os.MkdirAll(ob+"/foreign", 0o755))
			must(t, os.WriteFile(ob+"/foreign/file", []byte("x"), 0o644))
			must(t, os.WriteFile(ob+"/a-b0foreign", []byte("x"), 0o644))
			must(t, os.WriteFile(ob+"/b%41", []byte("x"), 0o644))
		}
		var names []string
		for n := range have {
			names = append(names, n)
		}
		slices.Sort(names)
		for range 150 {
			o := ListOptions{Prefix: cutAnywhere(r, names), StartAfter: cutAnywhere(r, names), Limit: 1 + r.IntN(8)}
			if r.IntN(2) == 0 {
				o.Delimiter = "/"
			}
			if r.IntN(4) == 0 {
				o.Limit = 1000
			}
			for pages := 0; ; pages++ {
				page, err := s.List(t.Context(), "b", o)
				must(t, err)
				want, token := modelList(names, o)
				if got := pageKeys(page); !slices.Equal(got, want) || page.Token != token {
					t.Fatalf("%+v\ngot  %.60q token %.60q\nwant %.60q token %.60q", o, got, page.Token, want, token)
				}
				if !slices.IsSorted(page.Prefixes) || !slices.IsSortedFunc(page.Objects, func(a, b Info) int { return strings.Compare(a.Name, b.Name) }) {
					t.Fatalf("%+v: not sorted", o)
				}
				if o.StartAfter = page.Token; page.Token == "" || pages > 5 {
					break
				}
			}
		}
		if page, err := s.List(t.Context(), "b", ListOptions{}); err != nil || len(page.Objects) != len(names) {
			t.Errorf("%d of %d objects, %v", len(page.Objects), len(names), err)
		} else {
			for _, o := range page.Objects {
				if st, err := s.Stat("b", o.Name); err != nil || !same(st, o) {
					t.Errorf("listed %+v, stat %+v, %v", o, st, err)
				}
			}
		}
		// The folders that were made by hand are in the way of nothing.
		put(t, s, "a-c/emptydir", "x")
		wantBody(t, s, "a-c/emptydir", "x")
		for _, n := range names {
			del(t, s, n)
		}
	}
}

func TestListErrors(t *testing.T) {
	s := newStore(t, 1)
	put(t, s, "o", "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.List(ctx, "b", ListOptions{})
	wantCode(t, err, errs.Canceled)
	_, err = s.List(t.Context(), "b", ListOptions{Delimiter: "-"})
	wantCode(t, err, errs.InvalidArgument)
	_, err = s.List(t.Context(), "b", ListOptions{Limit: -1})
	wantCode(t, err, errs.InvalidArgument)
	_, err = s.List(t.Context(), "nope", ListOptions{})
	wantCode(t, err, errs.BucketNotFound)
}

// What a page costs doesn't depend on what it doesn't show: folded prefixes, what comes
// before it, what comes after.
func TestListSkips(t *testing.T) {
	s := newStore(t, 1)
	quick(t, s)
	const each = 400
	for i := range 5 * each {
		put(t, s, fmt.Sprintf("d%d/%03d", i/each, i%each), "x")
	}
	for _, c := range []struct {
		o    ListOptions
		want int // lines
	}{
		{ListOptions{Delimiter: "/"}, 5},
		{ListOptions{Delimiter: "/", StartAfter: "d2/"}, 2},
		{ListOptions{Delimiter: "/", StartAfter: "d2/300"}, 2},
		{ListOptions{Delimiter: "/", Deleted: true}, 5},
		{ListOptions{StartAfter: "d3/395", Limit: 8}, 8},
		{ListOptions{Prefix: "d3/39"}, 10},
		{ListOptions{Prefix: "d9"}, 0},
	} {
		w, err := newCatalogWalk(s.mounts[0].catalog.Load(), "b", query{prefix: c.o.Prefix, after: c.o.StartAfter, fold: c.o.Delimiter != "", dead: c.o.Deleted})
		must(t, err)
		n := 0
		for c.o.Limit == 0 || n < c.o.Limit {
			if _, err := w.next(); err == io.EOF {
				break
			} else {
				must(t, err)
			}
			n++
		}
		cost := 0
		for _, st := range w.all {
			u := st.walker.(*spaceWalk).it.Stats()
			cost += u.ForwardSeekCount[pebble.InternalIterCall] + u.ForwardStepCount[pebble.InternalIterCall]
		}
		must(t, w.close())
		if n != c.want || cost > 4*(c.want+2) {
			t.Errorf("%+v: %d lines, %d steps", c.o, n, cost)
		}
	}
}

// quick makes a store that doesn't wait for the disk.
func quick(t testing.TB, s *Store) {
	real := s.disk
	s.disk = disk{sync: func(*os.File) error { return nil }, syncDir: func(string) error { return nil }}
	t.Cleanup(func() { s.disk = real })
}

func BenchmarkListPage(b *testing.B) {
	s := newStore(b, 1)
	real := s.disk
	s.disk = disk{sync: func(*os.File) error { return nil }, syncDir: func(string) error { return nil }}
	for i := range 20_000 {
		put(b, s, fmt.Sprintf("d/o%06d", i), "x")
	}
	s.disk = real
	b.ReportAllocs()
	for b.Loop() {
		page, err := s.List(context.Background(), "b", ListOptions{StartAfter: "d/o005000", Limit: 1000})
		if err != nil || len(page.Objects) != 1000 {
			b.Fatal(err)
		}
	}
}
