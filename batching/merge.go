package batching

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// sink is where a merged batch goes. begin comes first, with the metadata of all
// entries when the request isn't streaming; then emit or fail for each entry in
// order (fail may end an entry that emit began); then end.
type sink interface {
	begin(metas []Meta) error
	emit(i uint32, first, last bool, size int64, version uint64, data []byte, sum uint64) error
	fail(i uint32, err error) error
	end() error
}

// merge assembles one batch. It is owned by the goroutine that runs it.
type merge struct {
	// dependencies
	ep   *peer.Endpoint
	src  Source // what this node holds; entries of node self come from it
	sink sink
	m    *metrics

	// the batch
	req     *Request
	id      string
	cmap    *peer.Map
	self    int // index of this node in cmap; −1 when it holds nothing
	plan    *plan
	senders map[int]*sender
	soft    int // soft errors so far
	timeout time.Duration

	ok, failed uint64
	bytes      uint64
	started    time.Time
	rxwait     time.Duration
}

// sender is the stream of one node's share.
type sender struct {
	name, addr string
	index      []uint32
	opened     chan struct{} // closed by the opener when it has set call or openErr
	call       *peer.Call
	openErr    error
	lost       error // why nothing more comes from it; the merge's own
	deadline   time.Time
}

// run delivers the batch into the sink. Its error aborts the batch.
func (g *merge) run(ctx context.Context) (err error) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.open(ctx)
	defer func() {
		if outer.Err() != nil && err != nil {
			err = g.over(outer)
		}
		cancel() // unblocks senders that are still being opened
		for _, s := range g.senders {
			<-s.opened
			if s.call != nil {
				s.call.Close()
			}
		}
	}()
	f := newFeeder(g.src)
	var metas []Meta
	if !g.req.Streaming() {
		if metas, err = g.metas(ctx, f); err != nil {
			return err
		}
	}
	if err := g.sink.begin(metas); err != nil {
		return err
	}
	for i := range g.req.In {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := g.entry(ctx, f, uint32(i)); err != nil {
			return err
		}
		if i == 0 {
			g.m.firstByte.Observe(time.Since(g.started).Seconds())
		}
	}
	return g.sink.end()
}

// over gives the error of a batch whose context has ended.
func (g *merge) over(ctx context.Context) error {
	if errs.CodeOf(ctx.Err()) == errs.Timeout {
		return errs.New(errs.Timeout, "getbatch", fmt.Sprintf("%d of %d entries were delivered within the batch's timeout", g.ok+g.failed, len(g.req.In)))
	}
	return ctx.Err()
}

// open begins the call to every sender. Each goroutine ends when its request is
// written or ctx ends; run waits for them.
func (g *merge) open(ctx context.Context) {
	g.senders = make(map[int]*sender, len(g.plan.shares))
	for node, index := range g.plan.shares {
		if node == g.self {
			continue
		}
		s := &sender{name: g.cmap.Nodes[node].Name, addr: g.cmap.Nodes[node].Addr, index: index, opened: make(chan struct{})}
		g.senders[node] = s
		go func() {
			defer close(s.opened)
			s.call, s.openErr = g.openShare(ctx, s.addr, index)
		}()
	}
}

func (g *merge) openShare(ctx context.Context, addr string, index []uint32) (*peer.Call, error) {
	call, err := g.ep.Open(ctx, addr)
	if err != nil {
		return nil, err
	}
	msg := &batchMessage{Kind: wire.TSend, ID: g.id, N: uint64(len(index)), NoStrm: !g.req.Streaming(), MapVers: g.cmap.Version}
	if g.self >= 0 {
		msg.DT = g.cmap.Nodes[g.self].Name
	}
	share := make([]Entry, len(index))
	for k, i := range index {
		share[k] = g.req.In[i]
	}
	if err = writeEntries(call.W, msg, share, index); err == nil {
		err = call.CloseSend()
	}
	if err != nil {
		call.Close()
		return nil, errs.Wrap(errs.SenderLost, "send request", err)
	}
	return call, nil
}

// writeEntries writes an opening message and the entries in frames of bounded size.
func writeEntries(w *wire.Writer, msg *batchMessage, in []Entry, index []uint32) error {
	if len(in) > 0 {
		msg.Bucket = in[0].Bucket
	}
	if err := w.Frame(msg, nil); err != nil {
		return err
	}
	for k := 0; k < len(in); {
		from, bytes := k, 0
		for k < len(in) && k-from < entriesPerFrame && bytes < entryBytes {
			bytes += len(in[k].ObjName) + len(in[k].ArchPath)
			k++
		}
		part := entriesMessage{Bucket: msg.Bucket, Entries: in[from:k]}
		if index != nil {
			part.Indexed, part.Index = true, index[from:k]
		}
		if err := w.Frame(&part, nil); err != nil {
			return err
		}
	}
	return nil
}

