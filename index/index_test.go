package index

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

func TestLookupAndOrder(t *testing.T) {
	shard := newArchive(t).
		add(file("b/2"), "two").add(file("b0"), "sibling").add(file("a"), "first").
		add(file("b/1"), "one").add(file("b"), "both a file and a parent").bytes()
	x := mustBuild(t, shard)
	checkContents(t, x, shard, map[string]string{
		"a": "first", "b": "both a file and a parent", "b/1": "one", "b/2": "two", "b0": "sibling"})
	if got := memberNames(x.All()); !slices.Equal(got, []string{"b/2", "b0", "a", "b/1", "b"}) {
		t.Errorf("archive order %q", got)
	}
	if got := memberNames(x.Sorted()); !slices.Equal(got, []string{"a", "b", "b/1", "b/2", "b0"}) {
		t.Errorf("sorted %q", got)
	}
	for _, c := range []struct {
		name string
		want int
	}{{"", 0}, {"a", 0}, {"aa", 1}, {"b/", 2}, {"b/1", 2}, {"b/3", 4}, {"b0", 4}, {"c", 5}} {
		if got := x.Search(c.name); got != c.want {
			t.Errorf("Search(%q) = %d, want %d", c.name, got, c.want)
		}
	}
	for _, name := range []string{"", "A", "b/", "b/11", "zz", "./a", "/a"} {
		if m, ok := x.Lookup(name); ok {
			t.Errorf("Lookup(%q) found %v", name, m)
		}
	}
	if x.Version() != 7 || x.Format() != Tar || !x.Matches(7, int64(len(shard))) || x.Matches(8, int64(len(shard))) || x.Matches(7, 1) {
		t.Error("wrong version, format or size")
	}
	for m := range x.All() {
		if !m.ModTime.Equal(mtime) {
			t.Errorf("%s: modified %v, want %v", m.Name, m.ModTime, mtime)
		}
		break
	}
	for range x.Sorted() {
		break
	}
}

func TestFiveThousandMembers(t *testing.T) {
	const n = 5000
	r := rand.New(rand.NewPCG(1, 2))
	a, want := newArchive(t), map[string]string{}
	for i := range n {
		h := file(fmt.Sprintf("train/%03d/%06d.jpg", i%100, i))
		h.Format = []tar.Format{tar.FormatUSTAR, tar.FormatGNU, tar.FormatPAX}[i%3]
		want[h.Name] = randomBody(r, r.IntN(3000))
		a.add(h, want[h.Name])
	}
	shard := a.bytes()
	x := mustBuild(t, shard)
	checkContents(t, x, shard, want)
	total := 0
	for name := range want {
		total += len(name)
	}
	if got := x.Bytes(); got != 104+36*n+total {
		t.Errorf("the index takes %d bytes, want 36 a member beside the names", got)
	}
	name := "train/042/004242.jpg"
	if a := testing.AllocsPerRun(100, func() {
		if _, ok := x.Lookup(name); !ok {
			t.Fatal("lost")
		}
	}); a != 0 {
		t.Errorf("Lookup allocates %v times", a)
	}
}

func TestDuplicates(t *testing.T) {
	shard := newArchive(t).add(file("x"), "old").add(file("y"), "y").add(file("./x"), "newer").add(file("././/x"), "newest").bytes()
	x := mustBuild(t, shard)
	checkContents(t, x, shard, map[string]string{"x": "newest", "y": "y"})
	if got := memberNames(x.All()); !slices.Equal(got, []string{"y", "x"}) {
		t.Errorf("archive order %q", got)
	}
	if x.Skipped() != (Skipped{Shadowed: 2}) {
		t.Errorf("skipped %+v", x.Skipped())
	}
}

// Whatever archive/tar writes, the index leads to the bytes that a full
// extraction by archive/tar gives.
func TestAgainstExtraction(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		a := newArchive(t)
		for range r.IntN(80) {
			name := strings.Repeat("d/", r.IntN(150)) + fmt.Sprint(r.IntN(40))
			if r.IntN(3) == 0 {
				name = "./" + name
			}
			if r.IntN(8) == 0 {
				name = "../" + name
			}
			h := file(name)
			h.Typeflag = []byte{tar.TypeReg, tar.TypeReg, tar.TypeReg, tar.TypeDir, tar.TypeSymlink, tar.TypeLink, tar.TypeChar, tar.TypeFifo}[r.IntN(8)]
			h.Format = []tar.Format{tar.FormatUnknown, tar.FormatPAX, tar.FormatGNU}[r.IntN(3)]
			if h.Format == tar.FormatPAX {
				h.PAXRecords = map[string]string{"SHEAF.note": strings.Repeat("n", r.IntN(2000))}
			}
			body := ""
			if h.Typeflag == tar.TypeReg {
				body = randomBody(r, r.IntN(2500))
			} else {
				h.Linkname = "target"
			}
			a.add(h, body)
		}
		shard := a.bytes()
		want, members, entries := map[string]string{}, int64(0), int64(0)
		tr := tar.NewReader(bytes.NewReader(shard))
		for {
			h, err := tr.Next()
			if err == io.EOF {
				break
			} else if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
				t.Fatal(err)
			}
			entries++
			name := strings.TrimPrefix(h.Name, "./")
			if h.Typeflag != tar.TypeReg || names.CheckMember(name) != nil {
				continue
			}
			body, err := io.ReadAll(tr)
			if err != nil {
				t.Fatal(err)
			}
			want[name] = string(body)
			members++
		}
		x := mustBuild(t, shard)
		checkContents(t, x, shard, want)
		s := x.Skipped()
		if s.Total()+int64(x.Len()) != entries || s.Shadowed != members-int64(len(want)) {
			t.Errorf("seed %d: %d members and %+v of %d entries", seed, x.Len(), s, entries)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %q", seed, slices.Sorted(maps.Keys(want)))
		}
	}
}

func TestLimits(t *testing.T) {
	shard := newArchive(t).add(file("aaaa"), "1").add(file("bbbb"), "2").add(file("../c"), "3").bytes()
	for _, c := range []struct {
		lim  limits
		want string
	}{
		{limits{members: 2, names: 8}, ""},
		{limits{members: 1, names: 8}, "at byte 1536: more than 1 members"},
		{limits{members: 2, names: 7}, "at byte 1536: the names of all members have more than 7 bytes"},
	} {
		x, err := build(context.Background(), bytes.NewReader(shard), int64(len(shard)), 0, c.lim)
		if c.want != "" {
			wantBad(t, err, c.want)
		} else if err != nil || x.Len() != 2 {
			t.Error(err)
		}
	}
	if _, err := Build(context.Background(), bytes.NewReader(nil), -1, 0); !errs.IsCode(err, errs.InvalidArgument) {
		t.Error(err)
	}
}
