package batching

import (
	"context"
	"io"
	"sync"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// feeder reads entries from a Source and hands them on chunk by chunk: what a sender
// does for a DT, and a DT for the entries it owns itself.
type feeder struct {
	src Source
	buf []byte // one chunk
}

func newFeeder(src Source) *feeder { return &feeder{src: src, buf: make([]byte, wire.ChunkSize)} }

// Feed reads an entry from src and hands it on piece by piece, at least one, with first and
// last marked: size and version count with the first, the xxh3-64 of the whole with the
// last. A piece is valid during the call. What goes wrong with one copy is made good with
// another where the Source has one.
func Feed(ctx context.Context, src Source, e *Entry, emit func(first, last bool, p *Payload, data []byte, sum uint64) error) error {
	f := feeders.Get().(*feeder)
	defer func() {
		f.src = nil
		feeders.Put(f)
	}()
	f.src = src
	err := f.feed(ctx, e, emit)
	if ee, ok := err.(*entryError); ok {
		return ee.err
	}
	return err
}

var feeders = sync.Pool{New: func() any { return newFeeder(nil) }}

// chunkFunc takes a piece of an entry. size and version come with the first piece,
// sum with the last. data is valid during the call.
type chunkFunc func(first, last bool, p *Payload, data []byte, sum uint64) error

// entryError is a failure of one entry, as against one of the stream it goes to.
type entryError struct{ err error }

func (e *entryError) Error() string { return e.err.Error() }

// part is how much of an entry has been handed on.
type part struct {
	got, size int64 // bytes
	version   uint64
	hash      xxh3.Hasher // of what has been handed on, kept for entries of more than one chunk
}

// feed reads one entry. Its error is an *entryError when the entry failed, else emit's.
func (f *feeder) feed(ctx context.Context, e *Entry, emit chunkFunc) error {
	return f.feedFrom(ctx, e, &part{}, emit)
}

// feedFrom reads what is left of an entry that another node began to deliver. The
// checksum that the Source knows is compared before the last piece goes out, so an
// entry of one chunk that is corrupt never leaves.
func (f *feeder) feedFrom(ctx context.Context, e *Entry, have *part, emit chunkFunc) error {
	p, err := f.src.Open(ctx, e)
	for {
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err() // the batch ends, not the entry alone
			}
			return &entryError{err}
		}
		if have.got > 0 && (p.Version != have.version || p.Size != have.size) {
			p.Close()
			return &entryError{&errs.Error{Code: errs.VersionMismatch, Op: "read", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
				Msg: "the object was replaced while it was read"}}
		}
		have.size, have.version = p.Size, p.Version
		err = f.pump(ctx, e, &p, have, emit)
		p.Close()
		ee, ok := err.(*entryError)
		if !ok || p.Again == nil || ctx.Err() != nil {
			return err
		}
		// What is out can't be taken back, but it may be sound: the checksum of the whole,
		// continued from another copy, tells.
		next, again := p.Again(ctx, ee.err)
		if again != nil {
			return err
		}
		p, err = next, nil
	}
}

// pump hands on what is left of an open entry.
func (f *feeder) pump(ctx context.Context, e *Entry, p *Payload, have *part, emit chunkFunc) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		data := f.buf[:min(p.Size-have.got, int64(len(f.buf)))]
		if err := readFull(p, e, data, have.got); err != nil {
			return &entryError{err}
		}
		first, last := have.got == 0, have.got+int64(len(data)) == p.Size
		var sum uint64
		switch {
		case !last:
			_, _ = have.hash.Write(data)
		case first:
			sum = xxh3.Hash(data)
		default:
			whole := have.hash // a copy: should the piece be bad, another takes its place
			_, _ = whole.Write(data)
			sum = whole.Sum64()
		}
		if last {
			if err := checkSum(p, e, sum); err != nil {
				return &entryError{err}
			}
		}
		if err := emit(first, last, p, data, sum); err != nil {
			return err
		}
		if have.got += int64(len(data)); last {
			return nil
		}
	}
}

