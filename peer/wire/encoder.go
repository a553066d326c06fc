package wire

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// Encoder appends frames to a buffer. It is not safe for concurrent use.
type Encoder struct {
	buf  buffer
	enc  *msgpack.Encoder
	open []openMap // being written, innermost last
}

// openMap is a map that isn't whole yet.
type openMap struct{ at, keys int }

// buffer is the msgpack encoder's writer; having WriteByte spares it a wrapper.
type buffer struct{ b []byte }

func (w *buffer) Write(p []byte) (int, error) { w.b = append(w.b, p...); return len(p), nil }
func (w *buffer) WriteByte(c byte) error      { w.b = append(w.b, c); return nil }

// NewEncoder makes an Encoder with an empty buffer.
func NewEncoder() *Encoder {
	e := &Encoder{}
	e.enc = msgpack.NewEncoder(&e.buf)
	e.enc.UseCompactInts(true)
	return e
}

// Bytes is what was appended since the last Reset; valid until the next call.
func (e *Encoder) Bytes() []byte { return e.buf.b }

// Len is the number of bytes appended since the last Reset.
func (e *Encoder) Len() int { return len(e.buf.b) }

// Reset empties the buffer and keeps its memory.
func (e *Encoder) Reset() { e.buf.b = e.buf.b[:0]; e.open = e.open[:0] }

// Frame appends m as a frame with payload behind it.
func (e *Encoder) Frame(m Message, payload []byte) {
	at := len(e.buf.b)
	e.buf.b = append(e.buf.b, 0, 0, 0, 0)
	e.begin()
	e.Uint("t", uint64(m.Type()))
	e.Uint("p", uint64(len(payload)))
	m.Encode(e)
	e.end()
	n := len(e.buf.b) - at - 4
	if n > MaxHeader || len(payload) > MaxPayload {
		panic(fmt.Sprintf("wire: message %d has %d bytes and %d of payload", m.Type(), n, len(payload)))
	}
	binary.BigEndian.PutUint32(e.buf.b[at:], uint32(n))
	e.buf.b = append(e.buf.b, payload...)
}

// begin and end bracket a map. Its length is one byte patched with each key; a map of
// more keys than that byte can hold makes room for a longer one at its end.
func (e *Encoder) begin() {
	e.open = append(e.open, openMap{at: len(e.buf.b)})
	e.buf.b = append(e.buf.b, 0x80)
}

func (e *Encoder) end() {
	m := e.open[len(e.open)-1]
	e.open = e.open[:len(e.open)-1]
	if m.keys > 15 {
		e.buf.b = slices.Insert(e.buf.b, m.at+1, byte(m.keys>>8), byte(m.keys))
		e.buf.b[m.at] = 0xde
	}
}

func (e *Encoder) key(k string) {
	m := &e.open[len(e.open)-1]
	if m.keys++; m.keys <= 15 {
		e.buf.b[m.at]++
	}
	_ = e.enc.EncodeString(k) // the buffer can't fail
}

// Str writes a text field unless it is empty.
func (e *Encoder) Str(key, v string) {
	if v != "" {
		e.key(key)
		_ = e.enc.EncodeString(v)
	}
}

// Uint writes a number unless it is 0.
func (e *Encoder) Uint(key string, v uint64) {
	if v != 0 {
		e.key(key)
		_ = e.enc.EncodeUint(v)
	}
}

// Int writes a number unless it is 0.
func (e *Encoder) Int(key string, v int64) {
	if v != 0 {
		e.key(key)
		_ = e.enc.EncodeInt(v)
	}
}

// Bool writes true; false isn't written.
func (e *Encoder) Bool(key string, v bool) {
	if v {
		e.key(key)
		_ = e.enc.EncodeBool(true)
	}
}

// Maps writes an array of n maps, each filled by f, unless n is 0.
func (e *Encoder) Maps(key string, n int, f func(i int)) {
	if n == 0 {
		return
	}
	e.key(key)
	_ = e.enc.EncodeArrayLen(n)
	for i := range n {
		e.begin()
		f(i)
		e.end()
	}
}

// Strs writes an array of texts unless it is empty.
func (e *Encoder) Strs(key string, v []string) {
	if len(v) == 0 {
		return
	}
	e.key(key)
	_ = e.enc.EncodeArrayLen(len(v))
	for _, s := range v {
		_ = e.enc.EncodeString(s)
	}
}

// Clip cuts a text to limit bytes and makes it UTF-8, as a reader demands.
func Clip(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(s, "")
}
