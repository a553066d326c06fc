package batching

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// NodeOptions are what a storage node needs to take part in batches.
type NodeOptions struct {
	Name     string         // of this node in the cluster map
	Endpoint *peer.Endpoint // calls to senders leave from it
	Source   Source         // what this node holds
	Map      func() *peer.Map
	// MaxBatches is how many batches this node assembles at a time; more are refused with
	// TooManyRequests. It bounds memory: a batch costs up to senders × (stream window + frame buffer).
	MaxBatches int // default 256
	// SenderTimeout is how long a DT waits for a sender's next frame before it gives the sender up.
	SenderTimeout time.Duration // default 10 s
	// SlowTimeout is how long at most a DT waits for the next piece of an entry from a sender
	// that gives signs of life because a store beyond the cluster is slow.
	SlowTimeout time.Duration // default 10 min
	Registerer  prometheus.Registerer
	Logger      *slog.Logger
}

func (o NodeOptions) withDefaults() NodeOptions {
	if o.MaxBatches == 0 {
		o.MaxBatches = 256
	}
	if o.SenderTimeout == 0 {
		o.SenderTimeout = 10 * time.Second
	}
	if o.SlowTimeout == 0 {
		o.SlowTimeout = 10 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Node is a storage node's part in batches: gateway, DT and sender.
type Node struct {
	o       NodeOptions
	m       *metrics
	dts     atomic.Int64
	sending atomic.Int64
}

// NewNode makes a Node and registers its calls with the endpoint.
func NewNode(o NodeOptions) *Node {
	n := &Node{o: o.withDefaults(), m: newMetrics(o.Registerer)}
	o.Endpoint.Handle(wire.TBatch, peer.Reader, n.serveBatch)
	o.Endpoint.Handle(wire.TSend, peer.NodeRole, n.serveSend)
	return n
}

// InFlight is the number of batches that this node assembles and sends for now.
func (n *Node) InFlight() (dt, sending int) { return int(n.dts.Load()), int(n.sending.Load()) }

// retryAfter is what a refused client is told; it adds jitter of its own.
const retryAfter = 100 * time.Millisecond

// serveBatch answers a GetBatch: as its DT, or as a gateway with a redirect.
func (n *Node) serveBatch(ctx context.Context, c *peer.ServerCall) error {
	start := time.Now()
	var msg batchMessage
	msg.Kind = wire.TBatch
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	in, _, err := readEntries(c.R, &msg)
	if err != nil {
		return err
	}
	strm := !msg.NoStrm
	req := &Request{ID: msg.ID, In: in, OutputFormat: msg.Format, Strm: &strm, Onob: msg.Onob, Coer: msg.Coer,
		MaxSoftErrors: int(msg.MaxSoft), Coloc: int(msg.Coloc), Timeout: Duration(msg.Timeout)}
	if err := req.Normalize(); err != nil {
		return err
	}
	if err := allow(c, in); err != nil {
		return err
	}
	cmap := n.o.Map()
	if cmap.Count(peer.Up) == 0 {
		return errs.New(errs.Unavailable, "getbatch", "no node of the cluster map is up")
	}
	self := cmap.Find(n.o.Name)
	if dt := chooseDT(cmap, req.ID, req.Coloc, in); dt >= 0 && dt != self && !msg.Here {
		n.m.redirects.Inc()
		return c.W.Frame(&redirectMessage{Name: cmap.Nodes[dt].Name, Addr: cmap.Nodes[dt].Addr}, nil)
	}
	if n.dts.Add(1) > int64(n.o.MaxBatches) {
		n.dts.Add(-1)
		n.m.rejected.Inc()
		c.End.Retry = uint64(retryAfter / time.Millisecond)
		return errs.New(errs.TooManyRequests, "getbatch", fmt.Sprintf("node %s assembles %d batches already", n.o.Name, n.o.MaxBatches))
	}
	defer n.dts.Add(-1)
	n.m.dts.Inc()
	defer n.m.dts.Dec()
	n.m.requests.Inc()

	timeout := time.Duration(req.Timeout)
	if timeout == 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	g := &merge{ep: n.o.Endpoint, src: n.o.Source, m: n.m, req: req, id: req.ID, cmap: cmap, self: self,
		plan: makePlan(cmap, self, in), timeout: n.o.SenderTimeout, slow: n.o.SlowTimeout, started: start}
	err = n.assemble(ctx, c, g)
	n.m.rxwait.Add(g.rxwait.Seconds())
	n.m.finished(start, err)
	n.o.Logger.Debug("batch", "id", req.ID, "from", c.Name, "n", len(in), "ok", g.ok, "failed", g.failed, "bytes", g.bytes,
		"senders", len(g.senders), "ms", time.Since(start).Milliseconds(), "rxwait_ms", g.rxwait.Milliseconds(), "err", err)
	return err
}

// allow refuses a batch with an entry of a bucket that the caller may not read.
func allow(c *peer.ServerCall, in []Entry) error {
	if !c.Restricted() {
		return nil // the role was asked for when the call came
	}
	for i := range in {
		if err := c.Allow(in[i].Bucket, peer.Reader); err != nil {
			e := errs.Flatten(err)
			e.Op, e.Entry = fmt.Sprintf("entry %d", i), i+1
			return e
		}
	}
	return nil
}

func (n *Node) assemble(ctx context.Context, c *peer.ServerCall, g *merge) error {
	if err := c.W.Frame(&acceptedMessage{ID: g.req.ID, DT: n.o.Name, N: uint64(len(g.req.In))}, nil); err != nil {
		return err
	}
	switch g.req.Format() {
	case FormatTar:
		t := newTar(c.W, g.req)
		defer t.out.stop()
		g.sink = t
		if err := g.run(ctx); err != nil {
			return err
		}
		c.End.Bytes, c.End.Sum = t.data.n, t.data.sum.Sum64()
	default:
		f := newFrames(c.W, n.o.Name)
		defer f.out.stop()
		g.sink = f
		if err := g.run(ctx); err != nil {
			return err
		}
		c.End.Bytes = g.bytes
	}
	c.End.Entries, c.End.Failed = g.ok+g.failed, g.failed
	return nil
}

// serveSend answers a DT with this node's share of a batch.
func (n *Node) serveSend(ctx context.Context, c *peer.ServerCall) error {
	n.sending.Add(1)
	defer n.sending.Add(-1)
	n.m.senders.Inc()
	defer n.m.senders.Dec()
	msg := batchMessage{Kind: wire.TSend}
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	share, index, err := readEntries(c.R, &msg)
	if err != nil {
		return err
	}
	for i := range share {
		if err := share[i].normalize(); err != nil {
			return errs.Wrap(errs.InvalidArgument, fmt.Sprintf("entry %d", index[i]), err)
		}
	}
	c.End.Entries = uint64(len(share))
	return sendShare(ctx, n.o.Source, n.o.Name, share, index, &msg, c.W, n.m)
}
