package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStore opens a store with the bucket "b" on n new mountpaths.
func newStore(t testing.TB, n int) *Store {
	t.Helper()
	var dirs []string
	for i := range n {
		dirs = append(dirs, filepath.Join(t.TempDir(), fmt.Sprint("mp", i)))
	}
	s := reopen(t, dirs...)
	must(t, s.CreateBucket("b"))
	return s
}

func reopen(t testing.TB, dirs ...string) *Store {
	t.Helper()
	s, err := Open(Options{Dirs: dirs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *Store) dirs() (all []string) {
	for _, m := range s.mounts {
		all = append(all, m.dir)
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCode(t testing.TB, err error, want errs.Code) {
	t.Helper()
	if !errs.IsCode(err, want) || err == nil {
		t.Fatalf("error %v, want the code %q", err, want)
	}
	var e *errs.Error
	if !errors.As(err, &e) || e.Op == "" {
		t.Fatalf("error %#v doesn't say the operation", err)
	}
}

func put(t testing.TB, s *Store, name, body string) Info {
	t.Helper()
	info, err := s.Put(t.Context(), "b", name, strings.NewReader(body), PutOptions{Size: int64(len(body))})
	if err != nil {
		t.Fatalf("put %q: %v", name, err)
	}
	return info
}

func remove(s *Store, name string) error {
	_, err := s.Delete("b", name, 0, Condition{})
	return err
}

func del(t testing.TB, s *Store, name string) {
	t.Helper()
	must(t, remove(s, name))
}

func same(a, b Info) bool { return reflect.DeepEqual(a, b) }

func get(s *Store, name string) (string, Info, error) {
	o, err := s.Open("b", name)
	if err != nil {
		return "", Info{}, err
	}
	defer o.Close()
	b, err := io.ReadAll(o.VerifyReader())
	return string(b), o.Info(), err
}

func wantBody(t testing.TB, s *Store, name, body string) {
	t.Helper()
	got, info, err := get(s, name)
	if err != nil || got != body || info.Name != name || info.Size != int64(len(body)) || info.Checksum != xxh3.HashString(body) {
		t.Fatalf("get %q: %.50q, %+v, %v; want %.50q", name, got, info, err, body)
	}
}

// files lists what is below the mountpaths, except the identity, the layout and the catalog.
func files(t testing.TB, s *Store) (all []string) {
	t.Helper()
	for _, m := range s.mounts {
		must(t, filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), catalogDir) {
				return fs.SkipDir
			}
			if err == nil && !d.IsDir() && d.Name() != identityFile && d.Name() != layoutFile && d.Name() != cleanMark {
				all = append(all, strings.TrimPrefix(path, m.dir))
			}
			return err
		}))
	}
	return all
}

func wantNoWork(t testing.TB, s *Store) {
	t.Helper()
	for _, f := range files(t, s) {
		if strings.Contains(f, contentWork) {
			t.Errorf("%s is left", f)
		}
	}
}

