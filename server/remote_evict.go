package server

import (
	"context"
	"fmt"
	"sync"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// prefetchQueue bounds the names that wait for being fetched on one node.
const prefetchQueue = 1 << 20

// serveEvict drops the copy of an object. The backend has it still, and the next reader
// fetches it again. An object that isn't kept is evicted already.
func (n *Node) serveEvict(ctx context.Context, c *peer.ServerCall) error {
	req := &peer.ObjectRequest{Kind: wire.TEvict}
	if err := c.R.Decode(req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := c.Allow(req.Bucket, peer.Writer); err != nil {
		return err
	}
	rt, err := n.remoteRoute(req.Bucket, req.Object)
	if err != nil {
		return err
	}
	addr, err := n.owner(ctx, req.Bucket, req.Object, req.Forwarded)
	if err != nil {
		return err
	}
	if addr != "" {
		return n.relay(ctx, c, addr, onward(req))
	}
	unlock, err := n.writes.lock(ctx, req.Bucket, req.Object)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := n.record(req.Bucket, req.Object)
	if err != nil || rec.Version == 0 || rec.Deleted {
		return err
	}
	err = n.store.Remove(req.Bucket, req.Object, rec.Version)
	n.dropShard(req.Bucket, req.Object)
	n.remotes.warm.forget(warmKey(rt))
	if err == nil {
		n.metrics.remoteEvicted.Inc()
	}
	return err
}

// remoteRoute is route for a call that only remote buckets have.
func (n *Node) remoteRoute(bucket, object string) (*route, error) {
	rt, err := n.route(bucket, object)
	if err == nil && rt.rec.Backend == "" {
		err = &errs.Error{Code: errs.NotSupported, Bucket: bucket, Msg: "the bucket has no backend: its objects are here and nowhere else"}
	}
	return rt, err
}

// servePrefetch has objects of a remote bucket fetched, each by its owner, and answers how
// many will be. It doesn't wait for them.
func (n *Node) servePrefetch(ctx context.Context, c *peer.ServerCall) error {
	req := peer.NamesRequest{Kind: wire.TPrefetch}
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := c.Allow(req.Bucket, peer.Reader); err != nil {
		return err
	}
	rt, err := n.remoteRoute(req.Bucket, "any")
	if err != nil {
		return err
	}
	mine := req.Names
	var m peer.PrefetchedMessage
	if !req.Forwarded {
		byNode := map[int][]string{}
		for _, name := range req.Names {
			if i := rt.m.Owner(peer.HashObject(req.Bucket, name)); i >= 0 {
				byNode[i] = append(byNode[i], name)
			}
		}
		mine = byNode[rt.self]
		delete(byNode, rt.self)
		for i, list := range byNode {
			k, err := n.calls.PrefetchAt(ctx, rt.m.Nodes[i].Addr, req.Bucket, list)
			m.Started += uint64(k)
			if err != nil {
				return rt.of(i, err)
			}
		}
	}
	k, err := n.remotes.jobs.add(rt.bucket, mine)
	if m.Started += uint64(k); err != nil {
		return err
	}
	return c.W.Frame(&m, nil)
}

// prefetches fetch objects that somebody will want: a queue and a bounded number of
// goroutines, which end when it is empty, or with the node.
type prefetches struct {
	r *remotes

	mu      sync.Mutex
	queue   []peer.ObjectName        // guarded by mu
	waiting map[peer.ObjectName]bool // guarded by mu: in the queue or being fetched
	workers int                      // guarded by mu
}

func (p *prefetches) init(r *remotes) { p.r, p.waiting = r, map[peer.ObjectName]bool{} }

// add queues names that aren't queued, and tells how many.
func (p *prefetches) add(bucket string, names []string) (int, error) {
	n := p.r.n
	p.mu.Lock()
	defer p.mu.Unlock()
	k := 0
	for _, name := range names {
		job := peer.ObjectName{Bucket: bucket, Object: name}
		if p.waiting[job] {
			continue
		}
		if len(p.waiting) >= prefetchQueue {
			return k, errs.New(errs.TooManyRequests, "prefetch", fmt.Sprintf("%d objects wait on node %s already", prefetchQueue, n.Name()))
		}
		p.waiting[job] = true
		p.queue = append(p.queue, job)
		k++
		if p.workers < n.o.FetchAtOnce {
			p.workers++
			n.wg.Go(p.work)
		}
	}
	return k, nil
}

func (p *prefetches) work() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 || p.r.n.ctx.Err() != nil {
			p.workers--
			p.queue = nil
			if p.workers == 0 {
				clear(p.waiting)
			}
			p.mu.Unlock()
			return
		}
		job := p.queue[0]
		p.queue = p.queue[1:]
		p.mu.Unlock()
		p.r.n.prefetch(job)
		p.mu.Lock()
		delete(p.waiting, job)
		p.mu.Unlock()
	}
}

// count is how many objects wait or are being fetched.
func (p *prefetches) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiting)
}

func (n *Node) prefetch(job peer.ObjectName) {
	rt, err := n.route(job.Bucket, job.Object)
	if err == nil && rt.rec.Backend != "" && rt.mine() {
		err = n.needKept(n.ctx, rt)
	}
	if err != nil {
		n.metrics.prefetchFailed.Inc()
		n.log.Debug("an object can't be fetched ahead", "bucket", job.Bucket, "object", job.Object, "err", err)
		return
	}
	n.metrics.prefetched.Inc()
}
