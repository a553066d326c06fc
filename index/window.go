package index

import (
	"bytes"
	"errors"
	"io"

	"sheaf/internal/errs"
)

const (
	blockSize = 512 // of tar; everything in one begins on a multiple of it

	// How much is read at once. After a jump over a large payload only a header
	// is wanted, with room for the extended ones that come before it. When
	// headers lie close to each other it pays to read on: small strided reads
	// defeat the kernel's read-ahead.
	minAhead = 4 << 10
	maxAhead = 64 << 10
	// A jump up to this far still counts as reading on.
	nearJump = 32 << 10
)

var zeroBlock [blockSize]byte

// window reads a shard forward, as archive/tar wants it: it has a Seek, so that
// payloads are jumped over. It also watches what passes, since archive/tar
// doesn't tell a clean end of the archive from some truncated ones.
type window struct {
	src   io.ReaderAt
	size  int64
	alive func() error // asked before each read of src: the error to stop with, or nil

	buf   []byte // the bytes of src from at
	at    int64
	pos   int64 // of the next byte to give
	ahead int
	err   error // the first failure, with its code; all later reads fail with it

	// What was seen since the last call of look.
	block  int64 // where the last whole block that was read begins
	first  int64 // where the first that isn't all zeros does, if header
	header bool  // there was one
	ended  bool  // the last whole block is all zeros
	lone   bool  // the last whole block isn't, and the one before is
}

var _ io.ReadSeeker = (*window)(nil)

func newWindow(src io.ReaderAt, size int64, alive func() error) *window {
	return &window{src: src, size: size, alive: alive, ahead: minAhead}
}

// Read fills p as far as the shard goes.
func (w *window) Read(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	start, n := w.pos, 0
	for n < len(p) && w.pos < w.size {
		if w.pos < w.at || w.pos >= w.at+int64(len(w.buf)) {
			if err := w.fill(); err != nil {
				return n, err
			}
		}
		c := copy(p[n:], w.buf[w.pos-w.at:])
		n += c
		w.pos += int64(c)
	}
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	if n == blockSize && start%blockSize == 0 {
		zero := bytes.Equal(p, zeroBlock[:])
		w.block = start
		w.lone = w.ended && !zero
		w.ended = zero
		if !zero && !w.header {
			w.header, w.first = true, start
		}
	}
	return n, nil
}

// look forgets which blocks were seen.
func (w *window) look() { w.header, w.ended, w.lone = false, false, false }

// Seek jumps forward, up to the shard's end.
func (w *window) Seek(offset int64, whence int) (int64, error) {
	if w.err != nil {
		return 0, w.err
	}
	if whence != io.SeekCurrent || offset < 0 {
		return 0, w.fail(errs.New(errs.Internal, op, "a shard is only read forward"))
	}
	if offset > w.size-w.pos {
		return 0, w.fail(bad(w.pos, "%d bytes of payload, and the shard ends after %d", offset, w.size-w.pos))
	}
	w.pos += offset
	return w.pos, nil
}

// peek gives the next n bytes, fewer at the shard's end, and stays where it is.
// n is at most minAhead. The bytes are valid until the next call.
func (w *window) peek(n int) ([]byte, error) {
	if w.pos >= w.size {
		return nil, nil
	}
	if err := w.fill(); err != nil {
		return nil, err
	}
	return w.buf[:min(n, len(w.buf))], nil
}

// fill reads from pos on.
func (w *window) fill() error {
	if err := w.alive(); err != nil {
		return w.fail(errs.Wrap(errs.CodeOf(err), op, err))
	}
	if jump := w.pos - (w.at + int64(len(w.buf))); jump >= 0 && jump <= nearJump {
		w.ahead = min(2*w.ahead, maxAhead)
	} else {
		w.ahead = minAhead
	}
	want := int(min(int64(w.ahead), w.size-w.pos))
	if cap(w.buf) < want {
		w.buf = make([]byte, want)
	}
	n, err := w.src.ReadAt(w.buf[:want], w.pos)
	w.buf, w.at = w.buf[:n], w.pos
	switch {
	case n == want:
		return nil
	case err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return w.fail(bad(w.pos+int64(n), "the shard ends here, not after %d bytes", w.size))
	}
	return w.fail(errs.Wrap(errs.CodeOf(err), op, err))
}

func (w *window) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}