// diskPath is where the object is; the test fails if it isn't anywhere.
func diskPath(t testing.TB, s *Store, name string) string {
	t.Helper()
	k, err := s.buckets["b"].copies(name)
	if err != nil || len(k.at) == 0 {
		t.Fatalf("%q isn't on disk: %v", name, err)
	}
	return k.at[0].path
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{1, 3} {
		s := newStore(t, n)
		bodies := []string{"", "x", strings.Repeat("0123456789", 1000), strings.Repeat("z", 2*bufferSize), strings.Repeat("y", 3*bufferSize+7)}
		var last uint64
		for i, body := range bodies {
			for _, size := range []int64{-1, int64(len(body))} {
				sum := xxh3.HashString(body)
				info, err := s.Put(t.Context(), "b", "o", strings.NewReader(body), PutOptions{Size: size, Checksum: &sum})
				must(t, err)
				if size == -1 && info.Version <= last {
					t.Errorf("version %d after %d", info.Version, last)
				} else if size != -1 && info.Version != last {
					t.Errorf("body %d was written again though it is there", i)
				}
				last = info.Version
				wantBody(t, s, "o", body)
				st, err := s.Stat("b", "o")
				if err != nil || !same(st, info) {
					t.Errorf("stat %+v, %v; put said %+v", st, err, info)
				}
			}
		}
		o, err := s.Open("b", "o")
		must(t, err)
		body := bodies[len(bodies)-1]
		part := make([]byte, 10)
		if n, err := o.ReadAt(part, o.Size()-4); n != 4 || err != io.EOF {
			t.Errorf("read across the end: %d, %v", n, err)
		}
		del(t, s, "o")
		var out bytes.Buffer
		if n, err := o.WriteTo(&out); err != nil || n != int64(len(body)) || out.String() != body {
			t.Errorf("after the delete the open object gives %d bytes, %v", n, err)
		}
		must(t, o.Verify(t.Context()))
		if st, err := o.File().Stat(); err != nil || st.Size() != o.Size() {
			t.Errorf("File: %v", err)
		}
		must(t, o.Close())
		_, err = o.ReadAt(part, 0)
		if _, ok := err.(*errs.Error); !ok {
			t.Errorf("read after close: %v", err)
		}
		_, err = s.Open("b", "o")
		wantCode(t, err, errs.NotFound)
		wantCode(t, remove(s, "o"), errs.NotFound)
		if info := put(t, s, "o", "again"); info.Version <= last {
			t.Errorf("version %d after the delete of %d", info.Version, last)
		}
		_, err = s.Stat("nope", "o")
		wantCode(t, err, errs.BucketNotFound)
		_, err = s.Put(t.Context(), "nope", "o", strings.NewReader(""), PutOptions{})
		wantCode(t, err, errs.BucketNotFound)
		wantNoWork(t, s)
	}
}

func TestSurvivesReopen(t *testing.T) {
	s := newStore(t, 2)
	long := strings.Repeat("n", 600)
	put(t, s, "a", "1")
	put(t, s, "a/b", "2")
	put(t, s, long, "3")
	dirs := s.dirs()
	must(t, s.Close())
	must(t, s.Close())
	_, err := s.Stat("b", "a")
	wantCode(t, err, errs.Unavailable)

	// The folders in another order and at another place.
	moved := filepath.Join(t.TempDir(), "elsewhere")
	must(t, os.Rename(dirs[0], moved))
	s = reopen(t, dirs[1], moved)
	for name, body := range map[string]string{"a": "1", "a/b": "2", long: "3"} {
		wantBody(t, s, name, body)
	}
}

// Objects stay where they were when a mountpath is added; the next write moves them.
func TestMountpathAdded(t *testing.T) {
	s := newStore(t, 1)
	for i := range 30 {
		put(t, s, fmt.Sprint("o", i), "old")
	}
	dirs := append(s.dirs(), t.TempDir())
	must(t, s.Close())
	s = reopen(t, dirs...)
	before := map[string]uint64{}
	page, err := s.List(t.Context(), "b", ListOptions{})
	must(t, err)
	for _, o := range page.Objects {
		before[o.Name] = o.Version
		wantBody(t, s, o.Name, "old")
	}
	if len(before) != 30 {
		t.Fatalf("%d objects are listed", len(before))
	}
	for name, v := range before {
		if info := put(t, s, name, "new"); info.Version <= v {
			t.Errorf("%s: version %d after %d", name, info.Version, v)
		}
		wantBody(t, s, name, "new")
	}
	if got := files(t, s); len(got) != 30 {
		t.Errorf("%d files for 30 objects", len(got))
	}
	moved := 0
	for name := range before {
		if strings.HasPrefix(diskPath(t, s, name), dirs[1]) {
			moved++
		}
		del(t, s, name)
	}
	if moved < 5 || moved > 25 {
		t.Errorf("%d of 30 objects are on the new mountpath", moved)
	}
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	d := t.TempDir()
	sub := filepath.Join(d, "sub")
	must(t, os.Mkdir(sub, 0o755))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(sub, link))
	for _, c := range []struct {
		name string
		dirs []string
		say  []string
	}{
		{"none", nil, []string{"no folder"}},
		{"several faults", []string{"", "/" + strings.Repeat("x", maxDir)}, []string{"empty", "1025"}},
		{"twice", []string{sub, sub + "/."}, []string{"twice"}},
		{"inside", []string{sub, d}, []string{"lies in"}},
		{"inside, not there yet", []string{sub, sub + "/new/er"}, []string{"lies in"}},
		{"twice by a link", []string{sub, link}, []string{"twice"}},
		{"inside by a link", []string{d, link + "/new"}, []string{"lies in"}},
	} {
		_, err := Open(Options{Dirs: c.dirs})
		wantCode(t, err, errs.InvalidArgument)
		for _, say := range c.say {
			if !strings.Contains(err.Error(), say) {
				t.Errorf("%s: %v doesn't say %q", c.name, err, say)
			}
		}
	}
	if e, _ := os.ReadDir(sub); len(e) != 0 {
		t.Errorf("a refused Open left %v", e)
	}

	a, b := filepath.Join(d, "a"), filepath.Join(d, "b")
	s := reopen(t, a)
	_, err := Open(Options{Dirs: []string{b, a}})
	wantCode(t, err, errs.Busy)
	must(t, s.Close())
	must(t, reopen(t, b, a).Close()) // the refused Open let go of b

	id, err := os.ReadFile(filepath.Join(a, identityFile))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(b, identityFile), id, 0o644))
	_, err = Open(Options{Dirs: []string{a, b}})
	wantCode(t, err, errs.InvalidArgument)
	must(t, os.WriteFile(filepath.Join(b, identityFile), []byte("not an identity"), 0o644))
	_, err = Open(Options{Dirs: []string{b}})
	wantCode(t, err, errs.InvalidArgument)
}

