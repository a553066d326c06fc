package server

import (
	"context"
	"io"
	"sync"
	"time"

	"sheaf/internal/names"
	"sheaf/internal/store"
	"sheaf/peer"
)

// commitTimeout bounds the commit on all holders: it goes on when the client is gone.
const commitTimeout = 30 * time.Second

// staging is an object on its way to all of its holders, in work files and not visible
// yet. It belongs to one goroutine, which closes it.
type staging struct {
	r       *route
	local   *store.Staged
	info    store.Info
	calls   []*stageCall
	high    uint64 // the highest version that the other holders know of
	version uint64 // that the commit will probably have

	cancel context.CancelFunc // of the calls to the holders
	detach func() bool        // lets go of the caller's context; false when that has ended
	wait   sync.WaitGroup     // for the holders' words; before close
}

// stageCall is one other holder's copy.
type stageCall struct {
	node   int // index in the route's map
	call   *peer.StageCall
	staged peer.StagedMessage
	err    error
}

// stage brings the bytes of body to all holders. The reader is read as fast as the slowest
// of them writes: nothing is kept in memory but what is under way.
func (n *Node) stage(ctx context.Context, r *route, w *write, body io.Reader) (_ *staging, err error) {
	s := &staging{r: r, version: uint64(time.Now().UnixNano())}
	at := time.Now()
	hctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	drop := context.AfterFunc(n.ctx, cancel)
	stop := context.AfterFunc(ctx, cancel)
	late := time.AfterFunc(commitTimeout, cancel)
	late.Stop()
	s.cancel = func() { drop(); stop(); late.Stop(); cancel() }
	s.detach = func() bool { return stop() && !late.Reset(commitTimeout) }
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	relaxed := r.rec.Durability == peer.Relaxed
	req := &peer.StageRequest{Bucket: w.bucket, Object: w.object, Attrs: w.attrs, ModTime: at, Relaxed: relaxed, Version: s.version}
	if w.size >= 0 {
		req.Sized, req.Size = true, w.size
	}
	for _, i := range r.others() {
		call, err := n.calls.StageAt(hctx, r.m.Nodes[i].Addr, req)
		if err != nil {
			return nil, r.unreached(i, err)
		}
		s.calls = append(s.calls, &stageCall{node: i, call: call})
	}
	t := &tee{r: body, s: s}
	s.local, err = n.store.Stage(ctx, w.bucket, w.object, t, store.StageOptions{Size: w.size, Checksum: w.sum, Attrs: w.attrs,
		ModTime: at, Version: s.version, Relaxed: relaxed})
	if err != nil {
		if t.err != nil && ctx.Err() == nil {
			return nil, t.err // the store wraps it, and it says more by itself
		}
		return nil, err
	}
	s.info = s.local.Info()
	if !t.ended { // an empty read at the end is the store's to make
		t.end()
	}
	s.wait.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, c := range s.calls {
		if c.err != nil {
			return nil, r.unreached(c.node, c.err)
		}
		s.high = max(s.high, c.staged.High.Version)
	}
	return s, nil
}

// close forgets what wasn't committed.
func (s *staging) close() {
	s.cancel()
	s.wait.Wait()
	for _, c := range s.calls {
		c.call.Close()
	}
	if s.local != nil {
		s.local.Discard()
	}
}

// dropIndex forgets the index of a shard that was replaced.
func (s *staging) dropIndex(n *Node) { n.dropShard(s.r.bucket, s.r.object) }

func (n *Node) dropShard(bucket, object string) {
	if names.IsShard(object) {
		n.shards.drop(bucket, object)
	}
}

// tee passes on what it reads to the other holders.
type tee struct {
	r     io.Reader
	s     *staging
	ended bool
	err   error // of a holder
}

func (t *tee) Read(p []byte) (int, error) {
	k, err := t.r.Read(p)
	if k > 0 {
		for _, c := range t.s.calls {
			if _, werr := c.call.Write(p[:k]); werr != nil {
				t.err = t.s.r.unreached(c.node, werr)
				return k, t.err
			}
		}
	}
	if err == io.EOF {
		t.end()
	}
	return k, err
}

// end lets the holders sync while this node does.
func (t *tee) end() {
	if t.ended {
		return
	}
	t.ended = true
	for _, c := range t.s.calls {
		t.s.wait.Go(func() { c.staged, c.err = c.call.Staged() }) // ends with the staging's context
	}
}
