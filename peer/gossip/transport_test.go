package gossip

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// bare is a transport without a memberlist above it.
type bare struct {
	*transport
	ep *peer.Endpoint
}

func newBare(t *testing.T, certs string, d *directory, name string) *bare {
	t.Helper()
	b := &bare{ep: endpoint(t, certs, "node", name, "127.0.0.1:0")}
	b.transport = newTransport(&Options{Name: name, Endpoint: b.ep, Addr: d.get}, newMetrics(nil))
	b.ep.Handle(wire.TGossip, peer.NodeRole, b.serve)
	must(t, b.ep.Serve())
	d.set(name, b.ep.Addr().String())
	t.Cleanup(func() { must(t, b.Shutdown()) })
	return b
}

func to(name string) memberlist.Address {
	return memberlist.Address{Addr: nodeAddr(name).String(), Name: name}
}

func TestPackets(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	a, b := newBare(t, dir, d, "a"), newBare(t, dir, d, "b")
	for i := range 40 {
		_, err := a.WriteToAddress([]byte(fmt.Sprint("packet ", i)), to("b"))
		must(t, err)
	}
	for i := range 40 {
		select {
		case p := <-b.PacketCh():
			if want := fmt.Sprint("packet ", i); string(p.Buf) != want || p.From.String() != nodeAddr("a").String() || p.Timestamp.IsZero() {
				t.Errorf("%q from %v, want %q", p.Buf, p.From, want)
			}
		case <-time.After(hang):
			t.Fatal("a packet doesn't come")
		}
	}
	if _, err := a.WriteToAddress([]byte("x"), to("nobody")); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("a packet to nobody: %v", err)
	}
	if _, err := a.WriteTo([]byte("x"), nodeAddr("b").String()); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("a packet to no name: %v", err)
	}
	if ip, port, err := a.FinalAdvertiseAddr("", 0); err != nil || net.JoinHostPort(ip.String(), fmt.Sprint(port)) != nodeAddr("a").String() {
		t.Errorf("%v %d %v", ip, port, err)
	}
}

// A node that doesn't answer takes nobody's time: packets to it are queued and dropped,
// and those to others go on.
func TestDeadPeerBlocksNobody(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	a, b := newBare(t, dir, d, "a"), newBare(t, dir, d, "b")
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	must(t, err)
	defer silent.Close()
	d.set("dead", silent.LocalAddr().String())
	for i := range 10 * queuePackets {
		_, err := a.WriteToAddress(make([]byte, 100), to("dead"))
		must(t, err)
		if i%queuePackets == 0 {
			_, err := a.WriteToAddress([]byte("x"), to("b"))
			must(t, err)
			select {
			case <-b.PacketCh():
			case <-time.After(hang):
				t.Fatal("a packet waits behind those to a dead node")
			}
		}
	}
	a.mu.Lock()
	waiting := len(a.queues["dead"].packets)
	a.mu.Unlock()
	if waiting > queuePackets {
		t.Errorf("%d packets wait", waiting)
	}
	if _, err := a.DialAddressTimeout(to("dead"), 50*time.Millisecond); err == nil {
		t.Error("a stream to a dead node")
	}
}

// A node whose memberlist takes nothing drops what comes, and answers.
func TestInboundIsBounded(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	a, b := newBare(t, dir, d, "a"), newBare(t, dir, d, "b")
	for range 3 * inboundPackets / packetsPerCall {
		packets := make([][]byte, packetsPerCall)
		for i := range packets {
			packets[i] = []byte("flood")
		}
		must(t, a.deliver("b", packets))
	}
	if n := len(b.packets); n != inboundPackets {
		t.Errorf("%d packets wait, want %d", n, inboundPackets)
	}
	// Streams that memberlist doesn't take end by themselves.
	c, err := a.DialAddressTimeout(to("b"), hang)
	must(t, err)
	_ = c.SetReadDeadline(time.Now().Add(hang))
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a stream that isn't taken: %v", err)
	}
	_ = c.Close()
}

