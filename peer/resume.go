package peer

import (
	"context"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
)

// resumingBody is a Get's bytes. When the node that they come from goes away, the rest
// is asked for from the offset that was reached: from the other nodes of the route,
// then from the first again. Only an answer for the same version counts.
type resumingBody struct {
	ctx  context.Context // of the Get, which the calls after it are parts of
	c    *Client
	req  *ObjectRequest
	info ObjectInfo // what the first answer said
	want int64      // bytes in all

	addrs []string // to ask, in order, and again from the beginning
	next  int      // of addrs
	tries int      // without a byte more
	body  *bodyReader
	n     int64        // bytes given out
	sum   *xxh3.Hasher // of all of them, once they have more than one source
	err   error
}

var _ io.WriterTo = (*resumingBody)(nil)

func newResumingBody(ctx context.Context, c *Client, r *route, req *ObjectRequest, info ObjectInfo, body *bodyReader) *resumingBody {
	b := &resumingBody{ctx: ctx, c: c, req: req, info: info, want: info.Size, body: body}
	switch {
	case req.Length > 0:
		b.want = req.Length
	case req.Start > 0:
		b.want = info.Size - req.Start
	}
	// Those not asked yet first; the one that answered, which may be back, last.
	asked := r.at
	for {
		if _, _, ok := r.next(); !ok {
			break
		}
	}
	b.addrs = append(append(b.addrs, r.addrs[asked:]...), r.addrs[:asked]...)
	return b
}

// Read implements io.Reader.
func (b *resumingBody) Read(p []byte) (int, error) {
	part, err := b.part()
	if err != nil {
		return 0, err
	}
	n := copy(p, part)
	b.took(n)
	return n, nil
}

// WriteTo implements io.WriterTo, without a copy of its own.
func (b *resumingBody) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for {
		part, err := b.part()
		switch err {
		case nil:
		case io.EOF:
			return total, nil
		default:
			return total, err
		}
		n, err := w.Write(part)
		b.took(n)
		total += int64(n)
		if err != nil {
			return total, err
		}
	}
}

// part gives bytes that haven't been taken, from another node if need be.
func (b *resumingBody) part() ([]byte, error) {
	for b.err == nil {
		err := b.body.fill()
		switch {
		case err == nil:
			return b.body.part, nil
		case err == io.EOF:
			b.err = b.whole()
		case !elsewhere(b.ctx, err) || b.info.Version == 0 || b.n > b.want:
			b.err = err
		default:
			b.err = b.resume(err)
		}
	}
	return nil, b.err
}

// took notes that n bytes of the part were taken.
func (b *resumingBody) took(n int) {
	if b.sum != nil {
		_, _ = b.sum.Write(b.body.part[:n])
	}
	b.body.part = b.body.part[n:]
	b.n += int64(n)
	b.tries = 0
}

// whole is io.EOF when all that was asked for has been given out. Bytes from one node
// were compared with its trailer; those from several are with the object's checksum.
func (b *resumingBody) whole() error {
	switch {
	case b.sum == nil:
		return io.EOF
	case b.n != b.want:
		return errs.New(errs.ChecksumMismatch, "get", fmt.Sprintf("%d of %d bytes came from several nodes", b.n, b.want))
	case b.req.Member == "" && b.n == b.info.Size && b.info.Checksum != 0 && b.sum.Sum64() != b.info.Checksum:
		return errs.New(errs.ChecksumMismatch, "get", "the bytes that came from several nodes aren't those that were stored")
	}
	return io.EOF
}

// resume goes on at another node. why is what ended the one before.
func (b *resumingBody) resume(why error) error {
	if b.sum == nil {
		sum := b.body.sum // so far all bytes came from one node, and were all taken
		b.sum = &sum
	}
	_ = b.body.Close()
	if b.n == b.want { // only the trailer is missing
		return b.whole()
	}
	rest := *b.req
	rest.Start, rest.Length = b.req.Start+b.n, -1
	if b.req.Length > 0 {
		rest.Length = b.req.Length - b.n
	}
	b.c.stale.Store(true)
	for b.tries < 2*len(b.addrs) && b.ctx.Err() == nil {
		addr := b.addrs[b.next%len(b.addrs)]
		b.next, b.tries = b.next+1, b.tries+1
		info, body, _, err := b.c.getAt(b.ctx, addr, len(b.addrs) > 1, &rest)
		if err != nil {
			continue // it has another version, or none, or isn't there: the first failure tells more
		}
		if info.Version != b.info.Version || info.Size != b.info.Size || info.Checksum != b.info.Checksum {
			_ = body.Close()
			why = &errs.Error{Code: errs.VersionMismatch, Op: "get", Bucket: b.req.Bucket, Object: b.req.Object, Member: b.req.Member, Msg: "it was written to while it was read"}
			continue
		}
		b.body = body
		return nil
	}
	return why
}

// Close ends the call that the bytes come from.
func (b *resumingBody) Close() error {
	if b.err == nil || b.err == io.EOF {
		b.err = errs.New(errs.Canceled, "receive", "the reader is closed")
	}
	return b.body.Close()
}