func mount(t *testing.T, fstype, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount(fstype, dir, fstype, 0, options); err != nil {
		t.Fatalf("this test mounts a %s and needs root: %v", fstype, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
			unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

func TestNoAttributes(t *testing.T) {
	dir := mount(t, "ramfs", "")
	_, err := Open(Options{Dirs: []string{dir}})
	wantCode(t, err, errs.NotSupported)
	for _, say := range []string{dir, "ramfs", "attributes"} {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("%v doesn't say %q", err, say)
		}
	}
}

func TestDiskFull(t *testing.T) {
	dir := mount(t, "tmpfs", "size=1m")
	s := reopen(t, dir)
	must(t, s.CreateBucket("b"))
	old := put(t, s, "o", strings.Repeat("o", 300<<10))
	full := func(size int64, known bool) {
		t.Helper()
		announced := int64(-1)
		if known {
			announced = size
		}
		_, err := s.Put(t.Context(), "b", "o", io.LimitReader(zeros{}, size), PutOptions{Size: announced})
		wantCode(t, err, errs.NoSpace)
		if !strings.Contains(err.Error(), "b/o") {
			t.Errorf("%v doesn't name the object", err)
		}
		wantNoWork(t, s)
		if st, err := s.Stat("b", "o"); err != nil || !same(st, old) {
			t.Fatalf("the old object became %+v, %v", st, err)
		}
		wantBody(t, s, "o", strings.Repeat("o", 300<<10))
	}
	full(2<<20, true)
	full(900<<10, true)
	full(2<<20, false)
	full(900<<10, false)
	_, err := s.Put(t.Context(), "b", "d/e/p", io.LimitReader(zeros{}, 2<<20), PutOptions{Size: -1})
	wantCode(t, err, errs.NoSpace)
	before, err := s.Usage()
	must(t, err)
	del(t, s, "o")
	after, err := s.Usage()
	must(t, err)
	if after[0].Free < before[0].Free+300<<10 || after[0].Total != 1<<20 || after[0].Dir != dir {
		t.Errorf("before the delete %+v, after %+v", before, after)
	}
	put(t, s, "o", strings.Repeat("n", 900<<10))
	must(t, s.Close())
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestBuckets(t *testing.T) {
	s := newStore(t, 2)
	ctx := context.Background()
	for _, name := range []string{"", ".", "..", "a/b", ".trash", "@sheaf", "%trash"} {
		wantCode(t, s.CreateBucket(name), errs.InvalidArgument)
		wantCode(t, s.DestroyBucket(name), errs.InvalidArgument)
	}
	must(t, s.CreateBucket("b"))
	some, err := s.HasObjects()
	if some || err != nil {
		t.Errorf("HasObjects of an empty store: %v, %v", some, err)
	}
	for _, name := range []string{"x/y/z", strings.Repeat("l", 300)} {
		put(t, s, name, "1")
		if empty, err := s.Empty("b"); empty || err != nil {
			t.Errorf("with %.10q: empty %v, %v", name, empty, err)
		}
		if some, err := s.HasObjects(); !some || err != nil {
			t.Errorf("with %.10q: objects %v, %v", name, some, err)
		}
		del(t, s, name)
		if empty, err := s.Empty("b"); !empty || err != nil {
			t.Errorf("without %.10q: empty %v, %v", name, empty, err)
		}
	}
	put(t, s, "o", "kept open")
	o, err := s.Open("b", "o")
	must(t, err)
	defer o.Close()
	must(t, s.DestroyBucket("b"))
	wantCode(t, s.DestroyBucket("b"), errs.BucketNotFound)
	must(t, o.Verify(ctx))
	_, err = s.Stat("b", "o")
	wantCode(t, err, errs.BucketNotFound)
	_, err = s.List(ctx, "b", ListOptions{})
	wantCode(t, err, errs.BucketNotFound)
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	must(t, s.CreateBucket("b"))
	if empty, err := s.Empty("b"); !empty || err != nil {
		t.Errorf("made anew: empty %v, %v", empty, err)
	}
}

// A Put that is under way when its bucket is destroyed doesn't bring it back.
func TestDestroyDuringPut(t *testing.T) {
	s := newStore(t, 1)
	r, w := io.Pipe()
	done := make(chan error)
	go func() {
		_, err := s.Put(context.Background(), "b", "d/o", r, PutOptions{Size: -1})
		done <- err
	}()
	w.Write([]byte("half"))
	must(t, s.DestroyBucket("b"))
	must(t, s.CreateBucket("b"))
	w.Close()
	wantCode(t, <-done, errs.BucketNotFound)
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// What a crash leaves is gone after Open.
func TestLeftovers(t *testing.T) {
	s := newStore(t, 2)
	must(t, s.CreateBucket("half"))
	put(t, s, "o", "1")
	for _, m := range s.mounts {
		must(t, os.WriteFile(bucketDir(m.dir, "sheaf", "b")+"/%wk/w7", []byte("x"), 0o644))
		must(t, os.MkdirAll(m.dir+"/%trash/b1/%ob/d", 0o755))
		must(t, os.WriteFile(m.dir+"/%trash/b1/%ob/d/f", []byte("x"), 0o644))
	}
	// A destruction that a crash stopped between two mountpaths.
	must(t, os.WriteFile(s.mounts[0].dir+"/%trash/"+tombstone+"half", nil, 0o644))
	must(t, os.Rename(bucketDir(s.mounts[0].dir, "sheaf", "half"), s.mounts[0].dir+"/%trash/b2"))
	// A creation that a crash stopped.
	must(t, os.Mkdir(bucketDir(s.mounts[1].dir, "sheaf", "new"), 0o755))
	dirs := s.dirs()
	must(t, s.Close())
	s = reopen(t, dirs...)
	if got := files(t, s); len(got) != 1 {
		t.Errorf("left: %q", got)
	}
	wantBody(t, s, "o", "1")
	_, err := s.Empty("half")
	wantCode(t, err, errs.BucketNotFound)
	_, err = s.Put(t.Context(), "new", "o", strings.NewReader(""), PutOptions{})
	must(t, err)
}

// A destruction that fails halfway is finished at the next start, or before the bucket
// is made again.
func TestDestroyFails(t *testing.T) {
	s := newStore(t, 2)
	fails := func(bucket string) {
		t.Helper()
		real := s.disk.syncDir
		s.disk.syncDir = func(dir string) error {
			if strings.HasSuffix(dir, "@sheaf") {
				return errors.New("the disk says no")
			}
			return real(dir)
		}
		wantCode(t, s.DestroyBucket(bucket), errs.Internal)
		s.disk.syncDir = real
		_, err := s.Empty(bucket)
		wantCode(t, err, errs.BucketNotFound)
	}
	put(t, s, "o", "1")
	fails("b")
	must(t, s.CreateBucket("half"))
	fails("half")
	must(t, s.CreateBucket("other"))
	must(t, s.DestroyBucket("other"))
	must(t, s.CreateBucket("b"))
	put(t, s, "p", "2")
	dirs := s.dirs()
	must(t, s.Close())
	s = reopen(t, dirs...)
	wantBody(t, s, "p", "2")
	_, err := s.Stat("b", "o")
	wantCode(t, err, errs.NotFound)
	_, err = s.Empty("half")
	wantCode(t, err, errs.BucketNotFound)
	must(t, s.Close())
	s = reopen(t, dirs[1], dirs[0])
	wantBody(t, s, "p", "2")
}