func TestStreams(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	a, b := newBare(t, dir, d, "a"), newBare(t, dir, d, "b")
	big := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	served := make(chan error, 1)
	go func() { // ends with the stream
		c := <-b.StreamCh()
		defer c.Close()
		got := make([]byte, len(big))
		_, err := io.ReadFull(c, got)
		if err == nil && !bytes.Equal(got, big) {
			err = errors.New("other bytes")
		}
		if err == nil && c.RemoteAddr().String() != nodeAddr("a").String() {
			err = fmt.Errorf("from %v", c.RemoteAddr())
		}
		if err == nil {
			_, err = c.Write(append([]byte("answer "), got...))
		}
		served <- err
	}()
	c, err := a.DialAddressTimeout(to("b"), hang)
	must(t, err)
	_, err = c.Write(big)
	must(t, err)
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, append([]byte("answer "), big...)) {
		t.Errorf("%d bytes %v", len(got), err)
	}
	must(t, <-served)
	must(t, c.Close())

	// Deadlines hold on both ends; a stream that is closed ends the other end.
	c, err = a.DialAddressTimeout(to("b"), hang)
	must(t, err)
	far := <-b.StreamCh()
	_ = far.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	must(t, far.Close())
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("a stream that the other end closed: %v", err)
	}
	must(t, c.Close())
	c, err = a.DialAddressTimeout(to("b"), hang)
	must(t, err)
	far = <-b.StreamCh()
	defer far.Close()
	must(t, a.Shutdown())
	if _, err := io.ReadAll(far); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("after the other side's shutdown: %v", err)
	}
	_ = c.Close()
	if _, err := a.DialAddressTimeout(to("b"), hang); err == nil {
		t.Error("a stream after Shutdown")
	}
}

// Frames that no node sends are refused, and the node goes on.
func TestHostilePeer(t *testing.T) {
	d := &directory{addrs: map[string]string{}}
	dir := certs(t)
	b := newBare(t, dir, d, "b")
	ep := endpoint(t, dir, "node", "evil", "")
	for _, x := range []struct {
		name   string
		frames func(w *wire.Writer) error
		code   errs.Code
	}{
		{"no name", func(w *wire.Writer) error { return w.Frame(&message{}, []byte("x")) }, errs.Protocol},
		{"no packet", func(w *wire.Writer) error { return w.Frame(&message{From: "evil"}, nil) }, errs.Protocol},
		{"a packet too large", func(w *wire.Writer) error { return w.Frame(&message{From: "evil"}, make([]byte, maxPacket+1)) }, errs.Protocol},
		{"another message among packets", func(w *wire.Writer) error {
			return errors.Join(w.Frame(&message{From: "evil"}, []byte("x")), w.Frame(&peer.Data{}, []byte("x")))
		}, errs.Protocol},
		{"a stream with a packet in it", func(w *wire.Writer) error {
			return errors.Join(w.Frame(&message{From: "evil", Stream: true}, nil), w.Frame(&message{From: "evil"}, []byte("x")))
		}, 0},
	} {
		call, err := ep.Open(t.Context(), b.ep.Addr().String())
		must(t, err)
		must(t, x.frames(call.W))
		must(t, call.CloseSend())
		call.SetReadDeadline(time.Now().Add(hang))
		_, _, err = call.Next()
		if x.code != 0 && !errs.IsCode(err, x.code) || err == nil {
			t.Errorf("%s: %v", x.name, err)
		}
		call.Close()
		select { // what was well-formed of it came
		case <-b.packets:
		default:
		}
	}
	writer := endpoint(t, dir, "writer", "", "")
	call, err := writer.Open(t.Context(), b.ep.Addr().String())
	must(t, err)
	defer call.Close()
	_, err = call.Do(&message{From: "a"}, func(wire.Head) error { return nil })
	if !errs.IsCode(err, errs.PermissionDenied) {
		t.Errorf("gossip of a writer: %v", err)
	}
}
