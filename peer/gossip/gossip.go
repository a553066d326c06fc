package gossip

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// Gossip is this node's part in the gossip. Safe for concurrent use.
type Gossip struct {
	o   Options
	log *slog.Logger
	t   *transport
	ml  *memberlist.Memberlist

	news chan struct{} // holds one: own is to be announced
	stop chan struct{} // closed by Close
	wg   sync.WaitGroup

	mu     sync.Mutex
	alive  map[string]uint64 // guarded by mu: what the nodes that are alive have announced
	own    uint64            // guarded by mu: what this node announces
	closed bool              // guarded by mu
}

// Start registers the handler of gossip calls, so that it comes before the endpoint's
// Serve, and begins; nobody is known before Join.
func Start(o Options) (*Gossip, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	g := &Gossip{o: o, log: o.Logger, t: newTransport(&o, newMetrics(o.Registerer)), news: make(chan struct{}, 1), stop: make(chan struct{}), alive: map[string]uint64{}}
	o.Endpoint.Handle(wire.TGossip, peer.NodeRole, g.t.serve)

	c := memberlist.DefaultLANConfig()
	c.Name, c.RequireNodeNames = o.Name, true
	c.Transport = g.t
	c.Delegate, c.Events, c.Alive = delegate{g}, delegate{g}, delegate{g}
	c.Logger = log.New(logWriter{o.Logger}, "", 0)
	c.ProbeInterval = min(o.SuspectAfter/3, time.Second)
	c.ProbeTimeout = c.ProbeInterval / 2
	c.SuspicionMult = int(o.SuspectAfter / c.ProbeInterval)
	c.PushPullInterval = 15 * time.Second
	c.TCPTimeout = 5 * time.Second
	c.EnableCompression = false
	var err error
	if g.ml, err = memberlist.Create(c); err != nil {
		return nil, errs.Wrap(errs.Internal, "gossip", err)
	}
	g.wg.Go(g.announcer) // ends with Close
	return g, nil
}

// Join meets a node, and through it all that it knows. The node must be in the map.
func (g *Gossip) Join(node string) error {
	_, err := g.ml.Join([]string{node + "/" + nodeAddr(node).String()})
	return errs.Wrap(errs.Unavailable, "gossip with "+node, err)
}

// Alive tells whether a node counts as alive, and what it announced last.
func (g *Gossip) Alive(node string) (announced uint64, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	announced, ok = g.alive[node]
	return announced, ok
}

// Announce spreads a number, such as a hash of what this node knows, in place of the one
// before. It doesn't wait.
func (g *Gossip) Announce(v uint64) {
	g.mu.Lock()
	changed := g.own != v
	g.own = v
	g.mu.Unlock()
	if changed {
		select {
		case g.news <- struct{}{}:
		default:
		}
	}
}

// announcer spreads what Announce was given.
func (g *Gossip) announcer() {
	for {
		select {
		case <-g.stop:
			return
		case <-g.news:
			_ = g.ml.UpdateNode(time.Millisecond) // the error is only that it doesn't wait for all to hear
		}
	}
}

// Leave tells the others that this node goes for good, as long as ctx lasts.
func (g *Gossip) Leave(ctx context.Context) error {
	wait := time.Second
	if d, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(d))
	}
	return errs.Wrap(errs.Unavailable, "leave the gossip", g.ml.Leave(max(wait, time.Millisecond)))
}

// Close stops without telling anybody: to the others this node is dead.
func (g *Gossip) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed = true
	g.mu.Unlock()
	close(g.stop)
	err := g.ml.Shutdown()
	g.wg.Wait()
	return err
}

// delegate is what memberlist calls, with locks of its own held: nothing here may block
// or call it back.
type delegate struct{ g *Gossip }

var (
	_ memberlist.Delegate      = delegate{}
	_ memberlist.EventDelegate = delegate{}
	_ memberlist.AliveDelegate = delegate{}
)

// NodeMeta is what travels with the node's name: the number that it announces.
func (d delegate) NodeMeta(limit int) []byte {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	return binary.BigEndian.AppendUint64(make([]byte, 0, 8), d.g.own)
}

// The cluster's state isn't carried by memberlist's messages: they only tell who is to
// be asked for it.
func (delegate) NotifyMsg([]byte)                {}
func (delegate) GetBroadcasts(int, int) [][]byte { return nil }
func (delegate) LocalState(bool) []byte          { return nil }
func (delegate) MergeRemoteState([]byte, bool)   {}

// NotifyAlive refuses a node that isn't in the cluster map, or has left it.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	if _, ok := d.g.o.Addr(n.Name); !ok && n.Name != d.g.o.Name {
		return fmt.Errorf("the cluster map has no node %q", n.Name)
	}
	return nil
}

func (d delegate) NotifyJoin(n *memberlist.Node) { d.heard(n) }

func (d delegate) NotifyUpdate(n *memberlist.Node) { d.heard(n) }

func (d delegate) heard(n *memberlist.Node) {
	var v uint64
	if len(n.Meta) >= 8 {
		v = binary.BigEndian.Uint64(n.Meta)
	}
	d.g.mu.Lock()
	d.g.alive[n.Name] = v
	d.g.mu.Unlock()
	d.g.o.Changed(n.Name)
}

func (d delegate) NotifyLeave(n *memberlist.Node) {
	d.g.mu.Lock()
	delete(d.g.alive, n.Name)
	d.g.mu.Unlock()
	d.g.o.Changed(n.Name)
}

// logWriter takes memberlist's lines. What matters of them the caller says in its own
// words, so they are for debugging.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(p []byte) (int, error) {
	w.log.Debug(strings.TrimSpace(string(p)))
	return len(p), nil
}
