package peer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// Client makes typed calls to a cluster. It keeps the cluster map and goes straight
// to an object's owner; a node that is asked for what isn't its own passes the call
// on, so an old map costs a hop and never an error. Safe for concurrent use.
type Client struct {
	e     *Endpoint
	seeds []string
	m     atomic.Pointer[Map]
	own   func() *Map // a node's own map, in place of m
	turn  atomic.Uint64

	refreshing sync.Mutex
}

// NewClient fetches the cluster map from the first of the seeds ("host:port") that
// answers.
func NewClient(ctx context.Context, e *Endpoint, seeds ...string) (*Client, error) {
	if len(seeds) == 0 {
		return nil, errs.New(errs.InvalidArgument, "connect", "no endpoint given")
	}
	c := &Client{e: e, seeds: seeds}
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
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	return c.any(ctx, &Ask{Kind: wire.TMapGet}, func(call *Call, h wire.Head) error {
		msg := MapMessage{Kind: wire.TMap}
		if err := call.R.Decode(&msg); err != nil {
			return err
		}
		if msg.Map == nil || len(msg.Map.Nodes) == 0 {
			return errs.New(errs.Protocol, "map", "a cluster map without nodes")
		}
		c.m.Store(NewMap(msg.Map.Cluster, msg.Map.Version, msg.Map.Nodes))
		return nil
	})
}

// any makes a call to some node: those of the map in turn, the readable ones first, then
// the seeds, until one is there.
func (c *Client) any(ctx context.Context, req wire.Message, on func(*Call, wire.Head) error) error {
	m := c.Map()
	nodes := m.Readable()
	addrs := make([]string, 0, len(m.Nodes)+len(c.seeds))
	if n := len(nodes); n > 0 {
		first := int(c.turn.Add(1) % uint64(n))
		for i := range n {
			addrs = append(addrs, m.Nodes[nodes[(first+i)%n]].Addr)
		}
	}
	for i := range m.Nodes {
		if m.Nodes[i].State == Down { // by this map, which may be old
			addrs = append(addrs, m.Nodes[i].Addr)
		}
	}
	var err error
	for _, a := range append(addrs, c.seeds...) {
		var answered bool
		answered, err = c.at(ctx, a, req, on)
		if code := errs.CodeOf(err); answered || code != errs.Unavailable && code != errs.Timeout || ctx.Err() != nil {
			return err // also when a node that is there says so of another
		}
	}
	return err
}

// At makes a call that changes nothing to the node at addr, handing each frame of
// the answer to on. A connection that died in the pool is replaced once.
func (c *Client) At(ctx context.Context, addr string, req wire.Message, on func(*Call, wire.Head) error) error {
	_, err := c.at(ctx, addr, req, on)
	return err
}

// at also tells whether the node at addr answered at all.
func (c *Client) at(ctx context.Context, addr string, req wire.Message, on func(*Call, wire.Head) error) (answered bool, err error) {
	for {
		call, err := c.e.Open(ctx, addr)
		if err != nil {
			return false, err
		}
		_, err = call.Do(req, func(h wire.Head) error { return on(call, h) })
		again := err != nil && ctx.Err() == nil && errs.CodeOf(err) == errs.Unavailable && call.Stale()
		answered := call.answered
		call.Close()
		if !again {
			return answered, err
		}
	}
}

// owner gives the address of the node that owns an object.
func (c *Client) owner(bucket, object string) (string, error) {
	m := c.Map()
	i := m.Owner(HashObject(bucket, object))
	if i < 0 {
		return "", errs.New(errs.Unavailable, "map", "no node of the cluster map is up")
	}
	return m.Nodes[i].Addr, nil
}

// toOwner is At on an object's owner. When that can't be reached the map may be old:
// it is fetched anew, and another owner is tried once.
func (c *Client) toOwner(ctx context.Context, req *ObjectRequest, on func(*Call, wire.Head) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	addr, err := c.owner(req.Bucket, req.Object)
	if err != nil {
		return err
	}
	err = c.At(ctx, addr, req, on)
	if errs.CodeOf(err) != errs.Unavailable || ctx.Err() != nil {
		return named(err, req)
	}
	if c.Refresh(ctx) == nil {
		if now, e := c.owner(req.Bucket, req.Object); e == nil && now != addr {
			err = c.At(ctx, now, req, on)
		}
	}
	return named(err, req)
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
	return c.toOwner(ctx, &ObjectRequest{Kind: wire.TDelete, Bucket: bucket, Object: object, IfVersion: version},
		func(*Call, wire.Head) error { return nil })
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

// ListAt gives one page of what the node at addr itself holds.
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
		page.Token = m.Token
		if n := len(page.Objects) + len(page.Prefixes) + len(page.Deleted); n > MaxListPage {
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
