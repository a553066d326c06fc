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
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
)

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A failed Put leaves the older object, or none, and no file or folder.
func TestPutFails(t *testing.T) {
	errDisk := errors.New("the disk says no")
	wrong := uint64(1)
	for _, c := range []struct {
		name  string
		o     PutOptions
		body  io.Reader
		spoil func(s *Store, cancel func())
		want  errs.Code
	}{
		{name: "checksum", o: PutOptions{Size: -1, Checksum: &wrong}, want: errs.ChecksumMismatch},
		{name: "fewer bytes", o: PutOptions{Size: 9}, want: errs.InvalidArgument},
		{name: "far fewer bytes", o: PutOptions{Size: 9 << 20}, want: errs.InvalidArgument},
		{name: "more bytes", o: PutOptions{Size: 2}, want: errs.InvalidArgument},
		{name: "more bytes than none", o: PutOptions{Size: 0}, want: errs.InvalidArgument},
		{name: "odd size", o: PutOptions{Size: -2}, want: errs.InvalidArgument},
		{name: "canceled before", o: PutOptions{Size: -1}, spoil: func(_ *Store, cancel func()) { cancel() }, want: errs.Canceled},
		{name: "reader", o: PutOptions{Size: -1}, body: io.MultiReader(strings.NewReader("some"), readerFunc(func([]byte) (int, error) {
			return 0, errs.New(errs.SenderLost, "read", "")
		})), want: errs.SenderLost},
		{name: "stuck reader", o: PutOptions{Size: -1}, body: readerFunc(func([]byte) (int, error) { return 0, nil }), want: errs.Internal},
		{name: "sync", o: PutOptions{Size: -1}, spoil: func(s *Store, _ func()) {
			s.disk.sync = func(*os.File) error { return errDisk }
		}, want: errs.Internal},
		{name: "canceled by the sync", o: PutOptions{Size: -1}, spoil: func(s *Store, cancel func()) {
			s.disk.sync = func(*os.File) error { cancel(); return nil }
		}, want: errs.Canceled},
		{name: "sync of the folder", o: PutOptions{Size: -1}, spoil: func(s *Store, _ func()) {
			s.disk.syncDir = func(string) error { return errDisk }
		}, want: errs.Internal},
	} {
		for _, older := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, older %v", c.name, older), func(t *testing.T) {
				s := newStore(t, 1)
				var was Info
				if older {
					was = put(t, s, "d/e/o", "older")
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				real := s.disk
				if c.spoil != nil {
					c.spoil(s, cancel)
				}
				body := c.body
				if body == nil {
					body = strings.NewReader("newer")
				}
				info, err := s.Put(ctx, "b", "d/e/o", body, c.o)
				s.disk = real
				wantCode(t, err, c.want)
				if !same(info, Info{}) || !strings.Contains(err.Error(), "put b/d/e/o: ") {
					t.Errorf("%+v, %v", info, err)
				}
				wantNoWork(t, s)
				if older {
					wantBody(t, s, "d/e/o", "older")
					if st, err := s.Stat("b", "d/e/o"); err != nil || !same(st, was) {
						t.Errorf("%+v became %+v, %v", was, st, err)
					}
					return
				}
				_, err = s.Stat("b", "d/e/o")
				wantCode(t, err, errs.NotFound)
				if e, _ := os.ReadDir(bucketDir(s.mounts[0].dir, "sheaf", "b") + "/%ob"); len(e) != 0 {
					t.Errorf("left: %v", e)
				}
				put(t, s, "d/e/o", "newer")
				wantBody(t, s, "d/e/o", "newer")
			})
		}
	}
}

