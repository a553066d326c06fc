package peer

import (
	"context"
	"slices"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// maxAsked is how many nodes are asked for one object before the map is fetched anew:
// its holders, as far as a client knows them, any of which passes the call on.
const maxAsked = 3

// route is where a call may be made, in the order of trying.
type route struct {
	addrs []string
	at    int
	rest  func() []string // further addresses, asked for when the first ones are used up
}

// next gives the next address; more tells that there are others after it.
func (r *route) next() (addr string, more, ok bool) {
	if r.at >= len(r.addrs) && r.rest != nil {
		for _, a := range r.rest() {
			if !slices.Contains(r.addrs, a) {
				r.addrs = append(r.addrs, a)
			}
		}
		r.rest = nil
	}
	if r.at >= len(r.addrs) {
		return "", false, false
	}
	r.at++
	return r.addrs[r.at-1], r.at < len(r.addrs) || r.rest != nil, true
}

// objectRoute leads to an object's owner, then to those who'd own it without that one.
// Nodes that gave no sign of life a short while ago come last.
func (c *Client) objectRoute(ctx context.Context, bucket, object string) (*route, error) {
	if c.stale.Load() {
		_ = c.Refresh(ctx) // the nodes of the old map are asked then
	}
	m, h := c.Map(), HashObject(bucket, object)
	i := m.Owner(h)
	if i < 0 {
		return nil, errs.New(errs.Unavailable, "map", "no node of the cluster map is up")
	}
	all := func() []string {
		var out []string
		for _, i := range m.Holders(h, maxAsked) {
			out = append(out, m.Nodes[i].Addr)
		}
		return c.trust(out)
	}
	owner := m.Nodes[i].Addr
	switch {
	case m.Count(Up) == 1:
		return &route{addrs: []string{owner}}, nil
	case c.e.pool.suspected(owner):
		return &route{addrs: all()}, nil
	}
	return &route{addrs: []string{owner}, rest: all}, nil
}

// anyRoute leads to the nodes of the map in turn, the readable ones first, then to the
// seeds.
func (c *Client) anyRoute() *route {
	m := c.Map()
	nodes := m.Readable()
	var addrs []string
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
	for _, s := range c.seeds {
		if !slices.Contains(addrs, s) {
			addrs = append(addrs, s)
		}
	}
	return &route{addrs: c.trust(addrs)}
}

// trust puts nodes that gave no sign of life a short while ago last.
func (c *Client) trust(addrs []string) []string {
	var good, bad []string
	for _, a := range addrs {
		if c.e.pool.suspected(a) {
			bad = append(bad, a)
		} else {
			good = append(good, a)
		}
	}
	return append(good, bad...)
}

// elsewhere tells whether a call that failed so may fare better at another node.
func elsewhere(ctx context.Context, err error) bool {
	code := errs.CodeOf(err)
	return (code == errs.Unavailable || code == errs.Timeout) && ctx.Err() == nil
}

// failures keeps what is worth telling of several attempts: what a node itself
// answered, else what befell the first one.
type failures struct {
	err   error
	ended int // by a node that is there
}

// add notes a failure; enough tells that asking further nodes won't help: two of them
// know no better.
func (f *failures) add(err error, ended bool) (enough bool) {
	if f.err == nil || ended && f.ended == 0 {
		f.err = err
	}
	if ended {
		f.ended++
	}
	return f.ended > 1
}

// each makes a call that changes nothing at the nodes of a route until one answers it.
// A node that is gone costs a few seconds, unless it is the last.
func (c *Client) each(ctx context.Context, r *route, req wire.Message, on func(*Call, wire.Head) error) error {
	var f failures
	for {
		addr, more, ok := r.next()
		if !ok {
			return f.err
		}
		ended, err := c.attempt(ctx, addr, more, req, on)
		if err == nil || !elsewhere(ctx, err) || ended && errs.IsCode(err, errs.Timeout) {
			return err
		}
		if !ended {
			c.stale.Store(true)
		}
		if f.add(err, ended) {
			return f.err
		}
	}
}

// attempt makes a call at one node; watched, it is given up when that is gone. A
// connection that died in the pool is replaced. ended tells that the node itself said
// how it went.
func (c *Client) attempt(ctx context.Context, addr string, watched bool, req wire.Message, on func(*Call, wire.Head) error) (ended bool, err error) {
	for {
		open := c.e.Open
		if watched {
			open = c.e.OpenWatched
		}
		call, err := open(ctx, addr)
		if err != nil {
			return false, err
		}
		_, err = call.Do(req, func(h wire.Head) error { return on(call, h) })
		again := err != nil && ctx.Err() == nil && errs.CodeOf(err) == errs.Unavailable && call.Stale() && !call.Lost()
		ended := call.ended
		call.Close()
		if !again {
			return ended, err
		}
	}
}

// discard takes an answer of which only the End matters.
func discard(wire.Head) error { return nil }

func discardAt(*Call, wire.Head) error { return nil }

// any makes a call that changes nothing at some node.
func (c *Client) any(ctx context.Context, req wire.Message, on func(*Call, wire.Head) error) error {
	return c.each(ctx, c.anyRoute(), req, on)
}

// At makes a call that changes nothing to the node at addr, handing each frame of
// the answer to on. A connection that died in the pool is replaced.
func (c *Client) At(ctx context.Context, addr string, req wire.Message, on func(*Call, wire.Head) error) error {
	_, err := c.attempt(ctx, addr, false, req, on)
	return err
}

// AtAny is At on the first of several nodes that answers. A node that is gone costs a
// few seconds, unless it is the last; one that answers with Unavailable is taken for
// gone as well. on may see the beginning of an answer that another follows: the call
// it is given tells them apart.
func (c *Client) AtAny(ctx context.Context, addrs []string, req wire.Message, on func(*Call, wire.Head) error) error {
	return c.each(ctx, &route{addrs: c.trust(addrs)}, req, on)
}

// toOwner makes a call that changes nothing at an object's owner, or at another node
// when that one is gone. When all fail the map may be old: it is fetched anew, and a
// new owner asked.
func (c *Client) toOwner(ctx context.Context, req *ObjectRequest, on func(*Call, wire.Head) error) error {
	if err := req.Check(); err != nil {
		return err
	}
	r, err := c.objectRoute(ctx, req.Bucket, req.Object)
	if err != nil {
		return err
	}
	err = c.each(ctx, r, req, on)
	if errs.IsCode(err, errs.Unavailable) && ctx.Err() == nil {
		if again, moved := c.moved(ctx, req.Bucket, req.Object, r); moved {
			err = c.each(ctx, again, req, on)
		}
	}
	return named(err, req)
}

// moved fetches the map anew and tells whether an object's owner is another than those
// that were asked.
func (c *Client) moved(ctx context.Context, bucket, object string, asked *route) (*route, bool) {
	if c.Refresh(ctx) != nil {
		return nil, false
	}
	r, err := c.objectRoute(ctx, bucket, object)
	if err != nil {
		return nil, false
	}
	return r, !slices.Contains(asked.addrs[:asked.at], r.addrs[0])
}

// reach gives the first address of a route whose node gives a sign of life. Calls that
// may be made only once go there: a connection that died in the pool, or a node that
// is gone, is found by a call that harms nothing.
func (c *Client) reach(ctx context.Context, r *route) (string, error) {
	var f failures
	for {
		addr, more, ok := r.next()
		if !ok {
			return "", f.err
		}
		if c.e.pool.heardWithin(addr, c.e.waits.trusted) {
			return addr, nil
		}
		err := c.sign(ctx, addr, more)
		if err == nil || !elsewhere(ctx, err) {
			return addr, err
		}
		c.stale.Store(true)
		f.add(err, false)
	}
}

// sign asks a node for a sign of life, for a short while only if there are others.
func (c *Client) sign(ctx context.Context, addr string, more bool) error {
	if !more {
		return c.e.Ping(ctx, addr)
	}
	short, cancel := context.WithTimeout(ctx, c.e.waits.sign)
	defer cancel()
	err := c.e.Ping(short, addr)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		c.e.pool.suspect(addr)
		err = silent(addr, "no sign of life within %v", c.e.waits.sign)
	}
	return err
}

