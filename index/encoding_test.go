package index

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
)

var update = flag.Bool("update", false, "write the goldens anew")

func marshal(t testing.TB, x *Index) []byte {
	t.Helper()
	b, err := x.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func reseal(b []byte) []byte {
	if len(b) >= sumSize {
		binary.LittleEndian.PutUint64(b[len(b)-sumSize:], xxh3.Hash(b[:len(b)-sumSize]))
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, shard := range [][]byte{
		nil,
		newArchive(t).add(file("only"), "one").bytes(),
		mixed(t).bytes(),
		newArchive(t).add(file("z"), "1").add(file("../z"), "").add(file("z"), "2").add(file("a"), "3").bytes(),
	} {
		x := mustBuild(t, shard)
		b := marshal(t, x)
		y, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		if *x != *y || x.Skipped() != y.Skipped() || y.Version() != 7 || !bytes.Equal(marshal(t, y), b) {
			t.Error("another index came back")
		}
		checkInvariants(t, y, int64(len(shard)))
		if !slices.Equal(memberNames(x.All()), memberNames(y.All())) {
			t.Error("another order came back")
		}
		// The index stands by itself.
		clear(b)
		checkInvariants(t, y, int64(len(shard)))
		if c, err := y.AppendBinary([]byte("before")); err != nil || string(c) != "before"+string(marshal(t, x)) {
			t.Error("AppendBinary gives other bytes", err)
		}
	}
}

// The kept form is on users' disks: a change needs a new layout number.
func TestGolden(t *testing.T) {
	path := filepath.Join("testdata", "index.golden")
	x := mustBuild(t, newArchive(t).add(file("b.jpg"), "bee").add(file("a.cls"), "1").add(file("/abs"), "no").add(file("b.jpg"), "B").bytes())
	got := hex.Dump(marshal(t, x))
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func wantUnusable(t testing.TB, err error, text string) {
	t.Helper()
	if !errors.Is(err, ErrRebuild) || !errs.IsCode(err, errs.BadShard) || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v, want one to rebuild for, with %q", err, text)
	}
}

func TestParseDamaged(t *testing.T) {
	good := marshal(t, mustBuild(t, mixed(t).bytes()))
	for cut := range good {
		_, err := Parse(good[:cut])
		wantUnusable(t, err, "")
		_, err = Parse(reseal(bytes.Clone(good[:cut])))
		wantUnusable(t, err, "")
	}
	if _, err := Parse(append(bytes.Clone(good), 0)); !errors.Is(err, ErrRebuild) {
		t.Errorf("a byte too many: %v", err)
	}
	for at := range good {
		for _, bit := range []byte{1, 0x80, 0xff} {
			b := bytes.Clone(good)
			b[at] ^= bit
			_, err := Parse(b)
			wantUnusable(t, err, "")
		}
	}
	// With a right checksum some changes give another good index, never a bad one.
	r := rand.New(rand.NewPCG(4, 4))
	for range 10_000 {
		b := bytes.Clone(good)
		for range 1 + r.IntN(3) {
			b[r.IntN(len(b))] ^= byte(1 + r.IntN(255))
		}
		if x, err := Parse(reseal(b)); err != nil {
			wantUnusable(t, err, "")
		} else {
			checkParsed(t, x, b)
		}
	}
}

func checkParsed(t testing.TB, x *Index, b []byte) {
	t.Helper()
	if !bytes.Equal(marshal(t, x), b) {
		t.Fatal("an index isn't written as it was read")
	}
	last, seen := "", 0
	for m := range x.Sorted() {
		if seen > 0 && m.Name <= last || m.Offset < 0 || m.Size < 0 || m.Size > x.ShardSize()-m.Offset {
			t.Fatalf("%v after %q in a shard of %d", m, last, x.ShardSize())
		}
		if got, ok := x.Lookup(m.Name); !ok || got != m {
			t.Fatalf("Lookup(%q) = %v %v", m.Name, got, ok)
		}
		last = m.Name
		seen++
	}
	var offset int64
	for m := range x.All() {
		if m.Offset < offset {
			t.Fatalf("%v begins before %d", m, offset)
		}
		offset = m.Offset
		seen--
	}
	if seen != 0 || x.Skipped().Total() < 0 {
		t.Fatalf("%d members more in one order than in the other", seen)
	}
}

func TestParseHostile(t *testing.T) {
	// Members a, b, c at rows 0, 1, 2; the shard has them as c, a, b.
	x := mustBuild(t, newArchive(t).add(file("c"), "3").add(file("a"), "1").add(file("b"), "2").bytes())
	row := func(i, field int) int { return x.row(i) + field }
	order := func(i int) int { return x.order + 4*i }
	type edit struct {
		at    int
		width int
		value uint64
	}
	big := ^uint64(0)
	for _, c := range []struct {
		name  string
		edits []edit
		want  string
	}{
		{"unchanged", nil, ""},
		{"magic", []edit{{0, 4, 0}}, "not an index"},
		{"layout", []edit{{atLayout, 4, 2}}, "layout 2, this build reads 1"},
		{"format", []edit{{atFormat, 4, 9}}, "unknown shard format 9"},
		{"any version", []edit{{atVersion, 8, big}}, ""},
		{"negative shard", []edit{{atShardSize, 8, big}}, "a shard of -1 bytes"},
		{"shard too small", []edit{{atShardSize, 8, 1024}}, "aren't in a shard of 1024"},
		{"2^32-1 members", []edit{{atMembers, 4, big}}, "over the limit"},
		{"2^32-1 bytes of names", []edit{{atNames, 4, big}}, "over the limit"},
		{"a member more", []edit{{atMembers, 4, 4}}, "bytes where its header says"},
		{"a member less, names to match", []edit{{atMembers, 4, 2}, {atNames, 4, 39}}, "row 1"},
		{"skipped", []edit{{atSkipped + 8, 8, big}}, "more entries left out"},
		{"skipped in sum", []edit{{atShardSize, 8, big >> 1}, {atSkipped, 8, big >> 1}, {atSkipped + 8, 8, 1}}, "more entries left out"},
		{"offset", []edit{{row(1, 0), 8, big}}, "aren't in a shard"},
		{"size", []edit{{row(1, 8), 8, big}}, "aren't in a shard"},
		{"range wraps", []edit{{row(1, 0), 8, 1}, {row(1, 8), 8, big}}, "aren't in a shard"},
		{"nanoseconds", []edit{{row(0, 24), 4, 1e9}}, "1000000000 nanoseconds"},
		{"name ends before it begins", []edit{{row(1, 28), 4, 0}}, "its name ends at 0"},
		{"name ends behind", []edit{{row(1, 28), 4, 4}}, "its name ends at 4"},
		{"empty name", []edit{{row(0, 28), 4, 0}}, "empty"},
		{"names left over", []edit{{row(2, 28), 4, 3}, {row(1, 28), 4, 2}, {atMembers, 4, 3}}, ""},
		{"name nobody has", []edit{{row(2, 28), 4, 2}, {row(1, 28), 4, 2}}, "empty"},
		{"names in another order", []edit{{x.names, 1, 'z'}}, "row 1 isn't in the order of names"},
		{"equal names", []edit{{x.names, 1, 'b'}}, "row 1 isn't in the order of names"},
		{"name with NUL", []edit{{x.names, 1, 0}}, "NUL"},
		{"absolute name", []edit{{x.names, 1, '/'}}, "absolute"},
		{"name not UTF-8", []edit{{x.names + 2, 1, 0xff}}, "UTF-8"},
		{"order names no row", []edit{{order(0), 4, 3}}, "the order of offsets names row 3 of 3"},
		{"order names a row twice", []edit{{order(2), 4, 0}}, "isn't in the order of offsets"},
		{"order isn't that of offsets", []edit{{order(0), 4, 0}, {order(1), 4, 2}}, "isn't in the order of offsets"},
		{"equal offsets", []edit{{row(0, 0), 8, 512}, {order(0), 4, 0}, {order(1), 4, 2}}, ""},
		{"equal offsets in another order", []edit{{row(0, 0), 8, 512}}, "isn't in the order of offsets"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := marshal(t, x)
			for _, e := range c.edits {
				for i := range e.width {
					b[e.at+i] = byte(e.value >> (8 * i))
				}
			}
			y, err := Parse(reseal(b))
			if c.want != "" {
				wantUnusable(t, err, c.want)
			} else if err != nil {
				t.Fatal(err)
			} else {
				checkParsed(t, y, b)
			}
		})
	}
	// Names nobody has need bytes beyond those of the last row.
	b := marshal(t, x)
	b = slices.Insert(b, len(b)-sumSize, 'x')
	b[atNames]++
	_, err := Parse(reseal(b))
	wantUnusable(t, err, "1 bytes of names belong to nobody")
}

// Bytes with a wrong checksum cost nothing, whatever their header says.
func TestParseAllocates(t *testing.T) {
	a := newArchive(t)
	for _, c := range "abc" {
		a.add(file(strings.Repeat(string(c), 4096)), "")
	}
	good := marshal(t, mustBuild(t, a.bytes()))
	if n := testing.AllocsPerRun(20, func() {
		if _, err := Parse(good); err != nil {
			t.Fatal(err)
		}
	}); n > 2 {
		t.Errorf("%v allocations for a good index", n)
	}
	bad := bytes.Clone(good)
	bad[len(bad)-1] ^= 1
	const runs = 100
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		if _, err := Parse(bad); err == nil {
			t.Fatal("accepted")
		}
	}
	runtime.ReadMemStats(&after)
	if got := (after.TotalAlloc - before.TotalAlloc) / runs; got > 2048 {
		t.Errorf("%d bytes allocated to refuse an index of %d", got, len(bad))
	}
}
