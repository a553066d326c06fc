package batching

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
)

func TestEntryRange(t *testing.T) {
	for _, c := range []struct{ start, length, size, off, n int64 }{
		{0, 0, 10, 0, 10}, {0, 0, 0, 0, 0}, {0, -1, 10, 0, 10}, {0, -1, 0, 0, 0}, {4, -1, 10, 4, 6}, {10, -1, 10, 10, 0},
		{0, 10, 10, 0, 10}, {9, 1, 10, 9, 1}, {0, 1, 10, 0, 1}, {1<<62 - 1, 1, 1 << 62, 1<<62 - 1, 1},
	} {
		e := Entry{Start: c.start, Length: c.length}
		if off, n, err := e.Range(c.size); err != nil || off != c.off || n != c.n {
			t.Errorf("start %d length %d of %d: %d from %d, %v", c.start, c.length, c.size, n, off, err)
		}
	}
	for _, c := range []struct{ start, length, size int64 }{{0, 11, 10}, {10, 1, 10}, {11, -1, 10}, {5, 6, 10}, {0, 1, 0}, {1 << 62, 1 << 62, 10}, {1<<63 - 1, 1, 1<<63 - 1}} {
		e := Entry{Bucket: "b", ObjName: "s.tar", ArchPath: "m", Start: c.start, Length: c.length}
		_, _, err := e.Range(c.size)
		refuses(t, "a range", err, errs.RangeNotSatisfiable, "b/s.tar@/m", "of")
	}
}

func TestEntryKind(t *testing.T) {
	for want, e := range map[string]Entry{"object": {}, "member": {ArchPath: "m"}, "range": {ArchPath: "m", Length: 1}} {
		if got := e.Kind(); got != want {
			t.Errorf("%+v is of kind %s", e, got)
		}
	}
	if e := (Entry{Length: -1}); e.Kind() != "range" {
		t.Errorf("to the end is of kind %s", e.Kind())
	}
}

func TestRequestDefaults(t *testing.T) {
	no := false
	r := Request{In: make([]Entry, 9)}
	if !r.Streaming() || r.Format() != FormatFrames || r.SoftErrorLimit() != DefaultSoftError {
		t.Errorf("%v %s %d", r.Streaming(), r.Format(), r.SoftErrorLimit())
	}
	r = Request{In: make([]Entry, 9), Strm: &no, Mime: FormatTar, MaxSoftErrors: -1}
	if r.Streaming() || r.Format() != FormatTar || r.SoftErrorLimit() != 9 {
		t.Errorf("%v %s %d", r.Streaming(), r.Format(), r.SoftErrorLimit())
	}
	r = Request{OutputFormat: FormatTar, MaxSoftErrors: 3}
	if r.Format() != FormatTar || r.SoftErrorLimit() != 3 {
		t.Errorf("%s %d", r.Format(), r.SoftErrorLimit())
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{`"90s"`: 90 * time.Second, `"1h2m"`: 62 * time.Minute, `0`: 0, `"0s"`: 0, `1.5`: 1500 * time.Millisecond, `2e2`: 200 * time.Second} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err != nil || time.Duration(d) != want {
			t.Errorf("%s is %v, %v", text, time.Duration(d), err)
		}
	}
	for _, text := range []string{`""`, `"x"`, `"1"`, `-0.5`, `86401`, `1e999`, `{}`, `true`} {
		var d Duration
		if err := json.Unmarshal([]byte(text), &d); err == nil || !strings.Contains(err.Error(), "duration") {
			t.Errorf("%s is %v, %v", text, time.Duration(d), err)
		}
	}
	if b, err := json.Marshal(Duration(90 * time.Second)); err != nil || string(b) != `"1m30s"` {
		t.Errorf("%s %v", b, err)
	}
}

func TestCheckID(t *testing.T) {
	for _, id := range []string{"a", "A.9_-", "...", strings.Repeat("x", MaxID)} {
		if err := CheckID(id); err != nil {
			t.Error(err)
		}
	}
	for _, id := range []string{"", ".", "..", "a/b", "a b", "ü", "a\x00", strings.Repeat("x", MaxID+1)} {
		if CheckID(id) == nil {
			t.Errorf("id %q is taken", id)
		}
	}
	for range 100 {
		if err := CheckID(NewID()); err != nil {
			t.Error(err)
		}
	}
}

func TestArchiveName(t *testing.T) {
	object, member := Entry{Bucket: "b", ObjName: "d/o"}, Entry{Bucket: "b", ObjName: "d/s.tar", ArchPath: "m/n"}
	for _, c := range []struct {
		e             Entry
		onob, missing bool
		want          string
	}{
		{object, false, false, "b/d/o"}, {object, true, false, "d/o"}, {object, false, true, "__404__/b/d/o"}, {object, true, true, "__404__/d/o"},
		{member, false, false, "b/d/s.tar/m/n"}, {member, true, false, "d/s.tar/m/n"}, {member, false, true, "__404__/b/d/s.tar/m/n"},
		{Entry{Bucket: "b", ObjName: "/abs"}, false, false, "b/abs"}, {Entry{Bucket: "b", ObjName: "//abs"}, true, false, "abs"}, {Entry{Bucket: "b", ObjName: "d/"}, false, false, "b/d/"},
	} {
		if got := ArchiveName(&c.e, c.onob, c.missing); got != c.want {
			t.Errorf("%+v, onob %v, missing %v: %q, want %q", c.e, c.onob, c.missing, got, c.want)
		}
	}
}

