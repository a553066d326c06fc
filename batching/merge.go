package batching

import (
	"context"
	"fmt"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
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
	self    int // index of this node in cmap; −1 when it isn't in it
	plan    *plan
	senders []*sender            // by stream of the plan
	lost    map[int]error        // nodes that stopped answering, by index in cmap
	owed    map[uint32]*lostNode // entries that were planned anew: who was to deliver them
	begun   bool                 // all metadata is known, where it comes first
	soft    int                  // soft errors so far
	timeout time.Duration        // of the wait for a sender's next frame
	slow    time.Duration        // likewise while it gives signs of life

	ok, failed uint64
	bytes      uint64
	started    time.Time
	rxwait     time.Duration
}

// run delivers the batch into the sink. Its error aborts the batch.
func (g *merge) run(ctx context.Context) (err error) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g.lost, g.owed = map[int]error{}, map[uint32]*lostNode{}
	g.open(ctx, 0, !g.req.Streaming())
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
	f := newFeeder(prepare(ctx, g.src, g.mine()))
	var metas []Meta
	if !g.req.Streaming() {
		if metas, err = g.metas(ctx, f); err != nil {
			return err
		}
	}
	g.begun = true
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

// mine gives the entries that this node delivers itself.
func (g *merge) mine() []Entry {
	var out []Entry
	for i, s := range g.plan.stream {
		if s == here {
			out = append(out, g.req.In[i])
		}
	}
	return out
}

// entry delivers entry i, from this node's source or its sender's stream. When the sender
// is lost, the entry is planned anew; one that had begun goes on from this node's source,
// which can reach every other copy.
func (g *merge) entry(ctx context.Context, f *feeder, i uint32) error {
	e := &g.req.In[i]
	var done part
	feed := func() error {
		return f.feedFrom(ctx, e, &done, func(first, last bool, p *Payload, data []byte, sum uint64) error {
			return g.sink.emit(i, first, last, p.Size, p.Version, data, sum)
		})
	}
	for {
		var err error
		if k := g.plan.stream[i]; k == here {
			err = feed()
		} else {
			s := g.senders[k]
			err = g.relay(ctx, s, i, &done)
			if _, ok := err.(*entryError); ok && s.lost != nil && g.replan(ctx, s, i, done.got > 0) {
				if done.got == 0 {
					continue
				}
				g.m.resumed.Inc()
				err = feed()
			}
		}
		if ee, ok := err.(*entryError); ok {
			return g.failEntry(i, ee.err)
		}
		if err != nil {
			return err
		}
		break
	}
	if g.owed[i] != nil {
		g.m.recovered.Inc()
	}
	g.ok++
	g.bytes += uint64(done.size)
	g.m.delivered(e.Kind(), done.size)
	return nil
}

// failEntry decides what an entry's failure means: a placeholder when the request
// continues on soft errors and has some left, else the end of the batch.
func (g *merge) failEntry(i uint32, cause error) error {
	e := &g.req.In[i]
	out := errs.Flatten(cause)
	if l := g.owed[i]; l != nil {
		g.m.unrecovered.Inc()
		if out.Code == errs.Unavailable || out.Code == errs.SenderLost || out.Code == errs.SenderTimeout {
			// The first loss says more than that others didn't have it either.
			out = errs.Flatten(l.err)
		}
	}
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

// metas gathers the metadata of all entries before any data. Without coer, an entry
// that failed ends the batch here.
func (g *merge) metas(ctx context.Context, f *feeder) ([]Meta, error) {
	all := make([]Meta, len(g.req.In))
	known := make([]bool, len(g.req.In))
	for k := 0; k < len(g.plan.shares); k++ { // grows when a sender is lost
		s := g.senders[k]
		n, err := g.senderMetas(ctx, s, all)
		for _, i := range s.index[:n] {
			known[i] = true
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if n < len(s.index) && !g.replan(ctx, s, s.index[n], false) {
			for _, i := range s.index[n:] {
				all[i], known[i] = Meta{Err: err}, true
			}
		}
	}
	for i := range all {
		if known[i] {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		all[i] = f.stat(ctx, &g.req.In[i])
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