func readFull(p *Payload, e *Entry, data []byte, off int64) error {
	n, err := p.R.ReadAt(data, p.Off+off)
	if n == len(data) {
		return nil
	}
	code := errs.CodeOf(err)
	if err == io.EOF {
		code, err = errs.ChecksumMismatch, io.ErrUnexpectedEOF
	}
	return &errs.Error{Code: code, Op: "read", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath, Err: err}
}

func checkSum(p *Payload, e *Entry, sum uint64) error {
	if !p.Summed || p.Sum == sum {
		return nil
	}
	return &errs.Error{Code: errs.ChecksumMismatch, Op: "read", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
		Msg: "the bytes on disk aren't those that were stored"}
}

// stat opens an entry just to learn its metadata.
func (f *feeder) stat(ctx context.Context, e *Entry) Meta {
	p, err := f.src.Open(ctx, e)
	if err != nil {
		return Meta{Err: err}
	}
	defer p.Close()
	return Meta{Size: p.Size, Version: p.Version}
}

// frameSink writes entries as frames: to a client, or from a sender to its DT.
type frameSink struct {
	out   *flusher
	chunk chunkMessage
	fault errorMessage
}

// emit appends a piece.
func (s *frameSink) emit(i uint32, first, last bool, size int64, version uint64, data []byte, sum uint64) error {
	s.chunk = chunkMessage{Index: uint64(i), Sum: sum, Last: last}
	if first {
		s.chunk.Size, s.chunk.Version = uint64(size), version
	}
	return s.out.write(last, func(w *wire.Writer) error { return w.Frame(&s.chunk, data) })
}

func (s *frameSink) error(i uint32, err error, node string) error {
	s.fault = errorMessage{Index: uint64(i)}
	s.fault.SetErr(err, node)
	return s.out.write(true, func(w *wire.Writer) error { return w.Frame(&s.fault, nil) })
}

// metas writes the metadata of the entries whose indexes are given.
func (s *frameSink) metas(n int, at func(k int) (uint32, Meta)) error {
	for k := 0; k < n; {
		var m metaMessage
		for ; k < n && len(m.Metas) < entriesPerFrame; k++ {
			i, t := at(k)
			m.Index = append(m.Index, uint64(i))
			m.Metas = append(m.Metas, t)
		}
		if err := s.out.write(k == n, func(w *wire.Writer) error { return w.Frame(&m, nil) }); err != nil {
			return err
		}
	}
	return nil
}

// sendShare answers a TSend: this node's share of a batch, in ascending order. An
// entry that fails is reported in its place and the rest goes on, whatever the
// request says of errors: that is the DT's to decide.
func sendShare(ctx context.Context, src Source, node string, share []Entry, index []uint32, msg *batchMessage, w *wire.Writer, m *metrics) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := newFeeder(prepare(ctx, src, share))
	s := &frameSink{out: newFlusher(w, nil)}
	b := newBeacon(s.out, msg.Wait)
	defer b.done()
	defer s.out.stop()
	each := b.in(ctx)
	if msg.NoStrm {
		metas := make([]Meta, len(share))
		for k := range share {
			if err := ctx.Err(); err != nil {
				return err
			}
			metas[k] = f.stat(each, &share[k])
			b.done()
		}
		if err := s.metas(len(share), func(k int) (uint32, Meta) { return index[k], metas[k] }); err != nil {
			return err
		}
	}
	for k := range share {
		if err := ctx.Err(); err != nil {
			return err
		}
		i := index[k]
		err := f.feed(each, &share[k], func(first, last bool, p *Payload, data []byte, sum uint64) error {
			if last {
				m.sent(share[k].Kind(), p.Size)
			}
			return s.emit(i, first, last, p.Size, p.Version, data, sum)
		})
		b.done()
		if ee, ok := err.(*entryError); ok {
			err = s.error(i, ee.err, node)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