func TestTarHeader(t *testing.T) {
	long := strings.Repeat("d/", 500) + "o"
	for _, c := range []struct {
		name   string
		size   int64
		want   string // as a reader sees it
		blocks int    // 0: any number
	}{
		{"o", 0, "o", 1},
		{"b/o", 1, "b/o", 1},
		{strings.Repeat("x", 100), 512, strings.Repeat("x", 100), 1},
		{strings.Repeat("x", 101), 5, strings.Repeat("x", 101), 0},
		{strings.Repeat("p", 150) + "/" + strings.Repeat("n", 100), 5, strings.Repeat("p", 150) + "/" + strings.Repeat("n", 100), 1},
		{long, 7, long, 0},
		{strings.Repeat("m", 5000), 7, strings.Repeat("m", 5000), 0},
		{"ünïcödé/日本", 3, "ünïcödé/日本", 0},
		{"b/dir/", 4, "b/dir%2F", 1},
		{"b/dir//", 4, "b/dir%2F", 1},
		{" spaces \t", 4, " spaces \t", 1},
		{"big", 1<<33 - 1, "big", 1},
		{"bigger", 1 << 33, "bigger", 0},
		{"biggest", 1<<63 - 1, "biggest", 0},
	} {
		h, err := TarHeader(c.name, c.size)
		if err != nil {
			t.Errorf("%.60q of %d bytes: %v", c.name, c.size, err)
			continue
		}
		if len(h)%tarBlock != 0 || c.blocks != 0 && len(h) != c.blocks*tarBlock {
			t.Errorf("%.60q of %d bytes: a header of %d bytes", c.name, c.size, len(h))
		}
		if again, err := TarHeader(c.name, c.size); err != nil || !bytes.Equal(h, again) {
			t.Errorf("%.60q of %d bytes: the second header is another one", c.name, c.size)
		}
		got, err := tar.NewReader(bytes.NewReader(h)).Next()
		if err != nil {
			t.Errorf("%.60q of %d bytes can't be read: %v", c.name, c.size, err)
			continue
		}
		if got.Name != c.want || got.Size != c.size || got.Typeflag != tar.TypeReg || got.Mode != 0o644 || got.Uid != 0 || got.Gid != 0 || got.Uname != "" || !got.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%.60q of %d bytes reads as %+v", c.name, c.size, got)
		}
	}
	for _, size := range []int64{-1, -1 << 63} {
		_, err := TarHeader("o", size)
		refuses(t, "a negative size", err, errs.InvalidArgument, `"o"`)
	}
	_, err := TarHeader("a\x00b", 1)
	refuses(t, "NUL in a name", err, errs.InvalidArgument)
}

func TestTarPadding(t *testing.T) {
	for size, want := range map[int64]int64{0: 0, 1: 511, 511: 1, 512: 0, 513: 511, 1 << 40: 0, 1<<63 - 1: 1} {
		if got := TarPadding(size); got != want {
			t.Errorf("%d bytes of padding after %d, want %d", got, size, want)
		}
	}
}

// One list of items is always the same archive, which any reader of archives takes.
func TestWriteTar(t *testing.T) {
	entries := []Entry{{Bucket: "b", ObjName: "o"}, {Bucket: "b", ObjName: "s.tar", ArchPath: strings.Repeat("n", 300)}, {Bucket: "b", ObjName: "gone"}, {Bucket: "b", ObjName: "empty"}}
	data := []string{"hello", strings.Repeat("z", 513), "", ""}
	archive := func(onob bool) []byte {
		i := -1
		var out bytes.Buffer
		must(t, WriteTar(t.Context(), &out, onob, func() (*Item, error) {
			if i++; i == len(entries) {
				return nil, io.EOF
			}
			it := NewItem(i, &entries[i], int64(len(data[i])), 0, strings.NewReader(data[i]))
			if i == 2 {
				it.Err = errs.New(errs.NotFound, "", "gone")
			}
			return it, nil
		}))
		return out.Bytes()
	}
	whole := archive(false)
	if !bytes.Equal(whole, archive(false)) || bytes.Equal(whole, archive(true)) {
		t.Error("the archive isn't reproducible, or onob changes nothing")
	}
	r := tar.NewReader(bytes.NewReader(whole))
	for i, want := range []string{"b/o", "b/s.tar/" + strings.Repeat("n", 300), "__404__/b/gone", "b/empty"} {
		h, err := r.Next()
		must(t, err)
		if b, err := io.ReadAll(r); err != nil || h.Name != want || string(b) != data[i] {
			t.Errorf("entry %d: %s with %d bytes, %v", i, h.Name, len(b), err)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Error(err)
	}
	if !bytes.HasSuffix(whole, zeros[:]) {
		t.Error("the archive doesn't end with two zero blocks")
	}
	broken := errors.New("broken")
	if err := WriteTar(t.Context(), io.Discard, false, func() (*Item, error) { return nil, broken }); err != broken {
		t.Errorf("the source's error came as %v", err)
	}
}
