package backend

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf/internal/backend/s3test"
	"sheaf/internal/errs"
)

func quick() Options { return Options{Attempts: 3, MaxBackoff: 20 * time.Millisecond} }

func open(t *testing.T, url string, o Options) *Bucket {
	t.Helper()
	b, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func random(n int) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(p)
	return p
}

func put(t *testing.T, b *Bucket, name string, data []byte) Object {
	t.Helper()
	obj, err := b.Put(t.Context(), name, bytes.NewReader(data), PutOptions{Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func get(b *Bucket, t *testing.T, name string, off, length int64, version string) ([]byte, Object, error) {
	r, err := b.Get(t.Context(), name, off, length, version)
	if err != nil {
		return nil, Object{}, err
	}
	defer r.Close()
	p, err := io.ReadAll(r)
	return p, r.Object(), err
}

// Every kind of backend keeps the same promises.
func TestConformance(t *testing.T) {
	kinds := map[string]func(t *testing.T) *Bucket{
		"folder": func(t *testing.T) *Bucket { return open(t, "file://"+t.TempDir(), Options{AnyFolder: true}) },
		"s3": func(t *testing.T) *Bucket {
			return open(t, s3test.Start(t, "data").BackendURL("data"), quick())
		},
		"s3 prefix": func(t *testing.T) *Bucket {
			s := s3test.Start(t, "data")
			s.Put(t, "data", "beside", []byte("x"))
			s.Put(t, "data", "some/wherex", []byte("x"))
			return open(t, strings.Replace(s.BackendURL("data"), "data?", "data/some/where?", 1), quick())
		},
	}
	for kind, make := range kinds {
		t.Run(kind, func(t *testing.T) {
			b := make(t)
			if err := b.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Run("objects", func(t *testing.T) { conformObjects(t, b) })
			t.Run("versions", func(t *testing.T) { conformVersions(t, b) })
			t.Run("listing", func(t *testing.T) { conformListing(t, b) })
		})
	}
}

func conformObjects(t *testing.T, b *Bucket) {
	for _, size := range []int{0, 1, 100_000, 20 << 20} {
		name, data := fmt.Sprintf("objects/of %d %%ä+b", size), random(size)
		wrote := put(t, b, name, data)
		got, obj, err := get(b, t, name, 0, -1, "")
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes: %d come back, %v", size, len(got), err)
		}
		head, err := b.Head(t.Context(), name)
		if err != nil || head.Size != int64(size) || head.Version != obj.Version || head.Version != wrote.Version || head.Version == "" || head.ModTime.IsZero() {
			t.Errorf("%d bytes: head says %+v, get %+v, put %+v, %v", size, head, obj, wrote, err)
		}
		if size > 10 {
			got, obj, err = get(b, t, name, 7, 3, head.Version)
			if err != nil || !bytes.Equal(got, data[7:10]) || obj.Size != int64(size) {
				t.Errorf("%d bytes: the range is %x, want %x, of %d, %v", size, got, data[7:10], obj.Size, err)
			}
			if got, _, err = get(b, t, name, int64(size)-5, 500, ""); err != nil || !bytes.Equal(got, data[size-5:]) {
				t.Errorf("%d bytes: a range past the end: %d bytes, %v", size, len(got), err)
			}
			if _, _, err = get(b, t, name, int64(size)+5, 1, ""); !errs.IsCode(err, errs.RangeNotSatisfiable) {
				t.Errorf("%d bytes: a range behind the end: %v", size, err)
			}
		}
		if err := b.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), name); !errs.IsCode(err, errs.NotFound) {
			t.Errorf("deleting twice: %v", err)
		}
		if _, err := b.Head(t.Context(), name); !errs.IsCode(err, errs.NotFound) {
			t.Errorf("head of what isn't there: %v", err)
		}
		if _, _, err := get(b, t, name, 0, -1, ""); !errs.IsCode(err, errs.NotFound) {
			t.Errorf("get of what isn't there: %v", err)
		}
	}
	broken := errors.New("the source broke")
	_, err := b.Put(t.Context(), "half", io.MultiReader(bytes.NewReader(random(1000)), iotestErr{broken}), PutOptions{Size: -1})
	if !errors.Is(err, broken) {
		t.Errorf("a source that breaks gives %v", err)
	}
	if _, err := b.Put(t.Context(), "half", bytes.NewReader(random(1000)), PutOptions{Size: 1001}); err == nil {
		t.Error("a payload that is too short is taken")
	}
	if _, err := b.Head(t.Context(), "half"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("half an object is there: %v", err)
	}
	put(t, b, "one", []byte("1"))
	if _, err := b.Put(t.Context(), "one", strings.NewReader("2"), PutOptions{Size: 1, Absent: true}); !errs.IsCode(err, errs.AlreadyExists) {
		t.Errorf("only if absent: %v", err)
	}
	if got, _, err := get(b, t, "one", 0, -1, ""); string(got) != "1" {
		t.Errorf("the object that was there is %q now, %v", got, err)
	}
	if err := b.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
}

type iotestErr struct{ err error }

