package index

import (
	"archive/tar"
	"math"
	"strings"
	"testing"
	"time"
)

func TestDialects(t *testing.T) {
	long := strings.Repeat("d23456789/", 12) + "file" // 124 bytes: ustar needs its prefix field
	longer := strings.Repeat("d23456789/", 40) + "file"
	v7 := header(t, file("old"), func(b []byte) {
		clear(b[257:]) // no magic, no prefix
		copy(b[124:], "00000000003\x00")
	})
	far := time.Unix(1<<35, 123456789)
	with := func(h *tar.Header, f tar.Format) *tar.Header { h.Format = f; return h }
	paxTime := with(file("t"), tar.FormatPAX)
	paxTime.ModTime = far
	for _, c := range []struct {
		name  string
		shard []byte
		want  map[string]string
		mtime time.Time
	}{
		{"v7", join(v7, pad("abc"), zeroBlock[:], zeroBlock[:]), map[string]string{"old": "abc"}, mtime},
		{"ustar", newArchive(t).add(with(file("a"), tar.FormatUSTAR), "1").bytes(), map[string]string{"a": "1"}, mtime},
		{"ustar prefix", newArchive(t).add(with(file(long), tar.FormatUSTAR), "1").bytes(), map[string]string{long: "1"}, mtime},
		{"pax", newArchive(t).add(with(file(longer), tar.FormatPAX), "1").bytes(), map[string]string{longer: "1"}, mtime},
		{"pax utf-8", newArchive(t).add(with(file("größe/猫.jpg"), tar.FormatPAX), "1").bytes(), map[string]string{"größe/猫.jpg": "1"}, mtime},
		{"pax mtime", newArchive(t).add(paxTime, "1").bytes(), map[string]string{"t": "1"}, far},
		{"gnu", newArchive(t).add(with(file(longer), tar.FormatGNU), "1").bytes(), map[string]string{longer: "1"}, mtime},
		{"gnu utf-8", newArchive(t).add(with(file("größe/猫.jpg"), tar.FormatGNU), "1").bytes(), map[string]string{"größe/猫.jpg": "1"}, mtime},
		{"contiguous", newArchive(t).add(&tar.Header{Typeflag: tar.TypeCont, Name: "c", ModTime: mtime}, "1").bytes(), map[string]string{"c": "1"}, mtime},
		{"no marker", newArchive(t).add(file("a"), "1").open(), map[string]string{"a": "1"}, mtime},
		{"half a marker", join(newArchive(t).add(file("a"), "1").open(), zeroBlock[:]), map[string]string{"a": "1"}, mtime},
		{"after the marker", join(newArchive(t).add(file("a"), "1").bytes(), []byte("anything")), map[string]string{"a": "1"}, mtime},
		{"zero bytes", nil, nil, mtime},
		{"one zero block", zeroBlock[:], nil, mtime},
		{"only a marker", make([]byte, 10240), nil, mtime},
		{"name of the limit", newArchive(t).add(file(strings.Repeat("n", 4096)), "1").bytes(), map[string]string{strings.Repeat("n", 4096): "1"}, mtime},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := mustBuild(t, c.shard)
			checkContents(t, x, c.shard, c.want)
			if x.Skipped() != (Skipped{}) {
				t.Errorf("skipped %+v", x.Skipped())
			}
			for m := range x.All() {
				if !m.ModTime.Equal(c.mtime) {
					t.Errorf("modified %v, want %v", m.ModTime, c.mtime)
				}
			}
		})
	}
}

