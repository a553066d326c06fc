package server

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
)

func (n *Node) serveDelete(ctx context.Context, c *peer.ServerCall) error {
	req := peer.ObjectRequest{Kind: wire.TDelete}
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := c.Allow(req.Bucket, peer.Writer); err != nil {
		return err
	}
	addr, err := n.owner(ctx, req.Bucket, req.Object, req.Forwarded)
	if err != nil {
		return err
	}
	if addr != "" {
		req.Forwarded = true
		return n.relay(ctx, c, addr, &req)
	}
	unlock, err := n.removals.lock(ctx, req.Bucket, req.Object)
	if err != nil {
		return err
	}
	defer unlock()
	return n.delete(ctx, req.Bucket, req.Object, req.IfVersion)
}

// delete coordinates a DELETE at the owner: a tombstone above every version that is known,
// on all holders. Nodes that are down learn of it when they are back. The caller has the
// name's removal lock.
func (n *Node) delete(ctx context.Context, bucket, object string, only uint64) error {
	return n.turned(ctx, func() error { return n.deleteNow(ctx, bucket, object, only) })
}

func (n *Node) deleteNow(ctx context.Context, bucket, object string, only uint64) error {
	unlock, err := n.writes.lock(ctx, bucket, object)
	if err != nil {
		return err
	}
	defer unlock()
	defer n.committing()()
	r, err := n.route(bucket, object)
	if err != nil {
		return err
	}
	if !r.mine() {
		return r.fail(errs.Unavailable, "the cluster map changed meanwhile", "")
	}
	if r.rec.Backend != "" {
		return n.deleteRemote(ctx, r, only)
	}
	a, err := n.known(ctx, r)
	if err != nil {
		return err
	}
	v := a.newest()
	switch {
	case !live(v):
		return r.missing(a)
	case only != 0 && v.Version != only:
		return r.fail(errs.VersionMismatch, fmt.Sprintf("the object has version %d, %d was asked for", v.Version, only), "")
	}
	version := max(v.Version+1, uint64(time.Now().UnixNano()))
	// As in a conditional write: nothing may have come between the look and the deletion.
	var guard store.Condition
	if mine := a[0]; only != 0 && mine.err == nil {
		if guard.Version = mine.Version; !live(mine.VersionInfo) {
			guard = store.Condition{Absent: true}
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := n.store.Delete(bucket, object, version, guard); err != nil {
		if guard != (store.Condition{}) && (errs.IsCode(err, errs.NotFound) || errs.IsCode(err, errs.AlreadyExists)) {
			return r.overtaken(store.Condition{Version: only})
		}
		return err
	}
	n.dropShard(bucket, object)
	err = n.buryOthers(r, version)
	if now, e := n.route(bucket, object); e == nil && (err != nil || !now.same(r)) {
		n.repairSoon(bucket, object)
	}
	if err != nil {
		n.metrics.halfWrites.Inc()
	}
	return err
}

// buryOthers writes the tombstone on the other holders, all at once, also when the client
// has gone away.
func (n *Node) buryOthers(r *route, version uint64) error {
	ctx, cancel := context.WithTimeout(n.ctx, commitTimeout)
	defer cancel()
	others := r.others()
	failed := make([]error, len(others))
	var wg sync.WaitGroup
	for k, i := range others {
		wg.Go(func() { failed[k] = n.calls.TombstoneAt(ctx, r.m.Nodes[i].Addr, r.bucket, r.object, version) }) // ends with ctx
	}
	wg.Wait()
	for k, i := range others {
		if failed[k] != nil {
			return r.unknown(i, failed[k])
		}
	}
	return nil
}