func (e iotestErr) Read([]byte) (int, error) { return 0, e.err }

func conformVersions(t *testing.T, b *Bucket) {
	first := put(t, b, "v", []byte("the first"))
	second := put(t, b, "v", []byte("the second"))
	if first.Version == second.Version {
		t.Fatalf("both contents have the version %q", first.Version)
	}
	if _, _, err := get(b, t, "v", 0, -1, first.Version); !errs.IsCode(err, errs.VersionMismatch) {
		t.Errorf("the version that was replaced: %v", err)
	}
	if got, _, err := get(b, t, "v", 4, -1, second.Version); string(got) != "second" {
		t.Errorf("%q, %v", got, err)
	}
	if err := b.Delete(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
}

// page reads all pages of a listing.
func pages(t *testing.T, b *Bucket, o ListOptions) (objects, prefixes []string) {
	t.Helper()
	for n := 0; ; n++ {
		p, err := b.List(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(p.Objects) + len(p.Prefixes); got > o.Limit && o.Limit > 0 {
			t.Fatalf("%d names in a page of %d", got, o.Limit)
		}
		for _, obj := range p.Objects {
			objects = append(objects, obj.Name)
		}
		prefixes = append(prefixes, p.Prefixes...)
		if p.Next == "" {
			return objects, prefixes
		}
		if p.Next <= o.After || n > 1000 {
			t.Fatalf("after %q comes %q", o.After, p.Next)
		}
		o.After = p.Next
	}
}

func conformListing(t *testing.T, b *Bucket) {
	// Names around "/" in the alphabet: a folder and files beside it aren't in the order
	// of their own names.
	all := []string{"a-b", "a/1", "a/2", "a/3/x", "a0", "b", "c/d/e", "c/d/f", "c!/x", "ä/ö"}
	for _, n := range all {
		put(t, b, n, []byte(n))
	}
	slices.Sort(all)
	for limit := 1; limit <= len(all)+1; limit++ {
		if got, _ := pages(t, b, ListOptions{Limit: limit}); !slices.Equal(got, all) {
			t.Errorf("pages of %d: %q", limit, got)
		}
		objects, prefixes := pages(t, b, ListOptions{Limit: limit, Delimiter: "/"})
		if !slices.Equal(objects, []string{"a-b", "a0", "b"}) || !slices.Equal(prefixes, []string{"a/", "c!/", "c/", "ä/"}) {
			t.Errorf("pages of %d with a delimiter: %q and %q", limit, objects, prefixes)
		}
		objects, prefixes = pages(t, b, ListOptions{Limit: limit, Delimiter: "/", Prefix: "a/"})
		if !slices.Equal(objects, []string{"a/1", "a/2"}) || !slices.Equal(prefixes, []string{"a/3/"}) {
			t.Errorf("pages of %d below a/: %q and %q", limit, objects, prefixes)
		}
	}
	if got, _ := pages(t, b, ListOptions{Prefix: "a", After: "a/2"}); !slices.Equal(got, []string{"a/3/x", "a0"}) {
		t.Errorf("after a/2: %q", got)
	}
	p, err := b.List(t.Context(), ListOptions{Prefix: "c/d/e"})
	if err != nil || len(p.Objects) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	head, err := b.Head(t.Context(), "c/d/e")
	if err != nil || p.Objects[0].Version != head.Version || p.Objects[0].Size != head.Size {
		t.Errorf("the listing says %+v, head %+v, %v", p.Objects[0], head, err)
	}
	if got, _ := pages(t, b, ListOptions{Prefix: "nothing/there/"}); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func TestAttributesReturn(t *testing.T) {
	b := open(t, s3test.Start(t, "data").BackendURL("data"), quick())
	want := map[string]string{"label": "cat é", "n": "1"}
	if _, err := b.Put(t.Context(), "o", strings.NewReader("x"), PutOptions{Size: 1, Attrs: want}); err != nil {
		t.Fatal(err)
	}
	_, obj, err := get(b, t, "o", 0, -1, "")
	if err != nil || fmt.Sprint(obj.Attrs) != fmt.Sprint(want) {
		t.Errorf("%v, %v", obj.Attrs, err)
	}
	head, err := b.Head(t.Context(), "o")
	if err != nil || fmt.Sprint(head.Attrs) != fmt.Sprint(want) {
		t.Errorf("%v, %v", head.Attrs, err)
	}
	f := open(t, "file://"+t.TempDir(), Options{AnyFolder: true})
	if _, err := f.Put(t.Context(), "o", strings.NewReader("x"), PutOptions{Size: 1, Attrs: want}); !errs.IsCode(err, errs.NotSupported) {
		t.Errorf("a folder takes attributes that it can't keep: %v", err)
	}
}

func TestThrottledServer(t *testing.T) {
	s := s3test.Start(t, "data")
	b := open(t, s.BackendURL("data"), quick())
	data := random(1000)
	put(t, b, "o", data)
	var left atomic.Int32
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if left.Add(-1) >= 0 {
			s3test.SlowDown(w)
			return
		}
		next.ServeHTTP(w, r)
	})
	left.Store(2)
	if got, _, err := get(b, t, "o", 0, -1, ""); err != nil || !bytes.Equal(got, data) {
		t.Errorf("after two refusals: %v", err)
	}
	left.Store(2)
	put(t, b, "p", data)
	left.Store(1 << 20)
	_, _, err := get(b, t, "o", 0, -1, "")
	if !errs.IsCode(err, errs.Unavailable) || RetryAfter(err) != 7*time.Second || !strings.Contains(err.Error(), "SlowDown") {
		t.Errorf("%v, retry after %v", err, RetryAfter(err))
	}
	if _, err := b.Put(t.Context(), "q", bytes.NewReader(data), PutOptions{Size: 1000}); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("put: %v", err)
	}
	if err := b.Check(t.Context()); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("list: %v", err)
	}
}

