package peer

import (
	"context"
	"fmt"
	"sync/atomic"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// Client makes typed calls to a cluster. It keeps the cluster map and goes straight
// to an object's owner; a node that is asked for what isn't its own passes the call
// on, so an old map costs a hop and never an error. A call that changes nothing is made
// at another node when one is gone; one that changes something is made once, at a node
// that has just given a sign of life. Safe for concurrent use.
type Client struct {
	e     *Endpoint
	seeds []string
	m     atomic.Pointer[Map]
	own   func() *Map // a node's own map, in place of m
	turn  atomic.Uint64
	stale atomic.Bool // a node was not to be reached: the map may be old

	refreshing chan struct{} // holds a token while the map is fetched
	refreshed  atomic.Uint64 // counts the fetches
}

// NewClient fetches the cluster map from the first of the seeds ("host:port") that
// answers.
func NewClient(ctx context.Context, e *Endpoint, seeds ...string) (*Client, error) {
	if len(seeds) == 0 {
		return nil, errs.New(errs.InvalidArgument, "connect", "no endpoint given")
	}
	c := &Client{e: e, seeds: seeds, refreshing: make(chan struct{}, 1)}
	c.m.Store(NewMap("", 0, nil))
	if err := c.Refresh(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// Endpoint is the endpoint that the client's calls leave from.
func (c *Client) Endpoint() *Endpoint { return c.e }

// Map is the cluster map that the client goes by.
func (c *Client) Map() *Map {
	if c.own != nil {
		return c.own()
	}
	return c.m.Load()
}

// Refresh fetches the cluster map anew from any node that answers.
func (c *Client) Refresh(ctx context.Context) error {
	if c.own != nil {
		return nil
	}
	before := c.refreshed.Load()
	select {
	case c.refreshing <- struct{}{}:
		defer func() { <-c.refreshing }()
	case <-ctx.Done():
		return dialErr("map", "", ctx.Err())
	}
	if c.refreshed.Load() != before {
		return nil // somebody has done it meanwhile
	}
	return c.any(ctx, &Ask{Kind: wire.TMapGet}, func(call *Call, h wire.Head) error {
		msg := MapMessage{Kind: wire.TMap}
		if err := call.R.Decode(&msg); err != nil {
			return err
		}
		if msg.Map == nil || len(msg.Map.Nodes) == 0 {
			return errs.New(errs.Protocol, "map", "a cluster map without nodes")
		}
		c.m.Store(NewMap(msg.Map.Cluster, msg.Map.Version, msg.Map.Nodes))
		c.stale.Store(false)
		c.refreshed.Add(1)
		return nil
	})
}

// named puts the object into an error that doesn't say which it was.
func named(err error, req *ObjectRequest) error {
	if err == nil {
		return nil
	}
	e := errs.Flatten(err)
	if e.Object == "" && e.Bucket == "" {
		e.Bucket, e.Object, e.Member = req.Bucket, req.Object, req.Member
		return e
	}
	return err
}

// Head tells about an object. NotFound, BucketNotFound, Unavailable.
func (c *Client) Head(ctx context.Context, bucket, object string) (ObjectInfo, error) {
	return c.HeadMember(ctx, bucket, object, "")
}

// HeadMember tells about a member of a shard: its size, with the shard's version.
func (c *Client) HeadMember(ctx context.Context, bucket, object, member string) (ObjectInfo, error) {
	var info ObjectMessage
	err := c.toOwner(ctx, &ObjectRequest{Kind: wire.THead, Bucket: bucket, Object: object, Member: member},
		func(call *Call, h wire.Head) error { return call.R.Decode(&info) })
	return ObjectInfo(info), err
}

// Delete removes an object. NotFound when it isn't there.
func (c *Client) Delete(ctx context.Context, bucket, object string) error {
	return c.DeleteIf(ctx, bucket, object, 0)
}

// DeleteIf removes an object that has the version; 0 is any. NotFound when it isn't
// there, VersionMismatch when it has another.
func (c *Client) DeleteIf(ctx context.Context, bucket, object string, version uint64) error {
	return c.remove(ctx, &ObjectRequest{Kind: wire.TDelete, Bucket: bucket, Object: object, IfVersion: version})
}

// Members lists a shard's members in the order of the archive. BadShard when it
// isn't an archive that Sheaf reads.
func (c *Client) Members(ctx context.Context, bucket, shard string) (ObjectInfo, []MemberInfo, error) {
	var info ObjectMessage
	var members []MemberInfo
	err := c.toOwner(ctx, &ObjectRequest{Kind: wire.TMembers, Bucket: bucket, Object: shard}, func(call *Call, h wire.Head) error {
		if h.Type == wire.TObject {
			members = members[:0] // a call made anew begins again
			return call.R.Decode(&info)
		}
		var t TableMessage
		err := call.R.Decode(&t)
		members = append(members, t.Members...)
		return err
	})
	return ObjectInfo(info), members, err
}

// List gives one page of a bucket's objects.
func (c *Client) List(ctx context.Context, bucket string, o ListOptions) (*ListPage, error) {
	return c.listAt(ctx, &ListRequest{Bucket: bucket, Options: o}, c.any)
}

// ListAt gives one page of what the node at addr itself holds. Its Token is the last name
// of the page: the StartAfter of the next.
func (c *Client) ListAt(ctx context.Context, addr, bucket string, o ListOptions) (*ListPage, error) {
	return c.listAt(ctx, &ListRequest{Bucket: bucket, Options: o, Forwarded: true},
		func(ctx context.Context, req wire.Message, on func(*Call, wire.Head) error) error {
			return c.At(ctx, addr, req, on)
		})
}

func (c *Client) listAt(ctx context.Context, req *ListRequest, do func(context.Context, wire.Message, func(*Call, wire.Head) error) error) (*ListPage, error) {
	var page *ListPage
	var from *Call
	err := do(ctx, req, func(call *Call, h wire.Head) error {
		if call != from {
			page, from = &ListPage{}, call
		}
		var m NamesMessage
		if err := call.R.Decode(&m); err != nil {
			return err
		}
		page.Objects = append(page.Objects, m.Objects...)
		page.Prefixes = append(page.Prefixes, m.Prefixes...)
		page.Deleted = append(page.Deleted, m.Deleted...)
		page.DeletedPrefixes = append(page.DeletedPrefixes, m.DeletedPrefixes...)
		page.Token = m.Token
		if n := len(page.Objects) + len(page.Prefixes) + len(page.Deleted); n > MaxListPage || len(page.DeletedPrefixes) > MaxListPage {
			return errs.New(errs.Protocol, "list", fmt.Sprintf("a page of more than %d names", MaxListPage))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if page == nil {
		return nil, errs.New(errs.Protocol, "list", "an answer without a page")
	}
	return page, nil
}

// NewNodeClient makes a Client for a node, which has the map at first hand.
func NewNodeClient(e *Endpoint, m func() *Map) *Client {
	return &Client{e: e, own: m}
}
