package batching

import (
	"context"
	"io"

	"github.com/zeebo/xxh3"

	"sheaf/peer"
	"sheaf/peer/wire"
)

// toFrames is the sink of the native format.
type toFrames struct {
	frameSink
	node string
}

func newFrames(w *wire.Writer, node string) *toFrames {
	return &toFrames{frameSink: frameSink{w: w}, node: node}
}

func (s *toFrames) begin(metas []Meta) error {
	if metas == nil {
		return nil
	}
	return s.metas(len(metas), func(k int) (uint32, Meta) { return uint32(k), metas[k] })
}

func (s *toFrames) fail(i uint32, err error) error { return s.error(i, err, s.node) }
func (s *toFrames) end() error                     { return nil } // the trailer is written by the call
func (s *toFrames) flush() error                   { return s.w.Flush() }

// toTar is the sink of a TAR stream, carried in Data frames.
type toTar struct {
	in   []Entry
	onob bool
	out  *dataWriter
	open bool // an entry was begun and not ended
}

func newTar(w *wire.Writer, req *Request) *toTar {
	return &toTar{in: req.In, onob: req.Onob, out: &dataWriter{w: w}}
}

func (s *toTar) begin([]Meta) error { return nil }

func (s *toTar) emit(i uint32, first, last bool, size int64, _ uint64, data []byte, _ uint64) error {
	if first {
		h, err := TarHeader(ArchiveName(&s.in[i], s.onob, false), size)
		if err != nil {
			return err
		}
		if _, err := s.out.Write(h); err != nil {
			return err
		}
	}
	if _, err := s.out.Write(data); err != nil {
		return err
	}
	s.open = !last
	if !last {
		return nil
	}
	if _, err := s.out.Write(zeros[:TarPadding(size)]); err != nil {
		return err
	}
	return s.out.settle()
}

func (s *toTar) fail(i uint32, err error) error {
	if s.open {
		return err // its header is out with the size: no placeholder can take its place
	}
	h, terr := TarHeader(ArchiveName(&s.in[i], s.onob, true), 0)
	if terr != nil {
		return terr
	}
	_, werr := s.out.Write(h)
	return werr
}

func (s *toTar) end() error {
	if _, err := s.out.Write(zeros[:]); err != nil {
		return err
	}
	return s.out.Flush()
}

func (s *toTar) flush() error { return s.out.Flush() }

// dataWriter makes Data frames of a byte stream and sums it for the trailer.
type dataWriter struct {
	w    *wire.Writer
	buf  []byte
	sum  xxh3.Hasher
	n    uint64
	once bool
}

// Write implements io.Writer.
func (d *dataWriter) Write(p []byte) (int, error) {
	total := len(p)
	_, _ = d.sum.Write(p)
	d.n += uint64(total)
	for len(p) > 0 {
		k := min(len(p), wire.ChunkSize-len(d.buf))
		d.buf = append(d.buf, p[:k]...)
		p = p[k:]
		if len(d.buf) == wire.ChunkSize {
			if err := d.frame(); err != nil {
				return 0, err
			}
		}
	}
	return total, nil
}

func (d *dataWriter) frame() error {
	if len(d.buf) == 0 {
		return nil
	}
	err := d.w.Frame(&peer.Data{}, d.buf)
	d.buf = d.buf[:0]
	return err
}

// settle sends the first entry at once; later ones fill a chunk.
func (d *dataWriter) settle() error {
	if d.once {
		return nil
	}
	d.once = true
	return d.Flush()
}

// Flush sends what is there.
func (d *dataWriter) Flush() error {
	if err := d.frame(); err != nil {
		return err
	}
	return d.w.Flush()
}

// WriteTar writes the items that next gives, up to io.EOF, as a TAR stream: the same
// bytes as a DT makes of the same entries.
func WriteTar(ctx context.Context, w io.Writer, onob bool, next func() (*Item, error)) error {
	t := &tarWriter{w: w, onob: onob}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		it, err := next()
		if err == io.EOF {
			return t.close()
		}
		if err != nil {
			return err
		}
		if err := t.item(it); err != nil {
			return err
		}
	}
}
