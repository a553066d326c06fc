package gossip

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// Limits of what waits.
const (
	queuePackets   = 64  // to one node
	inboundPackets = 256 // from all nodes
	inboundStreams = 32  // being answered
	packetsPerCall = 16

	packetTimeout = 2 * time.Second  // for a call of packets
	streamLife    = 15 * time.Second // of a stream, in either direction
	streamLinger  = 2 * time.Second  // after its end here, for the other side to end it too
	handover      = time.Second      // for memberlist to take a stream
	maxStream     = 32 << 20         // bytes in each direction
)

// transport is memberlist's transport over the endpoint's calls.
type transport struct {
	// dependencies and constants
	self    string
	ep      *peer.Endpoint
	addr    func(node string) (string, bool)
	metrics *metrics

	packets chan *memberlist.Packet
	streams chan net.Conn
	slots   chan struct{} // of streams being answered

	ctx    context.Context // ends with Shutdown
	cancel context.CancelFunc
	wg     sync.WaitGroup // senders and streams' copiers

	mu     sync.Mutex
	queues map[string]*queue // guarded by mu: by node; there is one while its sender runs
	closed bool              // guarded by mu: no more goroutines
}

var _ memberlist.NodeAwareTransport = (*transport)(nil)

// queue is what waits to be sent to one node.
type queue struct{ packets [][]byte }

func newTransport(o *Options, m *metrics) *transport {
	t := &transport{self: o.Name, ep: o.Endpoint, addr: o.Addr, metrics: m, packets: make(chan *memberlist.Packet, inboundPackets),
		streams: make(chan net.Conn), slots: make(chan struct{}, inboundStreams), queues: map[string]*queue{}}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	return t
}

// alias is the address that memberlist has of a node: in fd00::/8, made of the name.
func alias(name string) net.IP {
	ip := append(make(net.IP, 0, net.IPv6len), 0xfd, 0x5e, 0xaf, 0, 0, 0, 0, 0)
	return binary.BigEndian.AppendUint64(ip, xxh3.HashString(name))
}

const aliasPort = 1

// nodeAddr is an alias as a net.Addr.
type nodeAddr string

func (nodeAddr) Network() string { return "sheaf" }
func (a nodeAddr) String() string {
	return net.JoinHostPort(alias(string(a)).String(), strconv.Itoa(aliasPort))
}

// FinalAdvertiseAddr gives the own alias.
func (t *transport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return alias(t.self), aliasPort, nil
}

// PacketCh is where packets come in.
func (t *transport) PacketCh() <-chan *memberlist.Packet { return t.packets }

// StreamCh is where streams come in.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// WriteTo is not used: an alias alone doesn't lead to a node.
func (t *transport) WriteTo(_ []byte, addr string) (time.Time, error) {
	return time.Time{}, errs.New(errs.InvalidArgument, "gossip", "no node is named for "+addr)
}

// DialTimeout is not used either.
func (t *transport) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	_, err := t.WriteTo(nil, addr)
	return nil, err
}

func (t *transport) lookUp(node string) (string, error) {
	addr, ok := t.addr(node)
	if !ok {
		t.metrics.dropped.WithLabelValues("unknown").Inc()
		return "", errs.New(errs.Unavailable, "gossip", fmt.Sprintf("the cluster map has no node %q", node))
	}
	return addr, nil
}

// WriteToAddress queues a packet.
func (t *transport) WriteToAddress(b []byte, a memberlist.Address) (time.Time, error) {
	if _, err := t.lookUp(a.Name); err != nil {
		return time.Time{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return time.Time{}, errs.New(errs.Canceled, "gossip", "closed")
	}
	q := t.queues[a.Name]
	if q == nil {
		q = &queue{}
		t.queues[a.Name] = q
		t.wg.Go(func() { t.send(a.Name, q) }) // ends when the queue is empty, and with Shutdown
	}
	if len(q.packets) >= queuePackets || len(b) > maxPacket {
		t.metrics.dropped.WithLabelValues("out").Inc()
	} else {
		q.packets = append(q.packets, bytes.Clone(b))
	}
	return time.Now(), nil
}

// take gives the packets that go in the next call, and none at the queue's end.
func (t *transport) take(node string, q *queue) [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(q.packets) == 0 || t.closed {
		delete(t.queues, node)
		return nil
	}
	n := min(len(q.packets), packetsPerCall)
	out := q.packets[:n:n]
	q.packets = q.packets[n:]
	return out
}

// send empties a node's queue.
func (t *transport) send(node string, q *queue) {
	for {
		packets := t.take(node, q)
		if packets == nil {
			return
		}
		if err := t.deliver(node, packets); err != nil {
			t.metrics.dropped.WithLabelValues("out").Add(float64(len(packets)))
			continue
		}
		t.metrics.count("out", packets)
	}
}

// deliver makes one call of packets. A connection that died in the pool is replaced once.
func (t *transport) deliver(node string, packets [][]byte) error {
	ctx, cancel := context.WithTimeout(t.ctx, packetTimeout)
	defer cancel()
	for {
		addr, err := t.lookUp(node)
		if err != nil {
			return err
		}
		call, err := t.ep.Open(ctx, addr)
		if err != nil {
			return err
		}
		err = t.write(call, packets)
		again := err != nil && ctx.Err() == nil && call.Stale()
		call.Close()
		if !again {
			return err
		}
	}
}

func (t *transport) write(call *peer.Call, packets [][]byte) error {
	for _, p := range packets {
		if err := call.W.Frame(&message{From: t.self}, p); err != nil {
			return err
		}
	}
	if err := call.CloseSend(); err != nil {
		return err
	}
	for {
		if _, _, err := call.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// serve answers a gossip call.
func (t *transport) serve(ctx context.Context, c *peer.ServerCall) error {
	if t.ctx.Err() != nil {
		return errs.New(errs.Unavailable, "gossip", "the node is shutting down")
	}
	var m message
	h := c.R.Head()
	if err := c.R.Decode(&m); err != nil {
		return err
	}
	if m.From == "" {
		return errs.New(errs.Protocol, "gossip", "a message that names nobody")
	}
	if m.Stream {
		return t.serveStream(ctx, c, m.From)
	}
	for {
		p, err := readPacket(c.R, h)
		if err != nil {
			return err
		}
		t.receive(p, m.From)
		h, err = c.R.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return errs.Wrap(errs.Protocol, "gossip", err)
		}
		if h.Type != wire.TGossip {
			return errs.New(errs.Protocol, "gossip", fmt.Sprintf("message %d among packets", h.Type))
		}
	}
}

// receive hands a packet to memberlist, or drops it when that is behind.
func (t *transport) receive(p []byte, from string) {
	select {
	case t.packets <- &memberlist.Packet{Buf: p, From: nodeAddr(from), Timestamp: time.Now()}:
		t.metrics.count("in", [][]byte{p})
	default:
		t.metrics.dropped.WithLabelValues("in").Inc()
	}
}

// Shutdown ends all calls and waits for them.
func (t *transport) Shutdown() error {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.wg.Wait()
	return nil
}