func TestBrokenConnections(t *testing.T) {
	s := s3test.Start(t, "data")
	b := open(t, s.BackendURL("data"), quick())
	data := random(3 << 20)
	put(t, b, "o", data)
	// Each answer breaks after 1 MiB: every byte comes, once.
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) { s3test.Cut(w, r, next, 1<<20) })
	got, _, err := get(b, t, "o", 0, -1, "")
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), err)
	}
	// It is replaced between the two: the halves of two objects aren't one.
	var cut atomic.Bool
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet && cut.CompareAndSwap(false, true) {
			defer s.Put(t, "data", "o", random(3<<20-1))
			s3test.Cut(w, r, next, 1<<20)
			return
		}
		next.ServeHTTP(w, r)
	})
	if _, _, err := get(b, t, "o", 0, -1, ""); !errs.IsCode(err, errs.VersionMismatch) {
		t.Errorf("replaced in the middle: %v", err)
	}
	// Nothing comes any more.
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) { panic(http.ErrAbortHandler) })
	if _, _, err := get(b, t, "o", 0, -1, ""); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("broken for good: %v", err)
	}
	s.Server.CloseClientConnections()
	s.Server.Close()
	if err := b.Check(t.Context()); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("a server that is gone: %v", err)
	}
}

func TestSilentServer(t *testing.T) {
	s := s3test.Start(t, "data")
	o := quick()
	o.Attempts, o.Idle = 2, 200*time.Millisecond
	b := open(t, s.BackendURL("data"), o)
	data := random(1 << 20)
	s.Put(t, "data", "o", data)
	forever := make(chan struct{})
	var asked atomic.Bool
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		n := 0
		if asked.CompareAndSwap(false, true) {
			n = 1000
		}
		s3test.Gate(w, r, next, n, forever)
	})
	t.Cleanup(func() { close(forever) })
	got, _, err := get(b, t, "o", 0, -1, "")
	if !errs.IsCode(err, errs.Timeout) || !bytes.HasPrefix(data, got) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// What goes wrong says so without giving the keys away.
func TestErrorsKeepSecrets(t *testing.T) {
	s := s3test.Start(t, "data")
	check := func(what string, err error, code errs.Code) {
		t.Helper()
		if !errs.IsCode(err, code) {
			t.Errorf("%s: %v, want %v", what, err, code)
		}
		for _, secret := range []string{s3test.Secret, "wrong-secret", "hunter2", s3test.Access} {
			if err != nil && strings.Contains(fmt.Sprintf("%v %+v", err, errs.Flatten(err)), secret) {
				t.Errorf("%s: the error shows %q: %v", what, secret, err)
			}
		}
	}
	b := open(t, s.BackendURL("nobucket"), quick())
	check("no such bucket", b.Check(t.Context()), errs.Unavailable)
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret")
	b = open(t, s.BackendURL("data"), quick())
	check("wrong key", b.Check(t.Context()), errs.PermissionDenied)
	_, err := b.Put(t.Context(), "o", strings.NewReader("x"), PutOptions{Size: 1})
	check("wrong key, put", err, errs.PermissionDenied)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	b = open(t, s.BackendURL("data"), quick())
	check("no keys", b.Check(t.Context()), errs.PermissionDenied)
	for _, url := range []string{
		"s3://user:hunter2@data", "s3://data?endpoint=https://user:hunter2@host", "s3://data?secret_access_key=hunter2", "s3://data?endpoint=https://h/?k=hunter2",
		"s3://data?path_style=hunter2", "s3://da ta:hunter2", "file://user:hunter2@/x", "https://hunter2@x/y",
	} {
		_, err := Open(t.Context(), url, quick())
		check(url, err, errs.InvalidArgument)
	}
	t.Setenv("AWS_PROFILE", "")
	file := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(file, []byte("[team]\naws_access_key_id = "+s3test.Access+"\naws_secret_access_key = "+s3test.Secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", file)
	check("a profile", open(t, s.BackendURL("data")+"&profile=team", quick()).Check(t.Context()), errs.OK)
	_, err = Open(t.Context(), s.BackendURL("data")+"&profile=other", quick())
	check("no such profile", err, errs.InvalidArgument)
}