// reachOwner is reach for an object, with the map fetched anew when nobody is there.
func (c *Client) reachOwner(ctx context.Context, bucket, object string) (string, error) {
	r, err := c.objectRoute(ctx, bucket, object)
	if err != nil {
		return "", err
	}
	addr, err := c.reach(ctx, r)
	if err != nil && elsewhere(ctx, err) {
		if again, moved := c.moved(ctx, bucket, object, r); moved {
			addr, err = c.reach(ctx, again)
		}
	}
	return addr, err
}

// once makes a call that changes something at the node at addr, which has given a sign
// of life. lost tells that the answer didn't come: nobody knows what came of the call.
func (c *Client) once(ctx context.Context, addr string, req wire.Message, on func(*Call, wire.Head) error) (lost bool, err error) {
	call, err := c.e.Open(ctx, addr)
	if err != nil {
		return false, err
	}
	defer call.Close()
	_, err = call.Do(req, func(h wire.Head) error { return on(call, h) })
	if errs.IsCode(err, errs.Unavailable) {
		c.stale.Store(true)
	}
	return err != nil && !call.ended, err
}

// change makes a call that changes something at the first node that can be reached.
func (c *Client) change(ctx context.Context, req wire.Message, on func(*Call, wire.Head) error) error {
	addr, err := c.reach(ctx, c.anyRoute())
	if err != nil {
		return err
	}
	_, err = c.once(ctx, addr, req, on)
	return err
}

// remove makes a call that takes an object away. It is made again when its answer is
// lost, and when there is nothing to take away then, the first one did it.
func (c *Client) remove(ctx context.Context, req *ObjectRequest) error {
	if err := req.Check(); err != nil {
		return err
	}
	addr, err := c.reachOwner(ctx, req.Bucket, req.Object)
	if err != nil {
		return named(err, req)
	}
	lost, err := c.once(ctx, addr, req, discardAt)
	if lost && elsewhere(ctx, err) {
		if addr, e := c.reachOwner(ctx, req.Bucket, req.Object); e == nil {
			if _, err = c.once(ctx, addr, req, discardAt); errs.IsCode(err, errs.NotFound) {
				err = nil
			}
		}
	}
	return named(err, req)
}
