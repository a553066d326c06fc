package batching

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	mrand "math/rand/v2"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// Client makes GetBatch requests to a cluster. Safe for concurrent use.
type Client struct{ p *peer.Client }

// NewClient makes a Client that goes by p's cluster map.
func NewClient(p *peer.Client) *Client { return &Client{p: p} }

// NewID makes a request id.
func NewID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// maxRedirects bounds how often a request is sent on; after that the node asked is the DT.
const maxRedirects = 3

// GetBatch asks for all entries of req with one request and returns their stream, in
// request order. req is normalized in place and must not change until the stream is
// closed; its output format is frames (see GetArchive). A node that has too much to
// do is asked again, with growing pauses, until ctx ends.
//
// Errors: InvalidArgument or TooManyEntries for the request, PermissionDenied,
// Unavailable, Timeout. What happens later comes from the stream.
func (c *Client) GetBatch(ctx context.Context, req *Request) (*Stream, error) {
	req.OutputFormat, req.Mime = FormatFrames, ""
	call, err := c.open(ctx, req)
	if err != nil {
		return nil, err
	}
	s := &Stream{call: call, req: req}
	if err := s.readMetas(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// GetArchive asks for a batch in an archive format (req.Format; FormatTar when it is
// frames) and writes the archive to w as the Designated Target makes it. The
// stream is checked against the trailer's checksum at its end; an error means that
// what was written isn't whole.
func (c *Client) GetArchive(ctx context.Context, req *Request, w io.Writer) (Totals, error) {
	if req.Format() == FormatFrames {
		req.OutputFormat, req.Mime = FormatTar, ""
	}
	call, err := c.open(ctx, req)
	if err != nil {
		return Totals{}, err
	}
	defer call.Close()
	var sum xxh3.Hasher
	var n uint64
	for {
		h, end, err := call.Next()
		if err == io.EOF {
			if end.Bytes != n || end.Sum != sum.Sum64() {
				return Totals{}, errs.New(errs.ChecksumMismatch, "getbatch", fmt.Sprintf("%d bytes of the archive arrived, %d were sent", n, end.Bytes))
			}
			return Totals{OK: int(end.Entries - end.Failed), Failed: int(end.Failed), Bytes: int64(n)}, nil
		}
		if err != nil {
			return Totals{}, err
		}
		if h.Type != wire.TData {
			continue // metadata that an archive has no room for
		}
		data, err := call.Payload()
		if err != nil {
			return Totals{}, err
		}
		_, _ = sum.Write(data)
		n += uint64(len(data))
		if _, err := w.Write(data); err != nil {
			return Totals{}, errs.Wrap(errs.CodeOf(err), "write archive", err)
		}
	}
}

// Totals are a finished batch's counts.
type Totals struct {
	OK     int   // entries delivered
	Failed int   // placeholders
	Bytes  int64 // of payload, or of the archive
}

// open makes the call up to the DT's acceptance.
func (c *Client) open(ctx context.Context, req *Request) (*peer.Call, error) {
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	if req.ID == "" {
		req.ID = NewID()
	}
	m := c.p.Map()
	dt := chooseDT(m, req.ID, req.Coloc, req.In)
	if dt < 0 {
		return nil, errs.New(errs.Unavailable, "getbatch", "the cluster map has no nodes")
	}
	addr := m.Nodes[dt].Addr
	pause := retryAfter
	tried := map[string]bool{} // nodes that can't be reached
	for redirects := 0; ; {
		watched := m.Count(peer.Up) > len(tried)+1 // there are others to ask
		call, next, again, err := c.ask(ctx, addr, req, watched, redirects >= maxRedirects || len(tried) > 0)
		switch {
		case err == nil && call != nil:
			return call, nil
		case err == nil:
			redirects++
			addr = next
		case again:
		case errs.CodeOf(err) == errs.TooManyRequests:
			// Full jitter: those who were refused together don't come back together.
			t := time.NewTimer(time.Duration(mrand.Int64N(int64(pause))))
			pause = min(2*pause, 5*time.Second)
			select {
			case <-t.C:
			case <-ctx.Done():
				t.Stop()
				return nil, err
			}
		case errs.CodeOf(err) == errs.Unavailable && ctx.Err() == nil:
			// Any node can assemble: the next in HRW order does, by a map that is as new as can be had.
			tried[addr] = true
			_ = c.p.Refresh(ctx)
			if addr = nextDT(c.p.Map(), req.ID, tried); addr == "" {
				return nil, err
			}
		default:
			return nil, err
		}
	}
}

// nextDT gives the address of the first node, in HRW order for the request, that wasn't
// tried; "" when none is left.
func nextDT(m *peer.Map, id string, tried map[string]bool) string {
	for _, i := range m.Holders(peer.HashKey(id), len(m.Nodes)) {
		if a := m.Nodes[i].Addr; !tried[a] {
			return a
		}
	}
	return ""
}

// ask makes one attempt: the accepted call, or another address to ask. Watched, a node
// that is gone is given up within seconds.
func (c *Client) ask(ctx context.Context, addr string, req *Request, watched, here bool) (_ *peer.Call, next string, again bool, err error) {
	open := c.p.Endpoint().Open
	if watched {
		open = c.p.Endpoint().OpenWatched
	}
	call, err := open(ctx, addr)
	if err != nil {
		return nil, "", false, err
	}
	keep := false
	defer func() {
		if !keep {
			again = err != nil && ctx.Err() == nil && errs.CodeOf(err) == errs.Unavailable && call.Stale() && !call.Lost()
			call.Close()
		}
	}()
	msg := &batchMessage{Kind: wire.TBatch, ID: req.ID, N: uint64(len(req.In)), Format: req.Format(), NoStrm: !req.Streaming(), Onob: req.Onob,
		Coer: req.Coer, MaxSoft: int64(req.MaxSoftErrors), Coloc: uint64(req.Coloc), Timeout: time.Duration(req.Timeout), Here: here, MapVers: c.p.Map().Version}
	if err := writeEntries(call.W, msg, req.In, nil); err != nil {
		return nil, "", false, errs.Wrap(errs.Unavailable, "getbatch", err)
	}
	if err := call.CloseSend(); err != nil {
		return nil, "", false, err
	}
	h, _, err := call.Next()
	switch {
	case err == io.EOF:
		return nil, "", false, errs.New(errs.Protocol, "getbatch", "an answer without acceptance")
	case err != nil:
		return nil, "", false, err
	case h.Type == wire.TRedirect:
		var r redirectMessage
		err := call.R.Decode(&r)
		return nil, r.Addr, false, err
	}
	var a acceptedMessage
	if err := call.R.Decode(&a); err != nil {
		return nil, "", false, err
	}
	keep = true
	call.Trust() // the batch is this node's now
	return call, "", false, nil
}

// Stream is a batch coming back. Call Next until io.EOF, or range over Items, then
// Close. It is not safe for concurrent use.
type Stream struct {
	call  *peer.Call
	req   *Request
	item  Item
	body  itemBody
	metas []Meta
	i     int // index of the next item
	total Totals
	err   error
}

// ID is the request's id, for logs.
func (s *Stream) ID() string { return s.req.ID }

// Metas is the metadata of all entries, in request order, when the request isn't
// streaming; else nil.
func (s *Stream) Metas() []Meta { return s.metas }

// Totals are the counts so far; those of the whole batch after io.EOF.
func (s *Stream) Totals() Totals { return s.total }

// Close ends the batch, cancelling what is still under way.
func (s *Stream) Close() error {
	s.call.Close()
	if s.err == nil {
		s.err = errs.New(errs.Canceled, "getbatch", "the stream is closed")
	}
	return nil
}

func (s *Stream) readMetas() error {
	for !s.req.Streaming() && len(s.metas) < len(s.req.In) {
		h, _, err := s.call.Next()
		if err == io.EOF || err == nil && h.Type != wire.TEntryMeta {
			return errs.New(errs.Protocol, "getbatch", "data before all of the metadata")
		}
		if err != nil {
			return err
		}
		var m metaMessage
		if err := s.call.R.Decode(&m); err != nil {
			return err
		}
		s.metas = append(s.metas, m.Metas...)
	}
	return nil
}

// Next gives the next item, valid until the following call; io.EOF after the last,
// when the trailer has confirmed that the batch is whole. Any other error ends the
// batch and names the entry that caused it.
func (s *Stream) Next() (*Item, error) {
	if s.err != nil {
		return nil, s.err
	}
	it, err := s.next()
	if err != nil {
		s.err = err
		return nil, err
	}
	return it, nil
}

func (s *Stream) next() (*Item, error) {
	if s.item.body != nil { // nobody read it
		if _, err := s.item.WriteTo(io.Discard); err != nil && !s.body.failed {
			return nil, err
		}
	}
	if s.body.broken != nil {
		return nil, s.body.broken
	}
	h, end, err := s.call.Next()
	if err == io.EOF {
		if s.i != len(s.req.In) || end.Entries != uint64(s.i) {
			return nil, errs.New(errs.Protocol, "getbatch", fmt.Sprintf("%d of %d entries came, the trailer counts %d", s.i, len(s.req.In), end.Entries))
		}
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	if s.i == len(s.req.In) {
		return nil, errs.New(errs.Protocol, "getbatch", "more entries than were asked for")
	}
	s.item = Item{Index: s.i, Entry: &s.req.In[s.i]}
	switch h.Type {
	case wire.TEntryError:
		var m errorMessage
		if err := s.call.R.Decode(&m); err != nil {
			return nil, err
		}
		if s.item.Err = m.Err(); m.Index != uint64(s.i) || s.item.Err == nil {
			return nil, errs.New(errs.Protocol, "getbatch", fmt.Sprintf("an error of entry %d where entry %d is due", m.Index, s.i))
		}
		s.total.Failed++
	case wire.TChunk:
		var c chunkMessage
		if err := s.call.R.Decode(&c); err != nil {
			return nil, err
		}
		s.body = itemBody{s: s, it: &s.item, chunk: c, left: int64(c.Size)}
		s.item.Size, s.item.Version, s.item.body = int64(c.Size), c.Version, &s.body
		s.total.OK++
	default:
		return nil, errs.New(errs.Protocol, "getbatch", fmt.Sprintf("message %d among the entries", h.Type))
	}
	s.i++
	return &s.item, nil
}

// Items ranges over the items. After an error nothing more comes.
func (s *Stream) Items() iter.Seq2[*Item, error] {
	return func(yield func(*Item, error) bool) {
		for {
			it, err := s.Next()
			if err == io.EOF {
				return
			}
			if !yield(it, err) || err != nil {
				return
			}
		}
	}
}

// itemBody is the payload of the current item on its way.
type itemBody struct {
	s      *Stream
	it     *Item
	chunk  chunkMessage // of the frame whose payload comes next
	left   int64
	failed bool  // the entry ended as a placeholder after it had begun
	broken error // the batch ended within it
}

// WriteTo implements io.WriterTo.
func (b *itemBody) WriteTo(w io.Writer) (int64, error) {
	var h xxh3.Hasher
	var total int64
	var werr error
	for {
		data, err := b.s.call.Payload()
		if err != nil {
			return total, b.breaks(err)
		}
		if b.chunk.Index != uint64(b.it.Index) || int64(len(data)) > b.left || b.chunk.Last != (int64(len(data)) == b.left) {
			return total, b.breaks(errs.New(errs.Protocol, "getbatch", fmt.Sprintf("a chunk of entry %d with %d bytes where %d of entry %d are due", b.chunk.Index, len(data), b.left, b.it.Index)))
		}
		b.left -= int64(len(data))
		_, _ = h.Write(data)
		if werr == nil {
			// After a failed write the rest is still read: the next item begins behind it.
			_, werr = w.Write(data)
			total += int64(len(data))
		}
		if b.chunk.Last {
			break
		}
		if err := b.advance(); err != nil {
			return total, err
		}
	}
	b.it.sum = h.Sum64()
	if b.it.sum != b.chunk.Sum {
		e := b.it.Entry
		err := &errs.Error{Code: errs.ChecksumMismatch, Op: fmt.Sprintf("entry %d", b.it.Index), Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
			Entry: b.it.Index + 1, Msg: "the bytes that arrived aren't those that were sent"}
		if b.s.req.Coer {
			return total, b.fails(err)
		}
		return total, b.breaks(err)
	}
	b.s.total.Bytes += b.it.Size
	return total, werr
}

// advance reads the next frame of the entry.
func (b *itemBody) advance() error {
	h, _, err := b.s.call.Next()
	if err == io.EOF {
		return b.breaks(errs.New(errs.Protocol, "getbatch", "the trailer came within an entry"))
	}
	if err != nil {
		return b.breaks(err)
	}
	switch h.Type {
	case wire.TChunk:
		b.chunk = chunkMessage{}
		if err := b.s.call.R.Decode(&b.chunk); err != nil {
			return b.breaks(err)
		}
		return nil
	case wire.TEntryError:
		var m errorMessage
		if err := b.s.call.R.Decode(&m); err != nil {
			return b.breaks(err)
		}
		return b.fails(m.Err())
	}
	return b.breaks(errs.New(errs.Protocol, "getbatch", fmt.Sprintf("message %d within an entry", h.Type)))
}

// fails records that the entry, counted as delivered when it began, is not.
func (b *itemBody) fails(err error) error {
	b.failed = true
	b.s.total.OK--
	b.s.total.Failed++
	return err
}

// breaks records that the stream can't be used any more.
func (b *itemBody) breaks(err error) error {
	b.broken = err
	return err
}