func TestPutCanceledMidway(t *testing.T) {
	s := newStore(t, 1)
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, err := s.Put(ctx, "b", "o", readerFunc(func(p []byte) (int, error) {
		if n++; n == 3 {
			cancel()
		}
		return len(p), nil
	}), PutOptions{Size: -1})
	wantCode(t, err, errs.Canceled)
	if got := files(t, s); len(got) != 0 || n > 4 {
		t.Errorf("left: %q after %d reads", got, n)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = s.Put(ctx, "b", "o", zeros{}, PutOptions{Size: -1})
	wantCode(t, err, errs.Timeout)
}

// An object that is there already isn't read from the caller.
func TestPutSame(t *testing.T) {
	s := newStore(t, 1)
	was := put(t, s, "o", "body")
	sum := xxh3.HashString("body")
	unread := readerFunc(func([]byte) (int, error) { t.Error("the reader was read"); return 0, io.EOF })
	for _, size := range []int64{-1, 4} {
		info, err := s.Put(t.Context(), "b", "o", unread, PutOptions{Size: size, Checksum: &sum})
		if err != nil || !same(info, was) {
			t.Errorf("%+v, %v", info, err)
		}
	}
	// A cut-off file isn't the object, so it is written again.
	must(t, os.Truncate(diskPath(t, s, "o"), 2))
	info, err := s.Put(t.Context(), "b", "o", strings.NewReader("body"), PutOptions{Size: -1, Checksum: &sum})
	if err != nil || info.Version <= was.Version {
		t.Errorf("%+v, %v", info, err)
	}
	wantBody(t, s, "o", "body")
}

// Versions grow although the clock seems to stand far behind.
func TestVersionGrows(t *testing.T) {
	s := newStore(t, 1)
	ahead := uint64(time.Now().Add(time.Hour).UnixNano())
	s.stripe("b", "o").high = ahead
	a := put(t, s, "o", "1")
	del(t, s, "o")
	b := put(t, s, "o", "2")
	if a.Version != ahead+1 || b.Version != ahead+3 {
		t.Errorf("%d and %d after %d", a.Version, b.Version, ahead)
	}
	// Also after a restart, from what is on disk.
	dirs := s.dirs()
	must(t, s.Close())
	s = reopen(t, dirs...)
	if c := put(t, s, "o", "3"); c.Version != ahead+4 {
		t.Errorf("%d after %d", c.Version, b.Version)
	}
}

// Objects whose names need one another's place on disk.
func TestConflicts(t *testing.T) {
	sets := [][]string{
		{"a", "a/b"},
		{"a", "a/", "a//", "a/b", "a/b/c", "a-b", "a0"},
		{"x/y/z", "x/y", "x", "x/y/z/w"},
		{strings.Repeat("c", 255), strings.Repeat("c", 256), strings.Repeat("c", 256) + "/d"},
		{strings.Repeat("%", 85), strings.Repeat("%", 86), strings.Repeat("a/%", 341)},
		{"/", "//", "/a", "%", "%/", ".", "..", "./.", "../../x", "\x00", "\xff"},
	}
	for _, set := range sets {
		for _, n := range []int{1, 3} {
			s := newStore(t, n)
			for round := range 3 {
				perm := rand.Perm(len(set))
				for _, i := range perm {
					put(t, s, set[i], fmt.Sprint(round, set[i]))
				}
				for _, name := range set {
					wantBody(t, s, name, fmt.Sprint(round, name))
				}
				// Once some are gone others can have their plain places.
				gone := perm[:len(perm)/2]
				for _, i := range gone {
					del(t, s, set[i])
					_, err := s.Stat("b", set[i])
					wantCode(t, err, errs.NotFound)
				}
				if got := files(t, s); len(got) != len(set)-len(gone) {
					t.Fatalf("%d files for %d objects: %q", len(got), len(set)-len(gone), got)
				}
			}
			for _, name := range set {
				if err := remove(s, name); err != nil {
					wantCode(t, err, errs.NotFound)
				}
			}
			for _, m := range s.mounts {
				for _, kind := range []string{"%ob", "%lg", "%wk"} {
					if e, _ := os.ReadDir(bucketDir(m.dir, "sheaf", "b") + "/" + kind); len(e) != 0 {
						t.Errorf("%s: left %v", kind, e)
					}
				}
			}
		}
	}
}

// A copy in the hashed place gives way to one in the plain place, whatever a crash left.
func TestPlainWins(t *testing.T) {
	s := newStore(t, 1)
	put(t, s, "a/b", "child")
	put(t, s, "a", "hashed")
	hashed := diskPath(t, s, "a")
	if !strings.Contains(hashed, contentHashed) {
		t.Fatalf("a is at %s", hashed)
	}
	keep := filepath.Join(t.TempDir(), "keep")
	del(t, s, "a/b")
	must(t, os.Rename(hashed, keep))
	put(t, s, "a", "plain")
	must(t, os.MkdirAll(filepath.Dir(hashed), 0o755))
	must(t, os.Rename(keep, hashed)) // as if the last step had been lost
	wantBody(t, s, "a", "plain")
	page, err := s.List(t.Context(), "b", ListOptions{})
	if err != nil || len(page.Objects) != 1 || page.Objects[0].Size != 5 {
		t.Errorf("%+v, %v", page, err)
	}
	del(t, s, "a")
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// No name leaves the bucket's folder.
func TestTraversal(t *testing.T) {
	s := newStore(t, 1)
	must(t, s.CreateBucket("other"))
	nasty := []string{"..", ".", "../x", "../../other/%ob/x", "a/../../x", "a/../../../../x", "/etc/x", "//x", "%2E%2E/x", "..%2Fx", "%", "%%",
		"../" + strings.Repeat("l", 300), strings.Repeat("../", 100) + "tmp/x", "%wk/x", "../%wk/x", "\x00", "a\x00/../b"}
	for _, name := range nasty {
		put(t, s, name, name)
	}
	for _, name := range nasty {
		wantBody(t, s, name, name)
	}
	inside := 0
	for _, f := range files(t, s) {
		if strings.HasPrefix(f, "/@sheaf/b/%ob/") || strings.HasPrefix(f, "/@sheaf/b/%lg/") {
			inside++
		} else {
			t.Errorf("%s lies outside", f)
		}
	}
	if inside != len(nasty) {
		t.Errorf("%d files for %d objects", inside, len(nasty))
	}
	if e, _ := os.ReadDir(filepath.Dir(s.mounts[0].dir)); len(e) != 1 {
		t.Errorf("beside the mountpath: %v", e)
	}
	for _, name := range []string{"", strings.Repeat("x", 1025)} {
		_, err := s.Put(t.Context(), "b", name, strings.NewReader(""), PutOptions{})
		wantCode(t, err, errs.InvalidArgument)
		_, err = s.Open("b", name)
		wantCode(t, err, errs.InvalidArgument)
		wantCode(t, remove(s, name), errs.InvalidArgument)
	}
	for _, bucket := range []string{"..", "", "../b", "b/%ob"} {
		_, err := s.Put(t.Context(), bucket, "o", strings.NewReader(""), PutOptions{})
		wantCode(t, err, errs.InvalidArgument)
	}
}

// Many writers, deleters, readers and listers of the same names, on which plain places
// conflict. A reader sees one whole version, and never an older one after a newer.
func TestConcurrent(t *testing.T) {
	s := newStore(t, 2)
	names := []string{"a", "a/b", "a/b/c", "d/e/f", "d/e", strings.Repeat("l", 300)}
	body := func(i int) string {
		c := string(rune('a' + i%26))
		return strings.Repeat(c, 1000*(1+i%7)) // one letter: a torn read shows
	}
	ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	var reads, writes atomic.Int64
	run := func(n int, f func(r *rand.Rand)) {
		for i := range n {
			wg.Add(1)
			go func() { // ends with ctx
				defer wg.Done()
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for ctx.Err() == nil {
					f(r)
				}
			}()
		}
	}
	// "a" is always there, while it moves between its places as a/b comes and goes.
	put(t, s, "a", body(0))
	run(3, func(r *rand.Rand) {
		i := r.IntN(1000)
		name := names[r.IntN(len(names))]
		b := body(i)
		sum := xxh3.HashString(b)
		if _, err := s.Put(context.Background(), "b", name, strings.NewReader(b), PutOptions{Size: int64(len(b)), Checksum: &sum}); err != nil {
			t.Errorf("put %.20q: %v", name, err)
		}
		writes.Add(1)
	})
	run(2, func(r *rand.Rand) {
		name := names[1+r.IntN(len(names)-1)] // all but "a"
		if err := remove(s, name); err != nil && !errs.IsCode(err, errs.NotFound) {
			t.Errorf("delete %.20q: %v", name, err)
		}
	})
	run(2, func(r *rand.Rand) {
		name := names[r.IntN(len(names))]
		before, _ := s.Stat("b", name)
		got, info, err := get(s, name)
		switch {
		case errs.IsCode(err, errs.NotFound) && name != "a":
			return
		case err != nil:
			t.Errorf("get %.20q: %v", name, err)
		case len(got) == 0 || strings.Count(got, got[:1]) != len(got) || int64(len(got)) != info.Size:
			t.Errorf("get %.20q: torn, %d bytes", name, len(got))
		case info.Version < before.Version:
			t.Errorf("get %.20q: version %d after %d", name, info.Version, before.Version)
		}
		reads.Add(1)
	})
	run(1, func(r *rand.Rand) {
		page, err := s.List(context.Background(), "b", ListOptions{})
		if err != nil {
			t.Errorf("list: %v", err)
		}
		last := ""
		for _, o := range page.Objects {
			if o.Name <= last {
				t.Errorf("list: %.20q after %.20q", o.Name, last)
			}
			last = o.Name
		}
		if len(page.Objects) == 0 || page.Objects[0].Name != "a" {
			t.Errorf("list: a is missing in %d objects", len(page.Objects))
		}
	})
	run(1, func(r *rand.Rand) {
		name := names[r.IntN(len(names))]
		if err := s.WriteIndex("b", name, []byte("index")); err != nil && !errs.IsCode(err, errs.NotFound) {
			t.Errorf("write index %.20q: %v", name, err)
		}
	})
	wg.Wait()
	t.Logf("%d reads, %d writes", reads.Load(), writes.Load())
	for _, name := range names {
		if err := remove(s, name); err != nil {
			wantCode(t, err, errs.NotFound)
		}
	}
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func BenchmarkPut10K(b *testing.B) {
	s := newStore(b, 1)
	body := strings.Repeat("x", 10<<10)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		if _, err := s.Put(context.Background(), "b", fmt.Sprintf("d%d/o%d", i%10, i), strings.NewReader(body), PutOptions{Size: int64(len(body))}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPut64M(b *testing.B) {
	s := newStore(b, 1)
	b.SetBytes(64 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Put(context.Background(), "b", "o", io.LimitReader(zeros{}, 64<<20), PutOptions{Size: 64 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}
