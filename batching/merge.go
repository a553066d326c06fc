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
