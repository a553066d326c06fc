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
	return &toFrames{frameSink: frameSink{out: newFlusher(w, nil)}, node: node}
}

func (s *toFrames) begin(metas []Meta) error {
	if metas == nil {
		return nil
	}
	return s.metas(len(metas), func(k int) (uint32, Meta) { return uint32(k), metas[k] })
}

func (s *toFrames) fail(i uint32, err error) error { return s.error(i, err, s.node) }

// end writes nothing: the call itself writes the trailer.
func (s *toFrames) end() error { s.out.stop(); return nil }

// toTar is the sink of a TAR stream, carried in Data frames.
type toTar struct {
	in   []Entry
	onob bool
	out  *flusher
	data dataWriter
	open bool // an entry was begun and not ended
}

func newTar(w *wire.Writer, req *Request) *toTar {
	s := &toTar{in: req.In, onob: req.Onob, data: dataWriter{w: w}}
	s.out = newFlusher(w, s.data.frame)
	return s
}

func (s *toTar) begin([]Meta) error { return nil }

// add appends pieces of the archive.
func (s *toTar) add(ready bool, pieces ...[]byte) error {
	return s.out.write(ready, func(*wire.Writer) error {
		for _, p := range pieces {
			if err := s.data.add(p); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *toTar) emit(i uint32, first, last bool, size int64, _ uint64, data []byte, _ uint64) error {
	var header, padding []byte
	if first {
		var err error
		if header, err = TarHeader(ArchiveName(&s.in[i], s.onob, false), size); err != nil {
			return err
		}
	}
	if last {
		padding = zeros[:TarPadding(size)]
	}
	s.open = !last
	return s.add(last, header, data, padding)
}

func (s *toTar) fail(i uint32, err error) error {
	if s.open {
		return err // its header is out with the size: no placeholder can take its place
	}
	header, err := TarHeader(ArchiveName(&s.in[i], s.onob, true), 0)
	if err != nil {
		return err
	}
	return s.add(true, header)
}

func (s *toTar) end() error {
	if err := s.add(false, zeros[:]); err != nil {
		return err
	}
	s.out.stop()
	return s.data.frame()
}

// dataWriter makes Data frames of a byte stream and sums it for the trailer.
type dataWriter struct {
	w   *wire.Writer
	buf []byte
	sum xxh3.Hasher
	n   uint64
}

func (d *dataWriter) add(p []byte) error {
	_, _ = d.sum.Write(p)
	d.n += uint64(len(p))
	for len(p) > 0 {
		k := min(len(p), wire.ChunkSize-len(d.buf))
		d.buf = append(d.buf, p[:k]...)
		p = p[k:]
		if len(d.buf) == wire.ChunkSize {
			if err := d.frame(); err != nil {
				return err
			}
		}
	}
	return nil
}

// frame writes what has been gathered as one frame.
func (d *dataWriter) frame() error {
	if len(d.buf) == 0 {
		return nil
	}
	err := d.w.Frame(&peer.Data{}, d.buf)
	d.buf = d.buf[:0]
	return err
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
