package peer

import (
	"context"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// Buckets lists the buckets by name: those that the certificate may read.
func (c *Client) Buckets(ctx context.Context) ([]BucketInfo, error) {
	var list []BucketInfo
	var from *Call
	err := c.any(ctx, &Ask{Kind: wire.TBucketList}, func(call *Call, h wire.Head) error {
		if call != from {
			list, from = nil, call
		}
		m := BucketMessage{Kind: wire.TBucket}
		err := call.R.Decode(&m)
		list = append(list, m.Info())
		return err
	})
	return list, err
}

// Bucket tells about a bucket. BucketNotFound.
func (c *Client) Bucket(ctx context.Context, name string) (BucketInfo, error) {
	m := BucketMessage{Kind: wire.TBucket}
	err := c.any(ctx, &BucketMessage{Kind: wire.TBucketShow, Name: name}, func(call *Call, h wire.Head) error { return call.R.Decode(&m) })
	return m.Info(), err
}

// CreateBucket makes a bucket on all nodes. AlreadyExists when it is there.
func (c *Client) CreateBucket(ctx context.Context, name string, p BucketProps) error {
	return c.change(ctx, &BucketMessage{Kind: wire.TBucketCreate, Name: name, Props: p}, discardAt)
}

// SetBucket changes a bucket's properties and gives all of them. BucketNotFound.
func (c *Client) SetBucket(ctx context.Context, name string, ch BucketChange) (BucketInfo, error) {
	m := BucketMessage{Kind: wire.TBucket}
	err := c.change(ctx, NewBucketSet(name, ch), func(call *Call, h wire.Head) error { return call.R.Decode(&m) })
	return m.Info(), err
}

// DestroyBucket removes a bucket; NotEmpty when it has objects and force is false.
func (c *Client) DestroyBucket(ctx context.Context, name string, force bool) error {
	return c.change(ctx, &BucketMessage{Kind: wire.TBucketDestroy, Name: name, Force: force}, discardAt)
}

// Evict drops the cluster's copy of a remote bucket's object; the backend keeps it.
func (c *Client) Evict(ctx context.Context, bucket, object string) error {
	return c.remove(ctx, &ObjectRequest{Kind: wire.TEvict, Bucket: bucket, Object: object})
}

// PrefetchObjects asks for objects of a remote bucket to be fetched into the cluster.
// It tells how many downloads were begun, and doesn't wait for them.
func (c *Client) PrefetchObjects(ctx context.Context, bucket string, list []string) (started int, err error) {
	for later := list; len(later) > 0; {
		req := &NamesRequest{Kind: wire.TPrefetch, Bucket: bucket}
		req.Names, later = cutNames(later)
		if err := req.Check(); err != nil {
			return started, err
		}
		var m PrefetchedMessage
		if err := c.any(ctx, req, func(call *Call, _ wire.Head) error { return call.R.Decode(&m) }); err != nil {
			return started, err
		}
		started += int(m.Started)
	}
	return started, nil
}

// PrefetchAt asks the node at addr for objects that are its own.
func (c *Client) PrefetchAt(ctx context.Context, addr, bucket string, list []string) (started int, err error) {
	for later := list; len(later) > 0; {
		req := &NamesRequest{Kind: wire.TPrefetch, Bucket: bucket, Forwarded: true}
		req.Names, later = cutNames(later)
		var m PrefetchedMessage
		if err := c.At(ctx, addr, req, func(call *Call, _ wire.Head) error { return call.R.Decode(&m) }); err != nil {
			return started, err
		}
		started += int(m.Started)
	}
	return started, nil
}

// answered refuses an answer that lacks what it must have.
func answered(op string, ok bool, err error) error {
	if err == nil && !ok {
		return errs.New(errs.Protocol, op, "an empty answer")
	}
	return err
}
