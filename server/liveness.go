package server

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"sheaf/peer"
	"sheaf/peer/gossip"
	"sheaf/peer/wire"
)

// liveness keeps the cluster map true to which nodes answer:
//
//	memberlist: dead ──▶ asked directly, twice ──▶ Down ──▶ pushed to all
//	a node that isn't met yet, or is Down ──▶ asked now and then ──▶ met again; it refutes
//	a node that announces another state than ours ──▶ state is exchanged with it
//
// One goroutine decides, and asks each node in one of its own.
type liveness struct {
	n      *Node
	gossip *gossip.Gossip
	news   chan struct{} // holds one: look again
	pushes chan struct{} // holds one: what this node knows is to be spread

	askEvery time.Duration // look at all nodes
	askFor   time.Duration // wait for a node that is asked

	mu    sync.Mutex
	nodes map[string]*nodeLife // guarded by mu
	own   uint64               // guarded by mu: the digest announced last
}

// nodeLife is what this node has seen of another.
type nodeLife struct {
	met    bool      // it was alive, to memberlist, since this node started
	busy   bool      // it is being asked
	misses int       // times in a row that it didn't answer
	since  time.Time // the first of them
	tried  time.Time // when it was asked last
	told   [2]uint64 // the digests, its and ours, that an exchange was last made for
}

const (
	missesToDown = 2               // and more for a node that wasn't met at all
	retryDown    = 5 * time.Second // between attempts to reach a node that is down
)

func startLiveness(n *Node) (*liveness, error) {
	l := &liveness{n: n, news: make(chan struct{}, 1), pushes: make(chan struct{}, 1), nodes: map[string]*nodeLife{},
		askEvery: min(n.o.SuspectAfter/3, time.Second), askFor: min(max(n.o.SuspectAfter/4, 250*time.Millisecond), 2*time.Second)}
	g, err := gossip.Start(gossip.Options{Name: n.Name(), Endpoint: n.ep, Addr: n.addrOf, Changed: func(string) { l.look() },
		SuspectAfter: n.o.SuspectAfter, Registerer: n.registry, Logger: n.log})
	if err != nil {
		return nil, err
	}
	l.gossip = g
	return l, nil
}

// addrOf gives the address of a node that may be alive.
func (n *Node) addrOf(node string) (string, bool) {
	m := n.Map()
	i := m.Find(node)
	if i < 0 || m.Nodes[i].State == peer.Left {
		return "", false
	}
	return m.Nodes[i].Addr, true
}

// look makes the goroutine look at the nodes again.
func (l *liveness) look() {
	select {
	case l.news <- struct{}{}:
	default:
	}
}

// spread makes all others hear soon what this node knows.
func (n *Node) spread() {
	if n.live == nil {
		return // not serving yet: joining tells them
	}
	select {
	case n.live.pushes <- struct{}{}:
	default:
	}
}

// announce tells the others which state this node has.
func (l *liveness) announce(st *state) {
	d := st.digest()
	l.mu.Lock()
	l.own = d
	l.mu.Unlock()
	l.gossip.Announce(d)
	l.look()
}

// leave tells the others that this node is gone for good, and hears them no more.
func (l *liveness) leave() {
	ctx, cancel := context.WithTimeout(l.n.ctx, time.Second)
	defer cancel()
	if err := l.gossip.Leave(ctx); err != nil {
		l.n.log.Debug("leaving the gossip", "err", err)
	}
	_ = l.gossip.Close()
}

// run is liveness' goroutine; it ends with the node.
func (l *liveness) run() {
	ctx := l.n.ctx
	var wg sync.WaitGroup // those who ask
	defer wg.Wait()
	t := time.NewTicker(l.askEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.n.gone:
			return
		case <-l.pushes:
			wg.Go(func() { l.n.push(ctx) }) // ends within push's timeout
			continue
		case <-l.news:
		case <-t.C:
		}
		for _, node := range l.due(l.n.Map(), time.Now()) {
			wg.Go(func() { l.ask(ctx, node) }) // ends within its timeouts
		}
	}
}

// due gives the nodes to be asked now, and marks them as being asked.
func (l *liveness) due(m *peer.Map, now time.Time) []peer.Node {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out, differ []peer.Node
	for _, node := range m.Nodes {
		if node.Name == l.n.Name() || node.State == peer.Left {
			continue
		}
		life := l.nodes[node.Name]
		if life == nil {
			life = &nodeLife{}
			l.nodes[node.Name] = life
		}
		says, alive := l.gossip.Alive(node.Name)
		if alive {
			life.met, life.misses = true, 0
		}
		if life.busy {
			continue
		}
		if !alive {
			if node.State != peer.Down || now.Sub(life.tried) >= retryDown {
				out = append(out, node)
			}
			continue
		}
		if pair := [2]uint64{says, l.own}; says != l.own && says != 0 && (pair != life.told || now.Sub(life.tried) >= retryDown) {
			differ = append(differ, node)
		}
	}
	if len(differ) > 0 {
		// One of them is enough: what it knows the others may know too.
		node := differ[rand.IntN(len(differ))]
		says, _ := l.gossip.Alive(node.Name)
		l.nodes[node.Name].told = [2]uint64{says, l.own}
		out = append(out, node)
	}
	for _, node := range out {
		life := l.nodes[node.Name]
		life.busy, life.tried = true, now
	}
	return out
}

// ask exchanges state with a node. One that memberlist doesn't know is met if it answers,
// and is down if it has failed to often enough.
func (l *liveness) ask(ctx context.Context, node peer.Node) {
	wait := exchangeTimeout
	_, alive := l.gossip.Alive(node.Name)
	if !alive {
		wait = l.askFor
	}
	actx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	with, err := l.n.exchange(actx, node.Addr, wire.TMapPush)
	there := err == nil && with == node.Name
	if there && !alive {
		if err := l.gossip.Join(node.Name); err != nil {
			l.n.log.Debug("gossip", "with", node.Name, "err", err)
		}
	}
	if l.answered(node.Name, there || alive, time.Now()) && ctx.Err() == nil {
		l.n.down(node.Name)
	}
}

// answered notes what came of asking; it tells whether the node is to count as down.
func (l *liveness) answered(node string, there bool, now time.Time) (down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	life := l.nodes[node]
	life.busy = false
	if there {
		life.misses = 0
		return false
	}
	if life.misses++; life.misses == 1 {
		life.since = now
	}
	if life.met {
		defer l.look()
	}
	// One that wasn't met since this node started may still be starting itself.
	return life.misses >= missesToDown && (life.met || now.Sub(life.since) >= 3*l.n.o.SuspectAfter)
}

// down puts into the map that a node doesn't answer. All who see that write the same
// record, and the node itself answers with a newer one when it can.
func (n *Node) down(name string) {
	changed, err := n.change(func(st *state) (*state, bool) {
		i := st.Map.Find(name)
		if i < 0 || !st.Map.Nodes[i].State.Readable() {
			return st, false
		}
		node := st.Map.Nodes[i]
		node.State, node.Epoch = peer.Down, node.Epoch+1
		return st.with(node), true
	})
	if err != nil {
		n.log.Error("a node is down and the map can't be saved", "which", name, "err", err)
	} else if changed {
		n.spread()
	}
}
