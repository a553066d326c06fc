package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
)

const (
	replicaSmall   = 1 << 20  // bytes: an object of no more is taken into memory, so that many are synced together
	replicaMemory  = 64 << 20 // bytes of such objects on a node at a time
	replicaWorkers = 16       // such objects of one stream that are written at a time
	replicaAnswers = 256      // objects of one stream that wait for their answer
)

// serveVersions tells what this node has of many names.
func (n *Node) serveVersions(_ context.Context, c *peer.ServerCall) error {
	req := peer.NamesRequest{Kind: wire.TVersions}
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := n.needBucket(req.Bucket); err != nil {
		return err
	}
	m := peer.VersionListMessage{Placement: n.reconciler.hash()}
	recs, err := n.store.LookupMany(req.Bucket, req.Names)
	if err != nil {
		// One of them can't be told; the others can.
		recs = make([]store.Record, len(req.Names))
		for i, name := range req.Names {
			if recs[i], err = n.store.Lookup(req.Bucket, name); errs.IsCode(err, errs.BucketNotFound) {
				return err
			}
		}
	}
	for _, r := range recs {
		m.Versions = append(m.Versions, peer.VersionInfo{Version: r.Version, Deleted: r.Deleted, Size: r.Size, Checksum: r.Checksum})
	}
	return c.W.Frame(&m, nil)
}

// serveTombstone deletes this node's copy at the version that the owner has picked.
func (n *Node) serveTombstone(_ context.Context, c *peer.ServerCall) error {
	var req peer.TombstoneRequest
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := req.Check(); err != nil {
		return err
	}
	if err := n.needBucket(req.Bucket); err != nil {
		return err
	}
	_, err := n.bury(req.Bucket, req.Object, req.Version)
	n.strayed(req.Bucket, req.Object)
	return err
}

// bury deletes this node's copy at a version.
func (n *Node) bury(bucket, object string, version uint64) (uint64, error) {
	if names.IsShard(object) {
		defer n.shards.drop(bucket, object)
	}
	r, err := n.store.Delete(bucket, object, version, store.Condition{})
	return r.Version, err
}

// strayed has a record looked after that was written here by an older placement.
func (n *Node) strayed(bucket, object string) {
	if p := n.reconciler.active.Load(); p != nil {
		if holders, self, _ := p.place(bucket, object); self < 0 && len(holders) > 0 {
			n.repairSoon(bucket, object)
		}
	}
}

// serveReplicate takes a stream of objects and tombstones, each with its version. Small
// ones are written side by side, so that they share syncs; the answers keep the order.
func (n *Node) serveReplicate(ctx context.Context, c *peer.ServerCall) error {
	type result struct {
		done    chan struct{}
		version uint64
		err     error
	}
	r := peer.NewReplicaReader(c)
	queue := make(chan *result, replicaAnswers)
	var g errgroup.Group
	g.SetLimit(replicaWorkers)
	answered := make(chan error, 1)
	go func() { // ends when queue is closed
		var failed error
		for res := range queue {
			<-res.done
			if failed == nil {
				failed = r.Answer(n.reconciler.hash(), res.version, res.err)
			}
			if failed == nil && len(queue) == 0 {
				failed = r.Flush()
			}
		}
		answered <- failed
	}()
	var err error
	for {
		req, body, nerr := r.Next()
		if nerr == io.EOF {
			break
		}
		if err = nerr; err != nil {
			break
		}
		res := &result{done: make(chan struct{})}
		queue <- res
		small, release, merr := n.intoMemory(ctx, req, body)
		if merr != nil {
			res.err = merr
			close(res.done)
			continue
		}
		if release == nil {
			res.version, res.err = n.takeReplica(ctx, req, body)
			close(res.done)
			continue
		}
		g.Go(func() error {
			defer release()
			res.version, res.err = n.takeReplica(ctx, req, small)
			close(res.done)
			return nil
		})
	}
	_ = g.Wait() // its functions give no errors
	close(queue)
	if aerr := <-answered; err == nil {
		err = aerr
	}
	return err
}

// intoMemory reads a small object; release gives its memory back. For one that isn't small
// release is nil.
func (n *Node) intoMemory(ctx context.Context, req *peer.ReplicateRequest, body io.Reader) (_ io.Reader, release func(), err error) {
	size := req.Info.Size
	if req.Deleted {
		return nil, func() {}, nil
	}
	if size > replicaSmall {
		return nil, nil, nil
	}
	if err := n.replicas.Acquire(ctx, size); err != nil {
		return nil, nil, err
	}
	release = func() { n.replicas.Release(size) }
	b := make([]byte, size)
	_, err = io.ReadFull(body, b)
	if err == nil {
		// The end checks the sum.
		var more [1]byte
		k, e := body.Read(more[:])
		switch {
		case k > 0:
			err = errs.New(errs.InvalidArgument, "replicate", fmt.Sprintf("more than the %d bytes announced", size))
		case e != io.EOF:
			err = e
		}
	}
	if err != nil {
		release()
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = errs.New(errs.InvalidArgument, "replicate", fmt.Sprintf("fewer than the %d bytes announced", size))
		}
		return nil, nil, err
	}
	return bytes.NewReader(b), release, nil
}

