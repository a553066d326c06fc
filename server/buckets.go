package server

import (
	"context"
	"fmt"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer"
	"sheaf/peer/wire"
)

func (b bucketRecord) message() *peer.BucketMessage {
	return &peer.BucketMessage{Kind: wire.TBucket, Name: b.Name, Provider: b.Provider, Created: b.Created, Epoch: b.Epoch, Deleted: b.Deleted, Placed: b.Placed, Props: b.BucketProps}
}

func recordOf(m *peer.BucketMessage) bucketRecord {
	return bucketRecord{Name: m.Name, Provider: m.Provider, Created: m.Created, Epoch: m.Epoch, Deleted: m.Deleted, Placed: m.Placed, BucketProps: m.Props.WithDefaults()}
}

// applyRecords makes the disks agree with records that are new. A bucket that was
// destroyed and made anew while this node was away has another creation time: what
// lies here of the old one goes.
func (n *Node) applyRecords(old *state, news []bucketRecord) error {
	for _, b := range news {
		had, ok := old.Buckets[b.Name]
		if ok && !had.Deleted && !b.Deleted && !had.Created.Equal(b.Created) {
			if err := n.destroyHere(b.Name); err != nil {
				return err
			}
		}
	}
	return n.applyBuckets(news)
}

// destroyHere removes what this node has of a bucket.
func (n *Node) destroyHere(name string) error {
	err := n.store.DestroyBucket(name)
	switch {
	case errs.IsCode(err, errs.BucketNotFound):
		return nil
	case err != nil:
		return err
	}
	n.shards.forget(name)
	n.remotes.forget(name)
	n.log.Info("bucket destroyed", "bucket", name)
	return nil
}

// applyBuckets makes the folders of buckets that exist and removes those of destroyed ones.
func (n *Node) applyBuckets(records []bucketRecord) error {
	for _, b := range records {
		if b.Deleted {
			if err := n.destroyHere(b.Name); err != nil {
				return err
			}
			continue
		}
		if err := n.store.CreateBucket(b.Name); err != nil {
			return err
		}
	}
	return nil
}

// needBucket refuses a bucket that doesn't exist.
func (n *Node) needBucket(name string) error {
	if _, ok := n.state.Load().bucket(name); !ok {
		return &errs.Error{Code: errs.BucketNotFound, Bucket: name}
	}
	return nil
}

// nextEpoch is greater than any before it that this node knows of.
func nextEpoch(before uint64) uint64 { return max(before+1, uint64(time.Now().UnixNano())) }

func (n *Node) serveBucketCreate(ctx context.Context, c *peer.ServerCall) error {
	if err := c.Allow("", peer.Writer); err != nil {
		return err
	}
	msg := peer.BucketMessage{Kind: wire.TBucketCreate}
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	if err := names.CheckBucket(msg.Name); err != nil {
		return err
	}
	if _, err := names.Provider(msg.Provider); err != nil {
		return err
	}
	st := n.state.Load()
	if _, ok := st.bucket(msg.Name); ok {
		return &errs.Error{Code: errs.AlreadyExists, Op: "create bucket", Bucket: msg.Name}
	}
	props := msg.Props.WithDefaults()
	if err := n.checkProps(ctx, msg.Name, props, true); err != nil {
		return err
	}
	b := bucketRecord{Name: msg.Name, Provider: names.Local, Created: time.Now(), Epoch: nextEpoch(st.Buckets[msg.Name].Epoch), BucketProps: props}
	if _, err := n.update(nil, []bucketRecord{b}); err != nil {
		return err
	}
	n.push(ctx)
	return c.W.Frame(b.message(), nil)
}

// checkProps refuses properties that can't be; more tells that copies are asked for that
// weren't before.
func (n *Node) checkProps(ctx context.Context, bucket string, p peer.BucketProps, more bool) error {
	err := p.Check()
	if up := n.Map().Count(peer.Up); err == nil && more && p.Copies > up {
		err = errs.New(errs.InvalidArgument, "bucket properties", fmt.Sprintf("%d copies need %d nodes that are up, and the cluster has %d", p.Copies, p.Copies, up))
	}
	if err == nil && p.Backend != "" {
		err = n.remotes.check(ctx, p.Backend)
	}
	if err != nil {
		e := errs.Flatten(err)
		e.Bucket = bucket
		return e
	}
	return nil
}

// serveBucketSet changes a bucket's properties.
func (n *Node) serveBucketSet(ctx context.Context, c *peer.ServerCall) error {
	if err := c.Allow("", peer.Writer); err != nil {
		return err
	}
	var msg peer.BucketSet
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	b, ok := n.state.Load().bucket(msg.Name)
	if !ok {
		return &errs.Error{Code: errs.BucketNotFound, Op: "set bucket", Bucket: msg.Name}
	}
	props := msg.Change().Apply(b.BucketProps).WithDefaults()
	if props == b.BucketProps {
		return c.W.Frame(b.message(), nil)
	}
	if props.Backend != b.Backend {
		return &errs.Error{Code: errs.InvalidArgument, Op: "set bucket", Bucket: msg.Name, Msg: "the backend is chosen when a bucket is made, and stays"}
	}
	if err := n.checkProps(ctx, msg.Name, props, props.Copies > b.Copies); err != nil {
		return err
	}
	more := props.Copies != b.Copies
	b.BucketProps, b.Epoch = props, nextEpoch(b.Epoch)
	if more {
		b.Placed = b.Epoch
	}
	if _, err := n.update(nil, []bucketRecord{b}); err != nil {
		return err
	}
	n.push(ctx)
	return c.W.Frame(b.message(), nil)
}

// serveBucketShow tells about one bucket.
func (n *Node) serveBucketShow(_ context.Context, c *peer.ServerCall) error {
	msg := peer.BucketMessage{Kind: wire.TBucketShow}
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	if err := c.Allow(msg.Name, peer.Reader); err != nil {
		return err
	}
	b, ok := n.state.Load().bucket(msg.Name)
	if !ok {
		return &errs.Error{Code: errs.BucketNotFound, Op: "show bucket", Bucket: msg.Name}
	}
	return c.W.Frame(b.message(), nil)
}

func (n *Node) serveBucketDestroy(ctx context.Context, c *peer.ServerCall) error {
	if err := c.Allow("", peer.Writer); err != nil {
		return err
	}
	msg := peer.BucketMessage{Kind: wire.TBucketDestroy}
	if err := c.R.Decode(&msg); err != nil {
		return err
	}
	b, ok := n.state.Load().bucket(msg.Name)
	if !ok {
		return &errs.Error{Code: errs.BucketNotFound, Op: "destroy bucket", Bucket: msg.Name}
	}
	if !msg.Force && b.Backend == "" { // what a backend has stays there
		page, err := n.list(ctx, msg.Name, peer.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if len(page.Objects) > 0 {
			return &errs.Error{Code: errs.NotEmpty, Op: "destroy bucket", Bucket: msg.Name, Msg: fmt.Sprintf("it holds objects, %q among them", page.Objects[0].Name)}
		}
	}
	b.Deleted, b.Epoch = true, nextEpoch(b.Epoch)
	if _, err := n.update(nil, []bucketRecord{b}); err != nil {
		return err
	}
	n.push(ctx)
	return nil
}

// serveBucketList tells of the buckets that the caller may read.
func (n *Node) serveBucketList(_ context.Context, c *peer.ServerCall) error {
	for _, b := range n.state.Load().sortedBuckets(false) {
		if c.Allow(b.Name, peer.Reader) != nil {
			continue
		}
		if err := c.W.Frame(b.message(), nil); err != nil {
			return err
		}
	}
	return nil
}