func TestLeftOut(t *testing.T) {
	typed := func(flag byte, name string) *tar.Header {
		return &tar.Header{Typeflag: flag, Name: name, Linkname: "keep"}
	}
	sparse := func(records map[string]string) *tar.Header {
		h := file("s")
		h.Format, h.PAXRecords = tar.FormatPAX, records
		return h
	}
	raw := func(h []byte) func(*archive) { return func(a *archive) { a.open(); a.buf.Write(h) } }
	rawName := func(name string) func(*archive) {
		return raw(header(t, file("x"), func(b []byte) { copy(b, name) }))
	}
	add := func(h *tar.Header, body string) func(*archive) { return func(a *archive) { a.add(h, body) } }
	for _, c := range []struct {
		name string
		add  func(*archive)
		want Skipped
	}{
		{"directory", add(typed(tar.TypeDir, "d/"), ""), Skipped{Directories: 1}},
		{"./", add(typed(tar.TypeDir, "./"), ""), Skipped{Directories: 1}},
		{"directory as a file", raw(header(t, file("d"), func(b []byte) { copy(b, "dir/\x00") })), Skipped{Directories: 1}},
		{"symbolic link", add(typed(tar.TypeSymlink, "l"), ""), Skipped{Links: 1}},
		{"hard link", add(typed(tar.TypeLink, "l"), ""), Skipped{Links: 1}},
		{"character device", add(typed(tar.TypeChar, "null"), ""), Skipped{Devices: 1}},
		{"block device", add(typed(tar.TypeBlock, "sda"), ""), Skipped{Devices: 1}},
		{"pipe", add(typed(tar.TypeFifo, "p"), ""), Skipped{Devices: 1}},
		{"global header", add(&tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}}, ""), Skipped{}},
		{"volume label", raw(header(t, file("V"), func(b []byte) { b[156] = 'V' })), Skipped{Other: 1}},
		{"dump directory", raw(join(header(t, file("D"), func(b []byte) { b[156] = 'D'; copy(b[124:], "00000000003\x00") }), pad("Yx\x00"))), Skipped{Other: 1}},
		{"absolute", add(file("/etc/passwd"), "root"), Skipped{BadNames: 1}},
		{"parent", add(file("../../etc/passwd"), "root"), Skipped{BadNames: 1}},
		{"parent inside", add(file("a/../../x"), "x"), Skipped{BadNames: 1}},
		{"dot inside", add(file("a/./x"), "x"), Skipped{BadNames: 1}},
		{"dot parent", add(file("./../x"), "x"), Skipped{BadNames: 1}},
		{"dot", rawName(".\x00"), Skipped{BadNames: 1}},
		{"no name", rawName("\x00"), Skipped{BadNames: 1}},
		{"not utf-8", rawName("a\xff\xfe"), Skipped{BadNames: 1}},
		{"over 4096 bytes", add(file(strings.Repeat("n", 4097)), "x"), Skipped{BadNames: 1}},
		{"900 KiB name", add(file(strings.Repeat("n", 900<<10)), "x"), Skipped{BadNames: 1}},
		{"unknown sparse version", add(sparse(map[string]string{"SCHILY.realsize": "1000000"}), "x"), Skipped{Sparse: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newArchive(t).add(file("before"), "B")
			c.add(a)
			// A fresh writer, since raw blocks went past the first one.
			shard := join(a.open(), newArchive(t).add(file("after"), "A").bytes())
			x := mustBuild(t, shard)
			checkContents(t, x, shard, map[string]string{"before": "B", "after": "A"})
			if x.Skipped() != c.want {
				t.Errorf("skipped %+v, want %+v", x.Skipped(), c.want)
			}
			if x.Skipped().Total() != c.want.Total() {
				t.Error("wrong total")
			}
		})
	}
}

// A setting of the Go runtime that makes archive/tar fail for such names.
func TestInsecurePathSetting(t *testing.T) {
	t.Setenv("GODEBUG", "tarinsecurepath=0")
	shard := newArchive(t).add(file("../a"), "1").add(file("b"), "2").bytes()
	x := mustBuild(t, shard)
	checkContents(t, x, shard, map[string]string{"b": "2"})
	if x.Skipped() != (Skipped{BadNames: 1}) {
		t.Errorf("skipped %+v", x.Skipped())
	}
}

// Entries with base-256 numbers, whose values only such fields can hold.
func TestExtremeTimes(t *testing.T) {
	for _, sec := range []int64{0, -1, math.MinInt32, math.MaxInt64, math.MinInt64 + 1} {
		shard := join(header(t, file("f"), func(b []byte) {
			copy(b[257:], "ustar  \x00")
			clear(b[345:500])
			b[136], b[137], b[138], b[139] = 0x80, 0, 0, 0
			if sec < 0 {
				b[136], b[137], b[138], b[139] = 0xff, 0xff, 0xff, 0xff
			}
			for i := range 8 {
				b[140+i] = byte(sec >> (56 - 8*i))
			}
		}), zeroBlock[:], zeroBlock[:])
		m, ok := mustBuild(t, shard).Lookup("f")
		if !ok || m.ModTime.Unix() != sec {
			t.Errorf("modified %d, want %d", m.ModTime.Unix(), sec)
		}
	}
}

func TestSumRight(t *testing.T) {
	h := header(t, file("a"), nil)
	if !sumRight(h) {
		t.Error("a right checksum is refused")
	}
	// Bytes over 127 tell the two ways to add apart.
	high := header(t, file("a"), func(b []byte) { b[0] = 0xe4 })
	if !sumRight(high) {
		t.Error("an unsigned checksum is refused")
	}
	signed := make([]byte, blockSize)
	copy(signed, high)
	copy(signed[sumAt:], "      \x00 ")
	sum := int64(0)
	for i, c := range signed {
		if i >= sumAt && i < sumEnd {
			c = ' '
		}
		sum += int64(int8(c))
	}
	for i := 5; i >= 0; i-- {
		signed[sumAt+i] = '0' + byte(sum&7)
		sum >>= 3
	}
	if !sumRight(signed) {
		t.Error("a signed checksum is refused")
	}
	copy(signed[sumAt:], "zzzzzz\x00 ")
	if sumRight(signed) {
		t.Error("a checksum that is no number is accepted")
	}
	for _, c := range []struct {
		head string
		want bool
	}{{"", true}, {"short", false}, {string(zeroBlock[:]), true}, {string(h), true}, {string(signed), false}} {
		if looksTar([]byte(c.head)) != c.want {
			t.Errorf("looksTar(%.20q) isn't %v", c.head, c.want)
		}
	}
}
