package wire

import (
	"bytes"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"

	"sheaf/internal/errs"
)

// Decoder reads one frame's header from memory. The first error stays and makes
// every later call return zero values; ask Err at the end. It is not safe for
// concurrent use.
type Decoder struct {
	frame []byte
	r     bytes.Reader
	dec   *msgpack.Decoder
	depth int
	err   error
}

func newDecoder() *Decoder {
	d := &Decoder{}
	d.dec = msgpack.NewDecoder(&d.r)
	return d
}

func (d *Decoder) reset(frame []byte) {
	d.frame, d.depth, d.err = frame, 0, nil
	d.r.Reset(frame)
}

// Err is the first error, nil when all was well.
func (d *Decoder) Err() error { return d.err }

// Fail records an error of the message's own, such as a value out of range.
func (d *Decoder) Fail(format string, a ...any) {
	if d.err == nil {
		d.err = errs.New(errs.Protocol, "decode", fmt.Sprintf(format, a...)+fmt.Sprintf(" (byte %d of the header)", len(d.frame)-d.r.Len()))
	}
}

func (d *Decoder) lib(err error) {
	if err != nil {
		d.Fail("%v", err)
	}
}

// Str reads a text of at most limit bytes, which must be UTF-8.
func (d *Decoder) Str(limit int) string {
	b := d.raw(limit)
	if !utf8.Valid(b) {
		d.Fail("a text isn't UTF-8")
		return ""
	}
	return string(b)
}

// raw reads a text or byte string as a view of the frame.
func (d *Decoder) raw(limit int) []byte {
	if !d.comes("a text", func(c byte) bool { return msgpcode.IsString(c) || msgpcode.IsBin(c) }) {
		return nil
	}
	n, err := d.dec.DecodeBytesLen()
	switch {
	case err != nil:
		d.lib(err)
		return nil
	case n < 0 || n > d.r.Len():
		d.Fail("a text of %d bytes, %d are left", n, d.r.Len())
		return nil
	case n > limit:
		d.Fail("a text of %d bytes, the limit is %d", n, limit)
		return nil
	}
	at := len(d.frame) - d.r.Len()
	_, _ = d.r.Seek(int64(n), 1) // within the frame, as checked
	return d.frame[at : at+n]
}

// Uint reads a number of 0 or more.
func (d *Decoder) Uint() uint64 {
	if !d.number() {
		return 0
	}
	c, _ := d.dec.PeekCode()
	signed := c >= msgpcode.NegFixedNumLow || c >= msgpcode.Int8 && c <= msgpcode.Int64
	if signed {
		v, err := d.dec.DecodeInt64()
		d.lib(err)
		if v < 0 {
			d.Fail("%d where no negative number can be", v)
			return 0
		}
		return uint64(v)
	}
	v, err := d.dec.DecodeUint64()
	d.lib(err)
	return v
}

// Max reads a number of 0 to limit.
func (d *Decoder) Max(limit uint64) uint64 {
	v := d.Uint()
	if v > limit {
		d.Fail("%d, the limit is %d", v, limit)
		return 0
	}
	return v
}

// Int reads a number.
func (d *Decoder) Int() int64 {
	if !d.number() {
		return 0
	}
	if c, _ := d.dec.PeekCode(); c == msgpcode.Uint64 {
		v, err := d.dec.DecodeUint64()
		d.lib(err)
		if v > 1<<63-1 {
			d.Fail("%d is too large", v)
			return 0
		}
		return int64(v)
	}
	v, err := d.dec.DecodeInt64()
	d.lib(err)
	return v
}

// comes tells whether a value of the wanted kind comes next; anything else is an error.
func (d *Decoder) comes(what string, is func(code byte) bool) bool {
	if d.err != nil {
		return false
	}
	c, err := d.dec.PeekCode()
	if err != nil {
		d.lib(err)
		return false
	}
	if !is(c) {
		d.Fail("%s is wanted, not code %#x", what, c)
		return false
	}
	return true
}

