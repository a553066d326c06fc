package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"sheaf/internal/errs"
)

func frameOf(header []byte, payload string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
	return append(append(out, header...), payload...)
}

// Each of these bytes is what somebody could send to make a reader allocate, recurse or
// misread.
func TestHostileFrames(t *testing.T) {
	deep := []byte{0x82, 0xa1, 't', 2, 0xa1, 'z'}
	for range 100_000 {
		deep = append(deep, 0x91)
	}
	deep = append(deep, 0xc0)
	for name, frame := range map[string][]byte{
		"a header of 4 GiB":          {0xff, 0xff, 0xff, 0xff, 0x81},
		"a header over the limit":    binary.BigEndian.AppendUint32(nil, MaxHeader+1),
		"an empty header":            {0, 0, 0, 0},
		"an array as header":         frameOf([]byte{0x91, 0x01}, ""),
		"an array of 4 G":            frameOf([]byte{0xdd, 0xff, 0xff, 0xff, 0xff}, ""),
		"a map of 4 G":               frameOf([]byte{0xdf, 0xff, 0xff, 0xff, 0xff}, ""),
		"no type":                    frameOf([]byte{0x81, 0xa1, 'p', 1}, "x"),
		"type not first":             frameOf([]byte{0x82, 0xa2, 'o', 'p', 0xa1, 'x', 0xa1, 't', 2}, ""),
		"a negative type":            frameOf([]byte{0x81, 0xa1, 't', 0xff}, ""),
		"a type as text":             frameOf([]byte{0x81, 0xa1, 't', 0xa1, '2'}, ""),
		"a nil type":                 frameOf([]byte{0x81, 0xa1, 't', 0xc0}, ""),
		"a type over 16 bits":        frameOf([]byte{0x81, 0xa1, 't', 0xce, 0, 1, 0, 0}, ""),
		"a payload over the limit":   frameOf([]byte{0x82, 0xa1, 't', 2, 0xa1, 'p', 0xce, 0, 4, 0, 1}, ""),
		"a text longer than all":     frameOf([]byte{0x82, 0xa1, 't', 2, 0xa2, 'o', 'p', 0xdb, 0xff, 0xff, 0xff, 0xff}, ""),
		"a text that isn't UTF-8":    frameOf([]byte{0x82, 0xa1, 't', 2, 0xa2, 'o', 'p', 0xa1, 0xff}, ""),
		"a number as text":           frameOf([]byte{0x82, 0xa1, 't', 2, 0xa2, 'o', 'p', 7}, ""),
		"a key that is a number":     frameOf([]byte{0x82, 0xa1, 't', 2, 0x07, 0x07}, ""),
		"nested 100 000 deep":        frameOf(deep, ""),
		"bytes after the map":        frameOf([]byte{0x81, 0xa1, 't', 2, 0xc0}, ""),
		"an unknown array that lies": frameOf([]byte{0x82, 0xa1, 't', 2, 0xa1, 'z', 0xdd, 0xff, 0xff, 0xff, 0xff}, ""),
		"an extension that lies":     frameOf([]byte{0x82, 0xa1, 't', 2, 0xa1, 'z', 0xc9, 0xff, 0xff, 0xff, 0xff, 1}, ""),
		"a negative count":           frameOf([]byte{0x82, 0xa1, 't', 2, 0xa5, 'b', 'y', 't', 'e', 's', 0xff}, ""),
		"cut within the header":      frameOf([]byte{0x82, 0xa1, 't', 2}, "")[:6],
		"a reserved code":            frameOf([]byte{0x82, 0xa1, 't', 2, 0xa1, 'z', 0xc1}, ""),
	} {
		t.Run(name, func(t *testing.T) {
			n := testing.AllocsPerRun(1, func() {
				r := NewReaderSize(bytes.NewReader(frame), 4096)
				var end End
				if _, err := r.Expect(&end); err == nil {
					t.Errorf("decoded to %+v", end)
				}
			})
			if n > 200 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestReaderSkipsWhatIsLeft(t *testing.T) {
	var b bytes.Buffer
	w := NewWriter(&b)
	big := strings.Repeat("x", MaxPayload)
	for i := range 3 {
		if err := w.Frame(&End{Entries: uint64(i)}, []byte(big)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if int64(b.Len()) != w.BytesWritten() {
		t.Errorf("%d bytes, counted %d", b.Len(), w.BytesWritten())
	}
	all := b.Bytes()
	for name, src := range map[string]io.Reader{"whole": bytes.NewReader(all), "byte by byte": iotest.OneByteReader(bytes.NewReader(all))} {
		t.Run(name, func(t *testing.T) {
			r := NewReader(src)
			for i := range 3 {
				var end End
				h, err := r.Expect(&end)
				if err != nil || h.Payload != len(big) || end.Entries != uint64(i) {
					t.Fatalf("frame %d: %+v %+v %v", i, h, end, err)
				}
				if i == 1 {
					p, err := r.Payload()
					if err != nil || string(p) != big {
						t.Fatalf("payload of %d bytes, %v", len(p), err)
					}
				}
			}
			if _, err := r.Next(); err != io.EOF {
				t.Errorf("at the end: %v", err)
			}
			if r.BytesRead() != int64(len(all)) {
				t.Errorf("read %d of %d bytes", r.BytesRead(), len(all))
			}
		})
	}
	r := NewReader(bytes.NewReader(all[:len(all)-1]))
	for range 3 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Payload(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a cut payload: %v", err)
	}
}

func TestEndCarriesErrors(t *testing.T) {
	cause := errs.Wrap(errs.NoSpace, "write", &errs.Error{Code: errs.NoSpace, Bucket: "b", Object: "o", Msg: strings.Repeat("ü", 5000)})
	var end End
	end.SetErr(cause, "n7")
	e := NewEncoder()
	e.Frame(&end, nil)
	var got End
	if _, err := NewReader(bytes.NewReader(e.Bytes())).Expect(&got); err != nil {
		t.Fatal(err)
	}
	var out *errs.Error
	if !errors.As(got.Err(), &out) || out.Code != errs.NoSpace || out.Bucket != "b" || out.Object != "o" || out.Node != "n7" {
		t.Errorf("%+v", out)
	}
}

func FuzzFrame(f *testing.F) {
	e := NewEncoder()
	e.Frame(&End{Code: 3, Op: "get", Bucket: "b", Entries: 1 << 40}, []byte("payload"))
	f.Add(bytes.Clone(e.Bytes()))
	e.Reset()
	e.Frame(&Hello{Version: 1, Caps: []string{"a", "b"}, Node: "n"}, nil)
	f.Add(bytes.Clone(e.Bytes()))
	f.Add([]byte{0, 0, 0, 5, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := NewReaderSize(bytes.NewReader(b), 4096)
		for {
			h, err := r.Next()
			if err != nil {
				return
			}
			var m Message
			switch h.Type {
			case THello:
				m = new(Hello)
			case TEnd:
				m = new(End)
			default:
				continue
			}
			if r.Decode(m) != nil {
				return
			}
			// What decodes has one encoding, which decodes to the same.
			e := NewEncoder()
			e.Frame(m, nil)
			again := NewReader(bytes.NewReader(e.Bytes()))
			if _, err := again.Next(); err != nil {
				t.Fatalf("%+v: %v", m, err)
			}
		}
	})
}
