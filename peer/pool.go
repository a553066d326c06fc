package peer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// pool keeps connections to other endpoints for reuse: the least loaded one takes
// the next call, a further one is dialled when all carry streamsPerConn calls, and
// one without calls for idleClose is closed.
type pool struct {
	e *Endpoint

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the reaper and dials

	mu     sync.Mutex
	peers  map[string]*peerConns // by address
	closed bool
}

type peerConns struct {
	conns   []*conn
	dialing *dial     // one at a time
	down    error     // why the last dial failed; nil after one that didn't
	suspect time.Time // when it last gave no sign of life; zero when it has spoken since
	heard   time.Time // when a call was last answered
}

// downWait is how long a call waits for a peer that didn't answer the last dial: only
// the first call to a dead peer pays for the whole handshake timeout.
const downWait = 250 * time.Millisecond

type dial struct {
	done chan struct{}
	err  error
}

// conn is one pooled connection; its fields are guarded by pool.mu.
type conn struct {
	to    *peerConns
	qc    *quic.Conn
	calls int
	used  time.Time
	fresh bool // no call has been answered on it yet
}

func newPool(e *Endpoint) *pool {
	p := &pool{e: e, peers: map[string]*peerConns{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.reap) // ends with close
	return p
}

// reap closes connections that have been idle.
func (p *pool) reap() {
	t := time.NewTicker(idleClose / 4)
	defer t.Stop()
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-t.C:
			p.sweep(time.Now().Add(-idleClose))
		}
	}
}

// sweep closes the connections that carry no call and were last used before t.
func (p *pool) sweep(t time.Time) {
	var idle []*conn
	p.mu.Lock()
	for addr, pc := range p.peers {
		keep := pc.conns[:0]
		for _, c := range pc.conns {
			if c.qc.Context().Err() != nil || c.calls == 0 && c.used.Before(t) {
				idle = append(idle, c)
			} else {
				keep = append(keep, c)
			}
		}
		clear(pc.conns[len(keep):])
		pc.conns = keep
		if len(keep) == 0 && pc.dialing == nil {
			delete(p.peers, addr)
		}
	}
	p.mu.Unlock()
	for _, c := range idle {
		_ = c.qc.CloseWithError(codeClosing, "idle")
	}
}

// get reserves a place on a connection to addr, dialling one if need be. reused tells
// that calls have been answered on it before.
func (p *pool) get(ctx context.Context, addr string) (_ *conn, reused bool, err error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, false, errs.New(errs.Canceled, "call "+addr, "the endpoint is closed")
		}
		pc := p.peers[addr]
		if pc == nil {
			pc = &peerConns{}
			p.peers[addr] = pc
		}
		if c := pc.pick(); c != nil {
			c.calls++
			c.used = time.Now()
			reused = !c.fresh
			p.mu.Unlock()
			return c, reused, nil
		}
		if len(pc.conns) >= maxConnsPerKey {
			p.mu.Unlock()
			// Waiting here while holding other streams could end in a circle of waiters.
			return nil, false, errs.New(errs.TooManyRequests, "call "+addr, fmt.Sprintf("%d calls are under way", maxConnsPerKey*streamsPerConn))
		}
		d := pc.dialing
		if d == nil {
			d = &dial{done: make(chan struct{})}
			pc.dialing = d
			// Under the pool's context: several may wait for it, and the first of them may leave.
			p.wg.Go(func() { p.connect(pc, addr, d) }) // ends within the dial's timeout
		}
		down := pc.down
		p.mu.Unlock()
		var enough <-chan time.Time
		if down != nil {
			t := time.NewTimer(downWait)
			defer t.Stop()
			enough = t.C
		}
		select {
		case <-enough:
			return nil, false, down
		case <-d.done:
			if d.err != nil {
				return nil, false, d.err
			}
		case <-ctx.Done():
			return nil, false, dialErr("dial", addr, ctx.Err())
		}
	}
}

