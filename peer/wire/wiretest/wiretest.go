// Package wiretest holds messages against their golden vectors.
//
//	message ──encode──▶ bytes ══ peer/testdata/vectors/<name>.json ══▶ Go decoder, Python decoder
//
// A vector is one frame: its bytes in hex, the header's fields as the protocol names
// them, and its payload. Invariant: a vector that exists never changes; other programs
// were written against it. Run a test with -update to add vectors.
package wiretest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

var update = flag.Bool("update", false, "write golden vectors that are missing")

// Update tells whether -update was given.
func Update() bool { return *update }

// Vector is a golden vector's file.
type Vector struct {
	Name    string         `json:"name"`
	Type    wire.Type      `json:"type"`
	Hex     string         `json:"hex"`     // the whole frame
	Fields  map[string]any `json:"fields"`  // of the header, t and p among them
	Payload string         `json:"payload"` // hex
}

// Check encodes m as a frame and compares it with the vector called name in dir. Then
// it decodes it into a message made by fresh and compares with m; decodes it cut off at
// every byte, which must fail; and with an unknown key added, which must not.
func Check(t *testing.T, dir, name string, m wire.Message, payload []byte, fresh func() wire.Message) {
	t.Run(name, func(t *testing.T) {
		e := wire.NewEncoder()
		e.Frame(m, payload)
		frame := bytes.Clone(e.Bytes())
		golden(t, filepath.Join(dir, name+".json"), name, m.Type(), frame, payload)

		got, rest, err := decode(frame, fresh)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		if !reflect.DeepEqual(got, m) {
			t.Errorf("decoded\n %+v, encoded was\n %+v", got, m)
		}
		if !bytes.Equal(rest, payload) {
			t.Errorf("payload %x, want %x", rest, payload)
		}
		for n := range frame {
			if _, _, err := decode(frame[:n], fresh); err == nil {
				t.Errorf("cut off at byte %d of %d it decodes", n, len(frame))
			}
		}
		if _, _, err := decode(withUnknown(frame), fresh); err != nil {
			t.Errorf("with an unknown key: %v", err)
		}
	})
}

func decode(frame []byte, fresh func() wire.Message) (wire.Message, []byte, error) {
	r := wire.NewReader(bytes.NewReader(frame))
	m := fresh()
	if _, err := r.Expect(m); err != nil {
		return nil, nil, err
	}
	p, err := r.Payload()
	if err != nil {
		return nil, nil, err
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		return nil, nil, errs.New(errs.Protocol, "decode", "something follows the frame")
	}
	return m, p, nil
}

// withUnknown adds a key with a nested value to the header's map.
func withUnknown(frame []byte) []byte {
	n := int(frame[0])<<24 | int(frame[1])<<16 | int(frame[2])<<8 | int(frame[3])
	head, payload := bytes.Clone(frame[4:4+n]), frame[4+n:]
	switch head[0] {
	case 0x8f:
		head = append([]byte{0xde, 0, 16}, head[1:]...)
	case 0xde:
		head[2]++ // no message has 255 fields
	default:
		head[0]++
	}
	head = append(head, 0xa3, 'z', 'z', 'z', 0x92, 0x81, 0xa1, 'k', 0xc0, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0)
	out := []byte{byte(len(head) >> 24), byte(len(head) >> 16), byte(len(head) >> 8), byte(len(head))}
	return append(append(out, head...), payload...)
}

func golden(t *testing.T, path, name string, typ wire.Type, frame, payload []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) && *update {
		n := int(frame[0])<<24 | int(frame[1])<<16 | int(frame[2])<<8 | int(frame[3])
		v := Vector{Name: name, Type: typ, Hex: hex.EncodeToString(frame), Payload: hex.EncodeToString(payload), Fields: map[string]any{}}
		// These bytes were made by this test: decoding them loosely is safe here.
		if err := msgpack.Unmarshal(frame[4:4+n], &v.Fields); err != nil {
			t.Fatal(err)
		}
		b, err = json.MarshalIndent(v, "", "  ")
		if err == nil {
			err = os.WriteFile(path, append(b, '\n'), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var v Vector
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if v.Hex != hex.EncodeToString(frame) {
		t.Errorf("the bytes differ from the vector\n got %x\nwant %s", frame, v.Hex)
	}
}

// Fuzz feeds arbitrary bytes, beginning with the vectors in dir, to the decoders of
// messages. What decodes must encode within the limits and decode to the same bytes again.
func Fuzz(f *testing.F, dir string, messages map[wire.Type]func() wire.Message) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) == 0 {
		f.Fatalf("no vectors in %s: %v", dir, err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var v Vector
		if err := json.Unmarshal(b, &v); err != nil {
			f.Fatal(err)
		}
		frame, err := hex.DecodeString(v.Hex)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := wire.NewReader(bytes.NewReader(b))
		h, err := r.Next()
		fresh := messages[h.Type]
		if err != nil || fresh == nil {
			return
		}
		m := fresh()
		if r.Decode(m) != nil {
			return
		}
		e := wire.NewEncoder()
		e.Frame(m, nil)
		first := bytes.Clone(e.Bytes())
		again, _, err := decode(first, fresh)
		if err != nil {
			t.Fatalf("%+v: %v", m, err)
		}
		e.Reset()
		e.Frame(again, nil)
		if !bytes.Equal(e.Bytes(), first) {
			t.Fatalf("%+v encodes to %x, then to %x", m, first, e.Bytes())
		}
	})
}