// readEntries reads what writeEntries wrote after its opening message.
func readEntries(r *wire.Reader, msg *batchMessage) (in []Entry, index []uint32, err error) {
	if msg.N == 0 || msg.N > MaxEntries {
		return nil, nil, errs.New(errs.TooManyEntries, "batch", fmt.Sprintf("%d entries, want 1 to %d", msg.N, MaxEntries))
	}
	for uint64(len(in)) < msg.N {
		var part entriesMessage
		if _, err := r.Expect(&part); err != nil {
			return nil, nil, errs.Wrap(errs.Protocol, "batch", err)
		}
		if len(part.Entries) == 0 || uint64(len(in)+len(part.Entries)) > msg.N {
			return nil, nil, errs.New(errs.Protocol, "batch", fmt.Sprintf("%d entries announced, %d came", msg.N, len(in)+len(part.Entries)))
		}
		in = append(in, part.Entries...)
		index = append(index, part.Index...)
	}
	for i := range in {
		if in[i].Bucket == "" {
			in[i].Bucket = msg.Bucket
		}
	}
	return in, index, nil
}

// entry delivers entry i, from this node's source or its sender's stream.
func (g *merge) entry(ctx context.Context, f *feeder, i uint32) error {
	e := &g.req.In[i]
	node := int(g.plan.owner[i])
	var size int64
	var err error
	if node == g.self {
		err = f.feed(ctx, e, func(first, last bool, p *Payload, data []byte, sum uint64) error {
			size = p.Size
			return g.sink.emit(i, first, last, p.Size, p.Version, data, sum)
		})
	} else {
		size, err = g.relay(ctx, g.senders[node], i)
	}
	if ee, ok := err.(*entryError); ok {
		return g.failEntry(i, ee.err)
	}
	if err != nil {
		return err
	}
	g.ok++
	g.bytes += uint64(size)
	g.m.delivered(e.Kind(), size)
	return nil
}

// failEntry decides what an entry's failure means: a placeholder when the request
// continues on soft errors and has some left, else the end of the batch.
func (g *merge) failEntry(i uint32, cause error) error {
	e := &g.req.In[i]
	out := errs.Flatten(cause)
	if out.Object == "" {
		out.Bucket, out.Object, out.Member = e.Bucket, e.ObjName, e.ArchPath
	}
	if !out.Code.Soft() {
		return abort(i, out)
	}
	g.m.softError(out)
	if !g.req.Coer {
		return abort(i, out)
	}
	g.soft++
	if limit := g.req.SoftErrorLimit(); g.soft > limit {
		out.Msg = fmt.Sprintf("%s (soft error %d, the limit is %d)", out.Msg, g.soft, limit)
		return abort(i, out)
	}
	g.failed++
	return g.sink.fail(i, out)
}

// abort names the entry in the error that ends a batch.
func abort(i uint32, e *errs.Error) error {
	out := *e
	out.Op, out.Entry = fmt.Sprintf("entry %d", i), int(i)+1
	return &out
}

// relay passes entry i on from its sender's stream, chunk by chunk as they come. An
// entry of one chunk is checked first: what is corrupt can still be replaced.
func (g *merge) relay(ctx context.Context, s *sender, i uint32) (size int64, err error) {
	var got int64
	var version uint64
	for first := true; ; first = false {
		h, err := g.next(ctx, s)
		if err != nil {
			if ctx.Err() != nil {
				return 0, ctx.Err() // the batch ends, not the entry alone
			}
			return 0, &entryError{err}
		}
		switch h.Type {
		case wire.TChunk:
			var c chunkMessage
			if err := s.call.R.Decode(&c); err != nil {
				return 0, g.broken(s, err)
			}
			data, err := s.call.Payload()
			if err != nil {
				if err = g.lose(ctx, s, err); ctx.Err() != nil {
					return 0, err
				}
				return 0, &entryError{err}
			}
			if first {
				size, version = int64(c.Size), c.Version
			}
			got += int64(len(data))
			if c.Index != uint64(i) || got > size || c.Last != (got == size) {
				return 0, g.broken(s, fmt.Errorf("entry %d with %d of %d bytes where entry %d is due", c.Index, got, size, i))
			}
			if first && c.Last && xxh3.Hash(data) != c.Sum {
				return 0, &entryError{&errs.Error{Code: errs.ChecksumMismatch, Op: "receive", Node: s.name, Msg: "the bytes that arrived aren't those that were sent"}}
			}
			if err := g.sink.emit(i, first, c.Last, size, version, data, c.Sum); err != nil {
				return 0, err
			}
			if c.Last {
				return size, nil
			}
		case wire.TEntryError:
			var m errorMessage
			if err := s.call.R.Decode(&m); err != nil {
				return 0, g.broken(s, err)
			}
			if m.Index != uint64(i) || m.Code == 0 {
				return 0, g.broken(s, fmt.Errorf("an error of entry %d where entry %d is due", m.Index, i))
			}
			return 0, &entryError{m.Err()}
		default:
			return 0, g.broken(s, fmt.Errorf("message %d where entry %d is due", h.Type, i))
		}
	}
}