// suspect notes that the peer at addr gave no sign of life.
func (p *pool) suspect(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if pc := p.peers[addr]; pc != nil {
		pc.suspect = time.Now()
	}
}

// suspected tells whether the peer at addr gave no sign of life a short while ago, and
// has not spoken since.
func (p *pool) suspected(addr string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	pc := p.peers[addr]
	return pc != nil && !pc.suspect.IsZero() && time.Since(pc.suspect) < p.e.waits.suspect
}

// heardWithin tells whether the peer at addr has answered a call so lately.
func (p *pool) heardWithin(addr string, d time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	pc := p.peers[addr]
	return pc != nil && pc.suspect.IsZero() && time.Since(pc.heard) < d
}

// connect makes a further connection to addr and tells those who wait for d.
func (p *pool) connect(pc *peerConns, addr string, d *dial) {
	qc, err := p.dial(p.ctx, addr)
	p.mu.Lock()
	pc.dialing, pc.down, pc.suspect = nil, err, time.Time{}
	switch {
	case err != nil:
		d.err = err
		pc.suspect = time.Now()
	case p.closed:
		d.err = errs.New(errs.Canceled, "call "+addr, "the endpoint is closed")
		_ = qc.CloseWithError(codeClosing, "closed")
	default:
		pc.conns = append(pc.conns, &conn{to: pc, qc: qc, used: time.Now(), fresh: true})
	}
	p.mu.Unlock()
	close(d.done)
}

// pick gives the live connection with the fewest calls that has room; nil for none.
func (pc *peerConns) pick() *conn {
	var best *conn
	keep := pc.conns[:0]
	for _, c := range pc.conns {
		if c.qc.Context().Err() != nil && c.calls == 0 {
			continue
		}
		keep = append(keep, c)
		if c.qc.Context().Err() == nil && c.calls < streamsPerConn && (best == nil || c.calls < best.calls) {
			best = c
		}
	}
	clear(pc.conns[len(keep):])
	pc.conns = keep
	return best
}

// put gives a place back; answered tells that the peer has spoken on the connection.
func (p *pool) put(c *conn, answered bool) {
	p.mu.Lock()
	c.calls--
	c.used = time.Now()
	if answered {
		c.fresh = false
		c.to.suspect, c.to.heard = time.Time{}, c.used
	}
	p.mu.Unlock()
}

// dial makes a connection and exchanges Hello on it: a refused certificate shows at
// the first use of a connection, not in the handshake.
func (p *pool) dial(ctx context.Context, addr string) (*quic.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*handshakeTimeout)
	defer cancel()
	ua, err := resolve(ctx, addr)
	if err != nil {
		return nil, errs.Wrap(errs.Unavailable, "dial "+addr, err)
	}
	qc, err := p.e.tr.Dial(ctx, ua, p.e.tlsDial(), quicConfig())
	if err != nil {
		return nil, dialErr("dial", addr, err)
	}
	s, err := qc.OpenStreamSync(ctx)
	if err != nil {
		_ = qc.CloseWithError(codeClosing, "")
		return nil, dialErr("dial", addr, err)
	}
	c := newCall(ctx, addr, s, nil)
	defer c.Close()
	mine := p.e.myHello()
	var theirs wire.Hello
	_, err = c.Do(&mine, func(h wire.Head) error { return c.R.Decode(&theirs) })
	if err != nil {
		_ = qc.CloseWithError(codeClosing, "")
		return nil, err
	}
	if p.e.opts.OnHello != nil {
		p.e.opts.OnHello(theirs)
	}
	return qc, nil
}

func resolve(ctx context.Context, addr string) (*net.UDPAddr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupIPAddr(ctx, host)
	if err != nil {
		return nil, err
	}
	p, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return nil, err
	}
	return &net.UDPAddr{IP: ips[0].IP, Zone: ips[0].Zone, Port: p}, nil
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	var all []*conn
	for _, pc := range p.peers {
		all = append(all, pc.conns...)
	}
	clear(p.peers)
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	for _, c := range all {
		_ = c.qc.CloseWithError(codeClosing, "closing")
	}
}
