package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"sheaf/internal/errs"
)

// Head is what every frame's header begins with.
type Head struct {
	Type    Type
	Payload int // bytes that follow the header
}

// readBuffer holds a whole frame's payload, so that Payload can hand out a view.
const readBuffer = MaxPayload + 4096

// Reader reads frames from a stream. The order of calls is Next, then Decode and
// the payload in any order, each at most once; what is left is skipped by the
// following Next. It is not safe for concurrent use.
type Reader struct {
	br   *bufio.Reader
	src  source
	hdr  []byte
	dec  *Decoder
	head Head
	left int // bytes of payload not yet read
	rest int // keys of the header not yet decoded
	n    int64
}

// NewReader makes a Reader that reads from r through a buffer of its own.
func NewReader(r io.Reader) *Reader { return NewReaderSize(r, readBuffer) }

// NewReaderSize is NewReader with a smaller buffer; Payload then can't view a
// payload larger than it. For streams of short messages.
func NewReaderSize(s io.Reader, size int) *Reader {
	r := &Reader{dec: newDecoder(), src: source{s}}
	r.br = bufio.NewReaderSize(&r.src, size)
	return r
}

// source is the stream below the buffer. A stream may return bytes together with a
// passed deadline; the buffer would keep that error and report it when the deadline has
// long been renewed. Errors that don't pass come again by themselves.
type source struct{ r io.Reader }

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return n, err
}

// Reset makes the Reader read from another stream, keeping its memory.
func (r *Reader) Reset(s io.Reader) { r.src.r = s; r.br.Reset(&r.src); r.left, r.rest, r.n = 0, 0, 0 }

// Head is the header's beginning of the frame that Next read last.
func (r *Reader) Head() Head { return r.head }

// BytesRead counts the bytes of the frames read so far.
func (r *Reader) BytesRead() int64 { return r.n }

// Next reads the next frame's header. At the end of the stream between two frames
// it returns io.EOF; a stream cut within a frame gives io.ErrUnexpectedEOF.
func (r *Reader) Next() (Head, error) {
	if r.left > 0 {
		if _, err := r.br.Discard(r.left); err != nil {
			return Head{}, cut(err)
		}
		r.left = 0
	}
	p, err := r.br.Peek(4)
	if err != nil {
		if len(p) > 0 {
			err = cut(err)
		}
		return Head{}, err
	}
	n := binary.BigEndian.Uint32(p)
	if n == 0 || n > MaxHeader {
		return Head{}, errs.New(errs.Protocol, "frame", fmt.Sprintf("a header of %d bytes, the limit is %d", n, MaxHeader))
	}
	_, _ = r.br.Discard(4)
	if err := r.header(int(n)); err != nil {
		return Head{}, err
	}
	r.n += int64(n) + 4 + int64(r.head.Payload)
	return r.head, nil
}

// header reads n bytes into memory, growing it only as bytes arrive, and decodes
// the keys t and p, which come first.
func (r *Reader) header(n int) error {
	const step = 64 << 10
	r.hdr = r.hdr[:0]
	for len(r.hdr) < n {
		k := min(n-len(r.hdr), step)
		at := len(r.hdr)
		r.hdr = append(r.hdr, make([]byte, k)...)
		if _, err := io.ReadFull(r.br, r.hdr[at:]); err != nil {
			return cut(err)
		}
	}
	r.dec.reset(r.hdr)
	r.head = Head{}
	got := false
	r.rest = r.dec.mapHead()
	for r.rest > 0 && r.dec.err == nil {
		k := r.dec.peekKey()
		if k == "t" && !got {
			r.dec.raw(maxKey)
			r.head.Type = Type(r.dec.Max(1<<16 - 1))
			got = true
		} else if k == "p" && got && r.head.Payload == 0 {
			r.dec.raw(maxKey)
			r.head.Payload = int(r.dec.Max(MaxPayload))
		} else {
			break
		}
		r.rest--
	}
	if !got {
		r.dec.Fail("a header must begin with the key t")
	}
	r.left = r.head.Payload
	return r.dec.Err()
}

// Decode reads the fields of the frame into m, which must be of the frame's type.
func (r *Reader) Decode(m Message) error {
	if m.Type() != r.head.Type {
		return errs.New(errs.Protocol, "frame", fmt.Sprintf("message %d where %d is wanted", r.head.Type, m.Type()))
	}
	d := r.dec
	for ; r.rest > 0 && d.err == nil; r.rest-- {
		k := d.raw(maxKey)
		if d.err == nil {
			m.Field(view(k), d)
		}
	}
	if d.err == nil && d.r.Len() > 0 {
		d.Fail("%d bytes after the map", d.r.Len())
	}
	return d.Err()
}

// Expect reads the next frame, which must be m's.
func (r *Reader) Expect(m Message) (Head, error) {
	h, err := r.Next()
	if err != nil {
		return h, err
	}
	return h, r.Decode(m)
}

// Payload returns the whole payload as a view of the buffer, valid until the next
// call of any method. A stream that ends within it gives io.ErrUnexpectedEOF.
func (r *Reader) Payload() ([]byte, error) {
	n := r.left
	b, err := r.br.Peek(n)
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, errs.New(errs.Protocol, "frame", fmt.Sprintf("a payload of %d bytes isn't expected here", n))
		}
		return nil, cut(err)
	}
	_, _ = r.br.Discard(n)
	r.left = 0
	return b, nil
}

func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Writer writes frames to a stream, several in one write: it keeps them until
// flushAt bytes are there or Flush is called. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	enc *Encoder
	n   int64
}

// flushAt is past the point where a write's fixed cost no longer shows.
const flushAt = 128 << 10

// NewWriter makes a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w, enc: NewEncoder()} }

// Reset makes the Writer write to another stream, dropping what wasn't flushed.
func (w *Writer) Reset(s io.Writer) { w.w = s; w.enc.Reset(); w.n = 0 }

// BytesWritten counts the bytes of the frames written so far.
func (w *Writer) BytesWritten() int64 { return w.n }

// Frame appends a frame; payload is copied.
func (w *Writer) Frame(m Message, payload []byte) error {
	at := w.enc.Len()
	w.enc.Frame(m, payload)
	w.n += int64(w.enc.Len() - at)
	if w.enc.Len() >= flushAt {
		return w.Flush()
	}
	return nil
}

// Buffered is the number of bytes that wait for a Flush.
func (w *Writer) Buffered() int { return w.enc.Len() }

// Flush hands over what was kept.
func (w *Writer) Flush() error {
	if w.enc.Len() == 0 {
		return nil
	}
	_, err := w.w.Write(w.enc.Bytes())
	w.enc.Reset()
	return err
}