// takeReplica makes this node have a record as new as the one that another sends. It gives
// the version that is here then, on disk.
func (n *Node) takeReplica(ctx context.Context, req *peer.ReplicateRequest, body io.Reader) (uint64, error) {
	if err := n.needBucket(req.Bucket); err != nil {
		return 0, err
	}
	if have, err := n.store.Lookup(req.Bucket, req.Info.Name); err == nil && have.Version >= req.Info.Version {
		return have.Version, nil
	}
	n.metrics.replicas.Inc()
	defer n.strayed(req.Bucket, req.Info.Name)
	if req.Deleted {
		unlock, err := n.writes.lock(ctx, req.Bucket, req.Info.Name)
		if err != nil {
			return 0, err
		}
		defer unlock()
		return n.bury(req.Bucket, req.Info.Name, req.Info.Version)
	}
	st, err := n.store.Stage(ctx, req.Bucket, req.Info.Name, body, store.StageOptions{Size: req.Info.Size, Checksum: &req.Info.Checksum,
		Attrs: req.Info.Attrs, ModTime: req.Info.ModTime, Version: req.Info.Version})
	if err != nil {
		return 0, err
	}
	defer st.Discard()
	// A write that this node coordinates has looked at what is here: what comes between
	// that and its commit it would take for another write.
	unlock, err := n.writes.lock(ctx, req.Bucket, req.Info.Name)
	if err != nil {
		return 0, err
	}
	defer unlock()
	info, err := st.Commit(req.Info.Version, store.Condition{})
	n.metrics.replicaBytes.Add(float64(req.Info.Size))
	return info.Version, err
}

// versionsAt asks a node what it has of some names. A node that goes by another placement
// gives no answer that counts.
func (n *Node) versionsAt(ctx context.Context, p *placement, node, bucket string, list []string) ([]uint64, error) {
	addr := p.addr(node)
	if addr == "" {
		return nil, errs.New(errs.Unavailable, "reconcile", "node "+node+" isn't there")
	}
	got, placement, err := n.calls.PlacedVersionsAt(ctx, addr, bucket, list)
	if err != nil {
		return nil, err
	}
	if placement != p.hash {
		return nil, errPlaced
	}
	out := make([]uint64, len(list))
	for i, v := range got {
		out[i] = v.Version
	}
	return out, nil
}

// sendRecords gives records to a node. It tells of each whether that node, going by p, has
// it on disk now.
func (n *Node) sendRecords(ctx context.Context, p *placement, node, bucket string, recs []store.Record) []error {
	out, answered := make([]error, len(recs)), make([]bool, len(recs))
	err := n.sendAll(ctx, p, node, bucket, recs, out, answered)
	if err == nil {
		err = errs.New(errs.Unavailable, "reconcile", "node "+node+" gave no answer")
	}
	for i := range out {
		if !answered[i] && out[i] == nil {
			out[i] = err
		}
	}
	return out
}

// sendAll is sendRecords up to the first failure of the whole stream.
func (n *Node) sendAll(ctx context.Context, p *placement, node, bucket string, recs []store.Record, out []error, answered []bool) error {
	addr := p.addr(node)
	if addr == "" {
		return errs.New(errs.Unavailable, "reconcile", "node "+node+" isn't there")
	}
	ctx, cancel := context.WithCancel(ctx)
	call, err := n.calls.ReplicateAt(ctx, addr)
	if err != nil {
		cancel()
		return err
	}
	sent := make(chan int, len(recs))
	var wg sync.WaitGroup
	defer func() {
		cancel()
		wg.Wait()
		call.Close()
	}()
	var failed error // of feed; read after sent is closed
	wg.Go(func() {   // ends with its records, or with ctx, and is waited for
		defer close(sent)
		failed = n.feed(ctx, call, bucket, recs, out, sent)
		if failed == nil {
			failed = call.CloseSend()
		}
		if failed != nil {
			cancel() // no answer is to come
		}
	})
	for {
		m, err := call.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			cancel()
			wg.Wait()
			if failed != nil && !errors.Is(failed, context.Canceled) {
				return failed
			}
			return err
		}
		i, ok := <-sent
		if !ok {
			return errs.New(errs.Protocol, "reconcile", "more answers than objects")
		}
		answered[i] = true
		switch out[i] = m.Err(); {
		case out[i] != nil:
		case m.Placement != p.hash:
			out[i] = errPlaced
		case m.Version < recs[i].Version:
			out[i] = errs.New(errs.Unavailable, "reconcile", fmt.Sprintf("node %s has version %d, %d was sent", node, m.Version, recs[i].Version))
		}
	}
}

// feed sends the records and tells which went out, in their order. What can't be read
// gets its error in out and isn't sent.
func (n *Node) feed(ctx context.Context, call *peer.ReplicateCall, bucket string, recs []store.Record, out []error, sent chan<- int) error {
	for i, rec := range recs {
		if err := n.reconciler.objects.take(ctx, 1); err != nil {
			return err
		}
		if rec.Deleted {
			if err := call.Send(&peer.ReplicateRequest{Bucket: bucket, Info: peer.ObjectInfo(rec.Info), Deleted: true}, nil); err != nil {
				return err
			}
			sent <- i
			continue
		}
		obj, err := n.store.Open(bucket, rec.Name)
		if err != nil {
			out[i] = err
			continue
		}
		err = call.Send(&peer.ReplicateRequest{Bucket: bucket, Info: peer.ObjectInfo(obj.Info())}, &throttled{ctx, obj.VerifyReader(), n.reconciler.bytes})
		_ = obj.Close()
		if err != nil {
			return err
		}
		n.metrics.reconcileSent.Add(float64(obj.Size()))
		sent <- i
	}
	return nil
}
