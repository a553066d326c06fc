package batching

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// sender is the stream of one node's share, as the DT sees it.
type sender struct {
	node       int // index in the cluster map
	name, addr string
	index      []uint32
	metas      bool          // it was asked for metadata first
	opened     chan struct{} // closed by the opener when it has set call or openErr
	call       *peer.Call
	openErr    error
	lost       error // why nothing more comes from it; the merge's own
	deadline   time.Time
}

// lostNode is whoever was to deliver an entry first.
type lostNode struct{ err error }

// open begins the calls of the plan's streams from first on. Each goroutine ends when
// its request is written or ctx ends; run waits for them.
func (g *merge) open(ctx context.Context, first int, metas bool) {
	for k := first; k < len(g.plan.shares); k++ {
		node := g.plan.nodes[k]
		s := &sender{node: node, name: g.cmap.Nodes[node].Name, addr: g.cmap.Nodes[node].Addr, index: g.plan.shares[k], metas: metas, opened: make(chan struct{})}
		g.senders = append(g.senders, s)
		go func() {
			defer close(s.opened)
			s.call, s.openErr = g.openShare(ctx, s)
		}()
	}
}

// replan gives what a lost sender still owes, entry i and all after it, to the next nodes
// in HRW order, all at once. An entry that has begun stays with the caller. replan refuses
// where the sender is there and won't.
func (g *merge) replan(ctx context.Context, s *sender, i uint32, begun bool) bool {
	if c := errs.CodeOf(s.lost); c != errs.SenderLost && c != errs.SenderTimeout || g.src == nil || ctx.Err() != nil {
		return false
	}
	if g.lost[s.node] == nil {
		g.lost[s.node] = s.lost
		g.m.lostSenders.Inc()
	}
	from, _ := slices.BinarySearch(s.index, i)
	rest := s.index[from:]
	l := &lostNode{s.lost}
	for _, j := range rest {
		if g.owed[j] == nil {
			g.owed[j] = l
		}
	}
	if begun {
		rest = rest[1:]
	}
	first := g.plan.add(g.req.In, rest, func(e *Entry) int { return another(g.cmap, g.self, g.lost, e) })
	g.open(ctx, first, s.metas && !g.begun)
	return true
}

func (g *merge) openShare(ctx context.Context, s *sender) (*peer.Call, error) {
	call, err := g.ep.Open(ctx, s.addr)
	if err != nil {
		return nil, err
	}
	msg := &batchMessage{Kind: wire.TSend, ID: g.id, N: uint64(len(s.index)), NoStrm: s.metas, MapVers: g.cmap.Version, Wait: min(g.timeout, MaxTimeout)}
	if g.self >= 0 {
		msg.DT = g.cmap.Nodes[g.self].Name
	}
	share := make([]Entry, len(s.index))
	for k, i := range s.index {
		share[k] = g.req.In[i]
	}
	if err = writeEntries(call.W, msg, share, s.index); err == nil {
		err = call.CloseSend()
	}
	if err != nil {
		call.Close()
		return nil, errs.Wrap(errs.SenderLost, "send request", err)
	}
	return call, nil
}

// relay passes entry i on from its sender's stream, chunk by chunk as they come, and
// keeps in done how far it got. An entry of one chunk is checked first: what is corrupt
// can still be replaced.
func (g *merge) relay(ctx context.Context, s *sender, i uint32, done *part) error {
	for first := true; ; first = false {
		h, err := g.next(ctx, s)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err() // the batch ends, not the entry alone
			}
			return &entryError{err}
		}
		switch h.Type {
		case wire.TChunk:
			var c chunkMessage
			if err := s.call.R.Decode(&c); err != nil {
				return g.broken(s, err)
			}
			data, err := s.call.Payload()
			if err != nil {
				if err = g.lose(ctx, s, err); ctx.Err() != nil {
					return err
				}
				return &entryError{err}
			}
			if first {
				done.size, done.version = int64(c.Size), c.Version
			}
			got := done.got + int64(len(data))
			if c.Index != uint64(i) || got > done.size || c.Last != (got == done.size) {
				return g.broken(s, fmt.Errorf("entry %d with %d of %d bytes where entry %d is due", c.Index, got, done.size, i))
			}
			if first && c.Last && xxh3.Hash(data) != c.Sum {
				return &entryError{&errs.Error{Code: errs.ChecksumMismatch, Op: "receive", Node: s.name, Msg: "the bytes that arrived aren't those that were sent"}}
			}
			if err := g.sink.emit(i, first, c.Last, done.size, done.version, data, c.Sum); err != nil {
				return err
			}
			if done.got = got; c.Last {
				return nil
			}
			_, _ = done.hash.Write(data)
		case wire.TEntryError:
			var m errorMessage
			if err := s.call.R.Decode(&m); err != nil {
				return g.broken(s, err)
			}
			if m.Index != uint64(i) || m.Code == 0 {
				return g.broken(s, fmt.Errorf("an error of entry %d where entry %d is due", m.Index, i))
			}
			return &entryError{m.Err()}
		default:
			return g.broken(s, fmt.Errorf("message %d where entry %d is due", h.Type, i))
		}
	}
}

// next waits for a sender's next frame, passing over signs of life. Whatever goes wrong with the stream is a
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
	h, err := g.frame(s, begin)
	if err == nil {
		return h, nil
	}
	if errs.CodeOf(err) == errs.Unavailable && s.call.Stale() && ctx.Err() == nil {
		// The node was restarted since its connection was last used: it has seen nothing of
		// this call, and the next one is made on a new connection.
		s.call.Close()
		if s.call, s.openErr = g.openShare(ctx, s); s.openErr != nil {
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

// frame reads a sender's next frame. Each sign of life renews the wait for it, up to a limit.
func (g *merge) frame(s *sender, begin time.Time) (wire.Head, error) {
	for now := begin; ; now = time.Now() {
		// Setting a deadline takes a lock: renew it when a quarter has passed.
		if now.After(s.deadline.Add(-g.timeout * 3 / 4)) {
			s.deadline = now.Add(g.timeout)
			s.call.SetReadDeadline(s.deadline)
		}
		h, _, err := s.call.Next()
		if err != nil || h.Type != wire.TAlive {
			return h, err
		}
		g.m.alive.Inc()
		if w := time.Since(begin); w > g.slow {
			return h, errs.New(errs.Timeout, "receive", fmt.Sprintf("nothing but signs of life in %v", w.Round(time.Millisecond)))
		}
	}
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

// senderMetas reads a sender's metadata and tells how many of its entries it came for.
func (g *merge) senderMetas(ctx context.Context, s *sender, all []Meta) (k int, _ error) {
	for k < len(s.index) {
		if _, err := g.next(ctx, s); err != nil {
			return k, err
		}
		var m metaMessage
		if err := s.call.R.Decode(&m); err != nil {
			return k, g.broken(s, err).(*entryError).err
		}
		for j := range m.Metas {
			if k == len(s.index) || m.Index[j] != uint64(s.index[k]) {
				return k, g.broken(s, fmt.Errorf("metadata of entry %d isn't due", m.Index[j])).(*entryError).err
			}
			all[s.index[k]] = m.Metas[j]
			k++
		}
	}
	return k, nil
}
