package peer

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// pair is a serving endpoint and one that calls it.
func pair(t *testing.T) (addr string, caller *Endpoint, stop func()) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	var ids []*Identity
	if err := InitCA(dir); err != nil {
		t.Fatal(err)
	}
	for file, role := range map[string]Role{NodeName: NodeRole, ClientName: Reader} {
		if err := Issue(dir, dir, file, file, role); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{NodeName, ClientName} {
		id, err := LoadIdentity(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	node, err := NewEndpoint(EndpointOptions{Identity: ids[0], Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	node.Handle(wire.TStatus, Reader, func(context.Context, *ServerCall) error { return nil })
	if err := node.Serve(); err != nil {
		t.Fatal(err)
	}
	caller, err = NewEndpoint(EndpointOptions{Identity: ids[1]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	return node.Addr().String(), caller, func() { _ = node.Close() }
}

func status(ctx context.Context, e *Endpoint, addr string) error {
	call, err := e.Open(ctx, addr)
	if err != nil {
		return err
	}
	defer call.Close()
	_, err = call.Do(&Ask{Kind: wire.TStatus}, func(wire.Head) error { return nil })
	return err
}

func (p *pool) count() (conns, calls int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pc := range p.peers {
		conns += len(pc.conns)
		for _, c := range pc.conns {
			calls += c.calls
		}
	}
	return conns, calls
}

func TestPoolReusesAndClosesIdle(t *testing.T) {
	addr, e, _ := pair(t)
	for range 5 {
		if err := status(t.Context(), e, addr); err != nil {
			t.Fatal(err)
		}
		if conns, calls := e.pool.count(); conns != 1 || calls != 0 {
			t.Fatalf("%d connections carry %d calls", conns, calls)
		}
	}
	open, err := e.Open(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	e.pool.sweep(time.Now().Add(time.Hour))
	if conns, calls := e.pool.count(); conns != 1 || calls != 1 {
		t.Fatalf("a connection in use was swept: %d connections, %d calls", conns, calls)
	}
	open.Close()
	e.pool.sweep(time.Now().Add(-time.Hour))
	if conns, _ := e.pool.count(); conns != 1 {
		t.Fatal("a connection that was just used was swept")
	}
	e.pool.sweep(time.Now().Add(time.Hour))
	if conns, _ := e.pool.count(); conns != 0 {
		t.Fatalf("%d idle connections stayed", conns)
	}
	if err := status(t.Context(), e, addr); err != nil {
		t.Fatal(err)
	}
}

// The first call to a dead peer waits for the handshake; those after it hardly.
func TestPeerThatIsDown(t *testing.T) {
	addr, e, stop := pair(t)
	if err := status(t.Context(), e, addr); err != nil {
		t.Fatal(err)
	}
	stop()
	down := func() bool {
		e.pool.mu.Lock()
		defer e.pool.mu.Unlock()
		return e.pool.peers[addr] != nil && e.pool.peers[addr].down != nil
	}
	for deadline := time.Now().Add(time.Minute); !down(); {
		if err := status(t.Context(), e, addr); !errs.IsCode(err, errs.Unavailable) {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("it isn't known to be down")
		}
	}
	for range 3 {
		if err := status(t.Context(), e, addr); !errs.IsCode(err, errs.Unavailable) {
			t.Fatal(err)
		}
	}
}
