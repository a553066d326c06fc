package store

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
)

// Object is one version of an object, open for reading. It may be used by several
// goroutines at once; its owner calls Close.
type Object struct {
	s      *Store
	mount  *mountpath
	bucket string
	info   Info
	f      *os.File
}

var _ io.ReaderAt = (*Object)(nil)
var _ io.WriterTo = (*Object)(nil)

// Open opens an object. A file that is cut off, or that no Put wrote, is a
// ChecksumMismatch; the payload itself is only checked by Verify, VerifyReader and WriteTo.
func (s *Store) Open(bucket, name string) (*Object, error) {
	const op = "open"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return nil, fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	fd, a, at, err := b.find(name)
	if err != nil {
		return nil, fail(op, bucket, name, err)
	}
	return &Object{s: s, mount: at.br.mount, bucket: bucket, info: a.info(name), f: os.NewFile(uintptr(fd), at.path)}, nil
}

// Stat describes an object, with the checks of Open.
func (s *Store) Stat(bucket, name string) (Info, error) {
	const op = "stat"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return Info{}, fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	info, err := b.stat(name)
	return info, fail(op, bucket, name, err)
}

// Info describes the version that is open.
func (o *Object) Info() Info { return o.info }

// Size is the object's length in bytes.
func (o *Object) Size() int64 { return o.info.Size }

// File is the open file, for calls that want a descriptor (sendfile, FUSE passthrough).
// It stays the Object's: don't close it, and don't move its offset.
func (o *Object) File() *os.File { return o.f }

// Close gives the descriptor back.
func (o *Object) Close() error { return o.fail("close", o.f.Close()) }

// ReadAt reads a part, which isn't checked against the checksum of the whole. Its
// end of file is io.EOF itself.
func (o *Object) ReadAt(p []byte, off int64) (int, error) {
	n, err := o.readAt(p, off)
	if err != nil && err != io.EOF {
		err = o.fail("read", err)
	}
	return n, err
}

func (o *Object) readAt(p []byte, off int64) (int, error) {
	if err := o.mount.try("read", o.f.Name()); err != nil {
		return 0, o.mount.watch(err)
	}
	n, err := o.f.ReadAt(p, off)
	if err != io.EOF {
		err = o.mount.watch(err)
	}
	return n, err
}

// VerifyReader reads the object from its beginning. Where the last byte was read it
// gives io.EOF only if the whole has its checksum, else a ChecksumMismatch.
func (o *Object) VerifyReader() io.Reader {
	return &verifier{o: o, hash: xxh3.New()}
}

// Verify reads an object and compares its checksum. Unless limit is nil, it is called with
// the number of bytes before they are read, and may wait.
func (s *Store) Verify(ctx context.Context, bucket, name string, limit func(ctx context.Context, n int) error) (Info, error) {
	o, err := s.Open(bucket, name)
	if err != nil {
		return Info{}, err
	}
	defer o.Close()
	return o.info, o.verify(ctx, limit)
}

// Verify reads the object and compares its checksum.
func (o *Object) Verify(ctx context.Context) error { return o.verify(ctx, nil) }

func (o *Object) verify(ctx context.Context, limit func(ctx context.Context, n int) error) error {
	buf := o.s.buffers.Get().(*[bufferSize]byte)
	defer o.s.buffers.Put(buf)
	r := &verifier{o: o, hash: xxh3.New()}
	for {
		if err := ctx.Err(); err != nil {
			return o.fail("verify", err)
		}
		if n := min(int64(len(buf)), o.info.Size-r.off); limit != nil && n > 0 {
			if err := limit(ctx, int(n)); err != nil {
				return o.fail("verify", err)
			}
		}
		if _, err := r.Read(buf[:]); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// WriteTo writes the whole object to w. It checks the checksum, but after the fact: on a
// ChecksumMismatch w has got wrong bytes.
func (o *Object) WriteTo(w io.Writer) (int64, error) {
	buf := o.s.buffers.Get().(*[bufferSize]byte)
	defer o.s.buffers.Put(buf)
	// io.CopyBuffer would hand both ends to each other and skip the buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{o.VerifyReader()}, buf[:])
	if _, ok := err.(*errs.Error); !ok {
		err = o.fail("read", err)
	}
	return n, err
}

func (o *Object) fail(op string, err error) error { return fail(op, o.bucket, o.info.Name, err) }

// verifier hashes what it reads.
type verifier struct {
	o    *Object
	hash *xxh3.Hasher
	off  int64
	err  error
}

func (v *verifier) Read(p []byte) (int, error) {
	if v.err != nil || len(p) == 0 {
		return 0, v.err
	}
	p = p[:min(int64(len(p)), v.o.info.Size-v.off)]
	n, err := 0, error(nil)
	if len(p) > 0 {
		n, err = v.o.readAt(p, v.off)
		v.hash.Write(p[:n])
		v.off += int64(n)
	}
	switch {
	case err != nil && err != io.EOF:
		v.err = v.o.fail("read", err)
	case v.off == v.o.info.Size:
		v.err = io.EOF
		if got := v.hash.Sum64(); got != v.o.info.Checksum {
			v.err = v.mismatch(fmt.Sprintf("the payload has the checksum %016x, %016x was written", got, v.o.info.Checksum))
		}
	case err == io.EOF:
		v.err = v.mismatch(fmt.Sprintf("the file ends after %d bytes of %d", v.off, v.o.info.Size))
	}
	if n > 0 && v.err == io.EOF {
		return n, nil
	}
	return n, v.err
}

func (v *verifier) mismatch(why string) error {
	return v.o.fail("read", errs.New(errs.ChecksumMismatch, "", why))
}
