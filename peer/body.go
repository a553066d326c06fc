package peer

import (
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// frames is where a byte stream comes from. Next gives io.EOF with the End that
// reports success.
type frames interface {
	Next() (wire.Head, *wire.End, error)
	Payload() ([]byte, error)
}

var (
	_ frames = (*Call)(nil)
	_ frames = inbound{}
)

// bodyReader reads Data frames as one byte stream and checks it against the trailer.
type bodyReader struct {
	src  frames
	part []byte // view of the current payload
	sum  xxh3.Hasher
	n    uint64
	err  error

	ended bool // the End has come, whatever it said
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	if err := b.fill(); err != nil {
		return 0, err
	}
	n := copy(p, b.part)
	b.part = b.part[n:]
	return n, nil
}

// WriteTo implements io.WriterTo, without a copy of its own.
func (b *bodyReader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		switch err := b.fill(); err {
		case nil:
		case io.EOF:
			return total, nil
		default:
			return total, err
		}
		n, err := w.Write(b.part)
		b.part = b.part[n:]
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// fill makes sure that part has bytes.
func (b *bodyReader) fill() error {
	for len(b.part) == 0 && b.err == nil {
		b.err = b.next()
	}
	if len(b.part) > 0 {
		return nil
	}
	return b.err
}

func (b *bodyReader) next() error {
	h, end, err := b.src.Next()
	b.ended = end != nil
	if err == io.EOF {
		if end.Bytes != b.n || end.Sum != b.sum.Sum64() {
			return errs.New(errs.ChecksumMismatch, "receive", fmt.Sprintf("%d bytes with checksum %016x arrived, %d with %016x were sent", b.n, b.sum.Sum64(), end.Bytes, end.Sum))
		}
		return io.EOF
	}
	if err != nil {
		return err
	}
	if h.Type != wire.TData {
		return errs.New(errs.Protocol, "receive", fmt.Sprintf("message %d among the data", h.Type))
	}
	if b.part, err = b.src.Payload(); err != nil {
		return err
	}
	_, _ = b.sum.Write(b.part)
	b.n += uint64(len(b.part))
	return nil
}

// Close ends the call that the bytes come from.
func (b *bodyReader) Close() error {
	if c, ok := b.src.(*Call); ok {
		c.Close()
	}
	if b.err == nil {
		b.err = errs.New(errs.Canceled, "receive", "the reader is closed")
	}
	b.part = nil
	return nil
}

// SendBody writes r as Data frames followed by the End that the receiver checks.
// It returns the number of bytes and their checksum.
func SendBody(w *wire.Writer, r io.Reader) (n int64, sum uint64, err error) {
	buf := make([]byte, wire.ChunkSize)
	var h xxh3.Hasher
	for {
		k, err := io.ReadFull(r, buf)
		if k > 0 {
			_, _ = h.Write(buf[:k])
			n += int64(k)
			if err := w.Frame(&Data{}, buf[:k]); err != nil {
				return n, 0, &sendError{err}
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return n, h.Sum64(), nil
		default:
			return n, 0, err
		}
	}
}

// sendError marks a failure of the stream, not of the source.
type sendError struct{ error }

// ReceiveBody reads Data frames up to an End as one byte stream: the serving side
// of a PUT.
func ReceiveBody(r *wire.Reader) io.Reader { return &bodyReader{src: inbound{r}} }

// inbound is a request's stream as a source of frames.
type inbound struct{ r *wire.Reader }

// Next implements frames.
func (s inbound) Next() (wire.Head, *wire.End, error) {
	h, err := s.r.Next()
	if err != nil {
		return h, nil, errs.Wrap(errs.Unavailable, "receive", cutShort(err))
	}
	if h.Type != wire.TEnd {
		return h, nil, nil
	}
	var end wire.End
	if err := s.r.Decode(&end); err != nil {
		return h, nil, err
	}
	if err := end.Err(); err != nil {
		return h, &end, err // the sender gave up
	}
	return h, &end, io.EOF
}

// Payload implements frames.
func (s inbound) Payload() ([]byte, error) {
	b, err := s.r.Payload()
	return b, errs.Wrap(errs.Unavailable, "receive", err)
}