// number tells whether an integer comes next; the library would also take nil.
func (d *Decoder) number() bool {
	return d.comes("a number", func(c byte) bool { return msgpcode.IsFixedNum(c) || c >= msgpcode.Uint8 && c <= msgpcode.Int64 })
}

// Bool reads true or false.
func (d *Decoder) Bool() bool {
	if !d.comes("true or false", func(c byte) bool { return c == msgpcode.True || c == msgpcode.False }) {
		return false
	}
	v, err := d.dec.DecodeBool()
	d.lib(err)
	return v
}

// Map reads a map, calling field for the value of each key, which is a view of the
// frame and must not be kept. A duplicate key is handed over again: the last one wins.
func (d *Decoder) Map(field func(key string)) {
	for range d.mapHead() {
		k := d.raw(maxKey)
		if d.err != nil {
			return
		}
		field(view(k))
		if d.err != nil {
			return
		}
	}
	d.depth--
}

// maxKey bounds a map key.
const maxKey = 64

func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// mapHead reads how many keys a map has and goes one level down.
func (d *Decoder) mapHead() int {
	if !d.comes("a map", isMap) || !d.enter() {
		return 0
	}
	n, err := d.dec.DecodeMapLen()
	d.lib(err)
	if !d.fits(n, 2) {
		return 0
	}
	return n
}

// peekKey looks at the next key without passing it.
func (d *Decoder) peekKey() string {
	at := d.r.Len()
	k := d.raw(maxKey)
	_, _ = d.r.Seek(int64(len(d.frame)-at), 0)
	return view(k)
}

// Array reads an array's length, at most limit, and calls elem for each element,
// which takes at least one byte.
func (d *Decoder) Array(limit int, elem func(i, n int)) {
	if !d.comes("an array", isArray) || !d.enter() {
		return
	}
	n, err := d.dec.DecodeArrayLen()
	d.lib(err)
	if !d.fits(n, 1) {
		return
	}
	if n > limit {
		d.Fail("an array of %d, the limit is %d", n, limit)
		return
	}
	for i := range n {
		elem(i, n)
		if d.err != nil {
			return
		}
	}
	d.depth--
}

// Strs reads an array of at most limit texts of at most each bytes.
func (d *Decoder) Strs(limit, each int) []string {
	var out []string
	d.Array(limit, func(int, int) { out = append(out, d.Str(each)) })
	return out
}

func isMap(c byte) bool {
	return msgpcode.IsFixedMap(c) || c == msgpcode.Map16 || c == msgpcode.Map32
}

func isArray(c byte) bool {
	return msgpcode.IsFixedArray(c) || c == msgpcode.Array16 || c == msgpcode.Array32
}

func (d *Decoder) enter() bool {
	if d.depth++; d.depth > MaxDepth {
		d.Fail("nested deeper than %d", MaxDepth)
		return false
	}
	return true
}

// fits checks a count against the bytes that are left, each element having at
// least size of them: a lie is found before anything is allocated.
func (d *Decoder) fits(n, size int) bool {
	if d.err != nil {
		return false
	}
	if n < 0 || n > d.r.Len()/size {
		d.Fail("%d elements in %d bytes", n, d.r.Len())
		return false
	}
	return true
}

// Skip passes over the value of a key that isn't known.
func (d *Decoder) Skip() {
	if d.err != nil {
		return
	}
	c, err := d.dec.PeekCode()
	if err != nil {
		d.lib(err)
		return
	}
	switch {
	case isMap(c):
		d.Map(func(string) { d.Skip() })
	case isArray(c):
		d.Array(len(d.frame), func(int, int) { d.Skip() })
	case msgpcode.IsString(c), msgpcode.IsBin(c):
		d.raw(len(d.frame))
	default:
		d.lib(d.dec.Skip()) // a scalar or an extension: no recursion, no count
	}
}