// next waits for a sender's next frame. Whatever goes wrong with the stream is a
// failure of every entry that it still owes.
func (g *merge) next(ctx context.Context, s *sender) (wire.Head, error) {
	if s.lost != nil {
		return wire.Head{}, s.lost
	}
	begin := time.Now()
	defer func() { g.rxwait += time.Since(begin) }()
	select {
	case <-s.opened:
	default:
		t := time.NewTimer(g.timeout)
		defer t.Stop()
		select {
		case <-s.opened:
		case <-t.C:
			return wire.Head{}, g.lose(ctx, s, errs.New(errs.Timeout, "connect", ""))
		case <-ctx.Done():
			return wire.Head{}, ctx.Err()
		}
	}
	if s.openErr != nil {
		return wire.Head{}, g.lose(ctx, s, s.openErr)
	}
	// Setting a deadline takes a lock: renew it when a quarter has passed.
	if begin.After(s.deadline.Add(-g.timeout * 3 / 4)) {
		s.deadline = begin.Add(g.timeout)
		s.call.SetReadDeadline(s.deadline)
	}
	h, _, err := s.call.Next()
	if err == nil {
		return h, nil
	}
	if errs.CodeOf(err) == errs.Unavailable && s.call.Stale() && ctx.Err() == nil {
		// The node was restarted since its connection was last used: it has seen nothing of
		// this call, and the next one is made on a new connection.
		s.call.Close()
		if s.call, s.openErr = g.openShare(ctx, s.addr, s.index); s.openErr != nil {
			return wire.Head{}, g.lose(ctx, s, s.openErr)
		}
		s.deadline = time.Time{}
		return g.next(ctx, s)
	}
	if err == io.EOF {
		err = errs.New(errs.Protocol, "receive", "the sender's trailer came too early")
	}
	return h, g.lose(ctx, s, err)
}

// lose marks a sender as gone and gives the error of the entries it owed.
func (g *merge) lose(ctx context.Context, s *sender, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	code := errs.SenderLost
	if errors.Is(err, os.ErrDeadlineExceeded) || errs.CodeOf(err) == errs.Timeout {
		code = errs.SenderTimeout
	}
	e := errs.Flatten(err)
	lost := &errs.Error{Code: code, Op: "receive", Node: s.name, Msg: e.Error()}
	if h := errs.CodeOf(err); h == errs.PermissionDenied || h == errs.TooManyRequests {
		lost.Code = h // it is there and refuses: not a matter of luck
	}
	s.lost = lost
	return lost
}

// broken is lose for a sender that doesn't keep to the protocol.
func (g *merge) broken(s *sender, err error) error {
	s.lost = &errs.Error{Code: errs.SenderLost, Op: "receive", Node: s.name, Err: err}
	return &entryError{s.lost}
}

// metas gathers the metadata of all entries before any data. Without coer, an entry
// that failed ends the batch here.
func (g *merge) metas(ctx context.Context, f *feeder) ([]Meta, error) {
	all := make([]Meta, len(g.req.In))
	for node, index := range g.plan.shares {
		if node == g.self {
			for _, i := range index {
				if err := ctx.Err(); err != nil {
					return nil, err
				}
				all[i] = f.stat(ctx, &g.req.In[i])
			}
			continue
		}
		if err := g.senderMetas(ctx, g.senders[node], index, all); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			for _, i := range index {
				all[i] = Meta{Err: err}
			}
		}
	}
	if !g.req.Coer {
		for i := range all {
			if all[i].Err != nil {
				return nil, g.failEntry(uint32(i), all[i].Err)
			}
		}
	}
	return all, nil
}

func (g *merge) senderMetas(ctx context.Context, s *sender, index []uint32, all []Meta) error {
	for k := 0; k < len(index); {
		if _, err := g.next(ctx, s); err != nil {
			return err
		}
		var m metaMessage
		if err := s.call.R.Decode(&m); err != nil {
			return g.broken(s, err).(*entryError).err
		}
		for j := range m.Metas {
			if k == len(index) || m.Index[j] != uint64(index[k]) {
				return g.broken(s, fmt.Errorf("metadata of entry %d isn't due", m.Index[j])).(*entryError).err
			}
			all[index[k]] = m.Metas[j]
			k++
		}
	}
	return nil
}
