package index

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"

	"sheaf/internal/errs"
)

// counter counts what is read of a shard.
type counter struct {
	io.ReaderAt
	calls, bytes int64
	before       func() // called before each read, if set
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	if c.before != nil {
		c.before()
	}
	c.calls++
	c.bytes += int64(len(p))
	return c.ReaderAt.ReadAt(p, off)
}

// vast is a shard of n members of the same size whose payloads, all zeros, are
// nowhere.
type vast struct {
	headers [][]byte
	size    int64 // of a member, a multiple of blockSize
}

func newVast(t testing.TB, n int, size int64) (vast, int64) {
	v := vast{size: size}
	for i := range n {
		h := file(fmt.Sprintf("m%04d", i))
		h.Format = tar.FormatGNU
		h.Size = size
		var b bytes.Buffer
		if err := tar.NewWriter(&b).WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		v.headers = append(v.headers, b.Bytes())
	}
	return v, int64(n)*(blockSize+size) + 2*blockSize
}

func (v vast) ReadAt(p []byte, off int64) (int, error) {
	clear(p)
	step := blockSize + v.size
	for i := off / step; i < int64(len(v.headers)) && i*step < off+int64(len(p)); i++ {
		if from := i*step - off; from >= 0 {
			copy(p[from:], v.headers[i])
		} else if -from < blockSize {
			copy(p, v.headers[i][-from:])
		}
	}
	return len(p), nil
}

func TestPayloadsAreNotRead(t *testing.T) {
	for _, c := range []struct {
		n, size             int64
		maxCalls, maxBytes  int64
		nameOfLast, comment string
	}{
		{300, 10 << 30, 310, 310 * minAhead, "m0299", "large members: one small read each"},
		{300, 100 << 10, 310, 310 * minAhead, "m0299", "middling members: the same"},
		{3000, 512, 60, 3100 * 1024, "m2999", "small members: many to a read"},
		{3000, 0, 30, 3100 * 512, "m2999", "empty members: many to a read"},
	} {
		v, size := newVast(t, int(c.n), c.size)
		r := &counter{ReaderAt: v}
		x, err := Build(context.Background(), r, size, 0)
		if err != nil {
			t.Fatalf("%s: %v", c.comment, err)
		}
		if r.calls > c.maxCalls || r.bytes > c.maxBytes {
			t.Errorf("%s: %d bytes in %d reads of a shard of %d", c.comment, r.bytes, r.calls, size)
		}
		m, ok := x.Lookup(c.nameOfLast)
		if want := (c.n-1)*(blockSize+c.size) + blockSize; !ok || m.Offset != want || m.Size != c.size {
			t.Errorf("%s: last member %v, want it at %d", c.comment, m, want)
		}
		if x.Len() != int(c.n) {
			t.Errorf("%s: %d members", c.comment, x.Len())
		}
	}
}

func TestContext(t *testing.T) {
	v, size := newVast(t, 100, 1<<20)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Build(ctx, v, size, 0); !errs.IsCode(err, errs.Canceled) || !errors.Is(err, context.Canceled) {
		t.Errorf("ended before it began: %v", err)
	}
	if _, err := Build(ctx, v, 0, 0); !errs.IsCode(err, errs.Canceled) {
		t.Errorf("ended, and nothing to read: %v", err)
	}
	ctx, cancel = context.WithCancel(context.Background())
	r := &counter{ReaderAt: v}
	r.before = func() {
		if r.calls == 10 {
			cancel()
		}
	}
	if _, err := Build(ctx, r, size, 0); !errs.IsCode(err, errs.Canceled) || r.calls != 11 {
		t.Errorf("ended at the 11th read: %v after %d reads", err, r.calls)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 0)
	defer cancel()
	if _, err := Build(ctx, v, size, 0); !errs.IsCode(err, errs.Timeout) {
		t.Errorf("out of time: %v", err)
	}
}

type failing struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestReadErrors(t *testing.T) {
	v, size := newVast(t, 100, 1<<20)
	// A failing disk isn't a bad shard.
	_, err := Build(context.Background(), failing{v, 5 << 20, syscall.EIO}, size, 0)
	if !errors.Is(err, syscall.EIO) || errs.IsCode(err, errs.BadShard) {
		t.Errorf("%v, want the error of the disk", err)
	}
	_, err = Build(context.Background(), failing{v, 5 << 20, syscall.ENOENT}, size, 0)
	if !errs.IsCode(err, errs.NotFound) {
		t.Errorf("%v, want not found", err)
	}
	// One shorter than it should be is, wherever that shows.
	full := mixed(t).bytes()
	for cut := 0; cut < len(full); cut += 100 {
		_, err := Build(context.Background(), bytes.NewReader(full[:cut]), int64(len(full)), 0)
		wantBad(t, err, fmt.Sprintf("at byte %d: the shard ends here, not after %d bytes", cut, len(full)))
	}
}

func TestWindow(t *testing.T) {
	data := make([]byte, 300_000)
	for i := range data {
		data[i] = byte(i / 7)
	}
	w := newWindow(bytes.NewReader(data), int64(len(data)), func() error { return nil })
	if b, err := w.peek(512); err != nil || !bytes.Equal(b, data[:512]) {
		t.Fatal("peek gives other bytes", err)
	}
	at := 0
	for i := 0; at < len(data); i++ {
		p := make([]byte, i*37%5000)
		n, err := w.Read(p)
		if err != nil || !bytes.Equal(p[:n], data[at:at+n]) {
			t.Fatalf("at %d: %v", at, err)
		}
		at += n
		if n < len(p) && at != len(data) {
			t.Fatalf("%d of %d bytes at %d", n, len(p), at)
		}
		skip := min(i*i*13%40_000, len(data)-at)
		if pos, err := w.Seek(int64(skip), io.SeekCurrent); err != nil || pos != int64(at+skip) {
			t.Fatalf("at %d after a jump of %d: %v", pos, skip, err)
		}
		at += skip
	}
	if n, err := w.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("at the end: %d %v", n, err)
	}
	if n, err := w.Read(nil); n != 0 || err != nil {
		t.Errorf("nothing wanted: %d %v", n, err)
	}
	if b, err := w.peek(10); len(b) != 0 || err != nil {
		t.Errorf("peek at the end: %q %v", b, err)
	}
	_, err := w.Seek(1, io.SeekCurrent)
	wantBad(t, err, "1 bytes of payload, and the shard ends after 0")
	if _, again := w.Read(make([]byte, 1)); again != err {
		t.Errorf("%v after a failure", again)
	}
	if _, again := w.Seek(0, io.SeekCurrent); again != err {
		t.Errorf("%v after a failure", again)
	}
	w = newWindow(bytes.NewReader(data), int64(len(data)), func() error { return nil })
	if _, err := w.Seek(0, io.SeekStart); !errs.IsCode(err, errs.Internal) {
		t.Errorf("back to the start: %v", err)
	}
}
