package backend

import (
	"context"
	"io"
	"math/rand/v2"
	"time"

	"sheaf/internal/errs"
)

// Reader reads an object of a backend, or a part of it. When the connection breaks it
// asks for the rest of the same version; where that is another one by now, it fails
// with VersionMismatch rather than join two objects.
type Reader struct {
	b       *Bucket
	ctx     context.Context
	name    string
	off     int64 // of the next byte in the object
	length  int64 // bytes still wanted; −1 until the first answer says
	version string

	obj  Object
	body io.ReadCloser
	err  error
}

var _ io.ReadCloser = (*Reader)(nil)

// Object describes the object that is read; Size is that of the whole.
func (r *Reader) Object() Object { return r.obj }

// Left is how many bytes are still to come.
func (r *Reader) Left() int64 { return r.length }

func (r *Reader) open() error {
	obj, body, err := r.b.s.get(r.ctx, r.name, r.off, r.length, r.version)
	if err != nil {
		return err
	}
	r.obj, r.body, r.version = obj, body, obj.Version
	left := obj.Size - r.off
	if left < 0 {
		_ = body.Close()
		return errs.New(errs.RangeNotSatisfiable, "get", "the range begins behind the object's end")
	}
	if r.length < 0 || r.length > left {
		r.length = left
	}
	return nil
}

// Read implements io.Reader. io.EOF comes only when all that was asked for has been read.
func (r *Reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for try := 0; r.length > 0; try++ {
		n, err := r.read(p[:min(int64(len(p)), r.length)])
		if n > 0 || len(p) == 0 || err == nil {
			return n, nil // what is wrong comes again with the next byte
		}
		if try+1 >= r.b.o.Attempts || !r.passing(err) || pause(r.ctx, try, r.b.o.MaxBackoff) != nil {
			r.err = r.b.fail(r.ctx, "get", err)
			return 0, r.err
		}
	}
	r.err = io.EOF
	return 0, io.EOF
}

// read makes one attempt, opening what is still wanted when there is nothing open.
func (r *Reader) read(p []byte) (int, error) {
	if r.body == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	n, err := r.body.Read(p)
	r.off += int64(n)
	r.length -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF // it isn't asked again once nothing is left
	}
	if err != nil && n == 0 {
		_ = r.body.Close()
		r.body = nil
	}
	return n, err
}

// passing tells whether what failed may work at the next try.
func (r *Reader) passing(err error) bool {
	if r.ctx.Err() != nil {
		return false
	}
	switch r.b.s.fault(err).Code {
	case errs.Unavailable, errs.Timeout:
		return true
	}
	return false
}

// Close ends the reading.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errs.New(errs.Canceled, "get", "the reader is closed")
	}
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}

// pause waits a random part of what is due before another try.
func pause(ctx context.Context, try int, most time.Duration) error {
	due := min(most, 50*time.Millisecond<<min(try, 10))
	t := time.NewTimer(rand.N(due) + 1)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
