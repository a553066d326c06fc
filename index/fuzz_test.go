package index

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"testing"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// Any bytes as a shard: no panic, and an index holds what the package promises
// and agrees with archive/tar on what the bytes of each member are.
func FuzzBuild(f *testing.F) {
	full := mixed(f).bytes()
	f.Add(full)
	f.Add(full[:len(full)-1024])
	f.Add(full[:700])
	f.Add([]byte{})
	f.Add(make([]byte, 1024))
	f.Add(newArchive(f).add(file("./a"), "1").add(file("a"), "2").add(file("../b"), "3").bytes())
	f.Add(join(header(f, file("s"), func(b []byte) {
		copy(b[257:], "ustar  \x00")
		clear(b[345:500])
		b[156] = tar.TypeGNUSparse
		copy(b[386:], "00000000000\x0000000001000\x00")
		copy(b[483:], "00000002000\x00")
		copy(b[124:], "00000001000\x00")
	}), make([]byte, 1536)))
	f.Fuzz(func(t *testing.T, b []byte) {
		// The fuzzer can't guess checksums: let each header-like block have its own.
		for _, fix := range []bool{false, true} {
			if fix {
				b = bytes.Clone(b)
				for at := 0; at+blockSize <= len(b); at += blockSize {
					if b[at] != 0 {
						seal(b[at : at+blockSize])
					}
				}
			}
			x, err := buildBytes(b)
			if err != nil {
				if !errs.IsCode(err, errs.BadShard) {
					t.Fatal(err)
				}
				continue
			}
			checkInvariants(t, x, int64(len(b)))
			checkContents(t, x, b, extract(t, b))
			y, err := Parse(marshal(t, x))
			if err != nil || *x != *y {
				t.Fatal("another index came back", err)
			}
		}
	})
}

// extract reads a whole archive by archive/tar alone.
func extract(t *testing.T, b []byte) map[string]string {
	t.Helper()
	all := map[string]string{}
	tr := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return all
		} else if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			t.Fatal(err)
		}
		name := clean(h.Name)
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeCont || sparsePAX(h.PAXRecords) ||
			names.CheckMember(name) != nil || h.Name[len(h.Name)-1] == '/' {
			continue
		}
		body, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(body)
	}
}

// Any bytes as a kept index, with the checksum they have and with a right one.
func FuzzParse(f *testing.F) {
	f.Add(marshal(f, mustBuild(f, mixed(f).bytes())))
	f.Add(marshal(f, mustBuild(f, nil)))
	f.Add(marshal(f, mustBuild(f, newArchive(f).add(file("b"), "1").add(file("a"), "2").add(file("a"), "3").bytes())))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, fix := range []bool{false, true} {
			if fix {
				b = reseal(bytes.Clone(b))
			}
			if x, err := Parse(b); err != nil {
				wantUnusable(t, err, "")
			} else {
				checkParsed(t, x, b)
			}
		}
	})
}
