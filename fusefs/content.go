package fusefs

import (
	"context"
	"io"
	"sync"

	"sheaf/internal/errs"
	"sheaf/peer"
)

const (
	wholeSize   = 1 << 20   // files up to this size are fetched with one call
	firstWindow = 256 << 10 // read-ahead at the begin of a sequence
	lastWindow  = 4 << 20   // and the most it grows to; a handle holds two
)

// content brings the bytes of one version of a file from the cluster. Files read
// from front to back are fetched ahead in growing windows; other reads fetch what
// they ask for.
type content struct {
	// dependencies
	f      *FS
	ctx    context.Context // ends with the handle, and with the mount
	cancel context.CancelFunc

	// constants
	bucket, object, member string
	v                      version

	mu        sync.Mutex
	chunks    []*chunk // at most two, neighbours, in order
	window    int64    // size of the last one asked for
	randomEnd int64    // where the last read outside of them ended
}

// chunk is a range that is fetched as one. Its goroutine writes data and err before
// it closes done.
type chunk struct {
	off, end int64
	data     []byte
	err      error
	done     chan struct{}
}

func newContent(f *FS, bucket, object, member string, v version) *content {
	c := &content{f: f, bucket: bucket, object: object, member: member, v: v, randomEnd: -1}
	c.ctx, c.cancel = context.WithCancel(f.ctx)
	return c
}

// close stops what is being fetched.
func (c *content) close() { c.cancel() }

// read fills dest, which lies within the file.
func (c *content) read(ctx context.Context, dest []byte, off int64) error {
	for len(dest) > 0 {
		ch := c.chunkAt(off)
		if ch == nil {
			c.mu.Lock()
			c.randomEnd = off + int64(len(dest))
			c.mu.Unlock()
			return c.fetch(ctx, dest, off)
		}
		select {
		case <-ch.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if ch.err != nil {
			c.drop(ch) // so that a later read tries again
			return ch.err
		}
		n := copy(dest, ch.data[off-ch.off:])
		dest, off = dest[n:], off+int64(n)
	}
	return nil
}

// chunkAt gives the chunk with the byte at off, beginning one where a sequence goes
// on; nil for a read out of sequence.
func (c *content) chunkAt(off int64) *chunk {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := int64(-1)
	for i, ch := range c.chunks {
		if ch.off <= off && off < ch.end {
			if i == len(c.chunks)-1 && off >= ch.off+(ch.end-ch.off)/2 {
				c.begin(ch.end, min(2*c.window, lastWindow))
			}
			return ch
		}
		last = ch.end
	}
	switch {
	case c.v.size <= wholeSize:
		return c.begin(0, c.v.size)
	case off == last:
		return c.begin(off, min(2*c.window, lastWindow))
	case off == 0 || off == c.randomEnd:
		c.chunks = nil
		return c.begin(off, firstWindow)
	}
	return nil
}

// begin starts to fetch a chunk, letting go of the one before the last. c.mu is held.
func (c *content) begin(off, window int64) *chunk {
	end := min(off+window, c.v.size)
	if off >= end {
		return nil
	}
	ch := &chunk{off: off, end: end, done: make(chan struct{})}
	c.window = window
	c.chunks = append(c.chunks, ch)
	if len(c.chunks) > 2 {
		c.chunks = c.chunks[1:]
	}
	// Owned by the handle, whose close cancels it; the mount's end waits for it. Its
	// context is not a reader's: others may wait for the same bytes.
	c.f.work.Go(func() {
		defer close(ch.done)
		data := make([]byte, end-off)
		if ch.err = c.fetch(c.ctx, data, off); ch.err == nil {
			ch.data = data
		}
	})
	return ch
}

func (c *content) drop(bad *chunk) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.chunks {
		if ch == bad {
			c.chunks = nil
			return
		}
	}
}

// fetch reads one range of the version that was opened.
func (c *content) fetch(ctx context.Context, dest []byte, off int64) error {
	o := peer.GetOptions{ArchPath: c.member, Start: off, Length: int64(len(dest))}
	whole := off == 0 && int64(len(dest)) == c.v.size
	if whole {
		o.Length = 0 // which makes the client check the object's checksum
	}
	info, body, err := c.f.objects.Get(ctx, c.bucket, c.object, o)
	if err != nil {
		return err
	}
	defer body.Close()
	fail := func(code errs.Code, msg string) error {
		return &errs.Error{Code: code, Op: "read", Bucket: c.bucket, Object: c.object, Member: c.member, Msg: msg}
	}
	if info.Version != c.v.version {
		return fail(errs.VersionMismatch, "the object was replaced while it was open")
	}
	if _, err := io.ReadFull(body, dest); err != nil {
		if errs.CodeOf(err) == errs.Internal { // an end too early is no error of the cluster's
			return fail(errs.Internal, "the answer ends too early")
		}
		return err
	}
	// The verdict on the bytes comes with their end.
	var one [1]byte
	switch n, err := body.Read(one[:]); {
	case n > 0:
		return fail(errs.Internal, "the answer is longer than what was asked for")
	case err != nil && err != io.EOF:
		return err
	}
	return nil
}
