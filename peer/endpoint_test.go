package peer_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve starts an endpoint with a call (Status) whose handler is given.
func serve(t *testing.T, certs string, h peer.HandlerFunc) *peer.Endpoint {
	t.Helper()
	e, err := peer.NewEndpoint(peer.EndpointOptions{Identity: testcluster.Identity(t, certs, peer.NodeName), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	e.Handle(wire.TStatus, peer.Reader, h)
	e.Handle(wire.TPut, peer.Writer, h)
	e.Handle(wire.TSend, peer.NodeRole, h)
	if err := e.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func caller(t *testing.T, id *peer.Identity) *peer.Endpoint {
	t.Helper()
	e, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

func ok(context.Context, *peer.ServerCall) error { return nil }

func do(t *testing.T, e *peer.Endpoint, addr string, req wire.Message) error {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	call, err := e.Open(ctx, addr)
	if err != nil {
		return err
	}
	defer call.Close()
	_, err = call.Do(req, func(wire.Head) error { return nil })
	return err
}

func TestRoles(t *testing.T) {
	certs := testcluster.Certs(t)
	e := serve(t, certs, ok)
	addr := e.Addr().String()
	calls := map[string]wire.Message{"status": &peer.Ask{Kind: wire.TStatus}, "put": &peer.PutRequest{}, "send": &peer.Ask{Kind: wire.TSend}}
	for file, may := range map[string][]string{"reader": {"status"}, peer.ClientName: {"status", "put"}, peer.NodeName: {"status", "put", "send"}} {
		c := caller(t, testcluster.Identity(t, certs, file))
		for name, msg := range calls {
			err := do(t, c, addr, msg)
			allowed := false
			for _, m := range may {
				allowed = allowed || m == name
			}
			if allowed && err != nil || !allowed && !errs.IsCode(err, errs.PermissionDenied) {
				t.Errorf("%s calls %s: %v", file, name, err)
			}
		}
	}
}

func TestStrangersAreRefused(t *testing.T) {
	certs, other := testcluster.Certs(t), testcluster.Certs(t)
	e := serve(t, certs, ok)
	addr := e.Addr().String()
	status := &peer.Ask{Kind: wire.TStatus}
	if err := do(t, caller(t, testcluster.Identity(t, other, peer.ClientName)), addr, status); !errs.IsCode(err, errs.PermissionDenied) {
		t.Errorf("a certificate of another CA: %v", err)
	}
	// A client's certificate can't serve: it neither has the role nor the name.
	id := testcluster.Identity(t, certs, peer.ClientName)
	imposter, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer imposter.Close()
	if err := imposter.Serve(); !errs.IsCode(err, errs.PermissionDenied) {
		t.Errorf("a client serves: %v", err)
	}
	// It can't say that it is a node either.
	liar, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id, Hello: func() wire.Hello { return wire.Hello{Node: "n1"} }})
	if err != nil {
		t.Fatal(err)
	}
	defer liar.Close()
	if err := do(t, liar, addr, status); !errs.IsCode(err, errs.PermissionDenied) {
		t.Errorf("a client speaks as a node: %v", err)
	}
	// A certificate of the CA without a role isn't one of ours.
	if err := peer.Issue(certs, certs, "x", "x", peer.NoRole); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("a certificate without role: %v", err)
	}
	if _, err := peer.LoadIdentity(filepath.Join(certs, "none"), "node"); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("no certificates: %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	c := caller(t, testcluster.Identity(t, testcluster.Certs(t), peer.ClientName))
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}) // takes packets, says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Open(ctx, udp.LocalAddr().String()); !errs.IsCode(err, errs.Timeout) {
		t.Errorf("a silent address: %v", err)
	}
	if _, err := c.Open(t.Context(), "127.0.0.1"); !errs.IsCode(err, errs.Unavailable) {
		t.Errorf("an address without port: %v", err)
	}
	taken := udp.LocalAddr().String()
	_, err = peer.NewEndpoint(peer.EndpointOptions{Identity: testcluster.Identity(t, testcluster.Certs(t), peer.NodeName), Listen: taken})
	if !errs.IsCode(err, errs.Busy) {
		t.Errorf("a port in use: %v", err)
	}
}

func TestCancelReachesTheHandler(t *testing.T) {
	certs := testcluster.Certs(t)
	began, ended := make(chan struct{}), make(chan struct{})
	e := serve(t, certs, func(ctx context.Context, c *peer.ServerCall) error {
		close(began)
		<-ctx.Done()
		close(ended)
		return ctx.Err()
	})
	c := caller(t, testcluster.Identity(t, certs, peer.ClientName))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	call, err := c.Open(ctx, e.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	if _, err := call.Do(&peer.Ask{Kind: wire.TStatus}, func(wire.Head) error { return nil }); !errs.IsCode(err, errs.Canceled) {
		t.Errorf("the caller gets %v", err)
	}
	<-ended
}

// Twice as many calls as a connection may carry go over several, and none is refused.
func TestManyCallsShareConnections(t *testing.T) {
	certs := testcluster.Certs(t)
	var mu sync.Mutex
	here, all := 0, make(chan struct{})
	const n = 70
	e := serve(t, certs, func(ctx context.Context, c *peer.ServerCall) error {
		mu.Lock()
		if here++; here == n {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all: // only when all are under way at once
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	c := caller(t, testcluster.Identity(t, certs, peer.ClientName))
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := do(t, c, e.Addr().String(), &peer.Ask{Kind: wire.TStatus}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// A node that is started anew on the same port answers the next call of a client whose
// pooled connection has died.
func TestRestartIsSurvived(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "b")
	c.Put(t, "b", "o", []byte("x"))
	addr := c.Endpoint()
	if err := c.Nodes[0].Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	short, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	if _, err := c.Peer.Head(short, "b", "o"); err == nil {
		t.Error("a closed node answers")
	}
	stop()
	again := testcluster.Restart(t, c, 0, addr)
	defer again.Close()
	if _, err := c.Peer.Head(ctx, "b", "o"); err != nil {
		t.Error(err)
	}
}

func TestPutAndGet(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	ctx := t.Context()
	for _, size := range []int{0, 1, 4095, wire.ChunkSize, wire.ChunkSize + 1, 3<<20 + 7} {
		data := make([]byte, size)
		_, _ = rand.Read(data)
		name := fmt.Sprintf("o%d", size)
		// A reader that can't be rewound takes the other path.
		info, err := c.Peer.Put(ctx, "b", name, io.MultiReader(bytes.NewReader(data)), peer.PutOptions{Size: -1})
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Peer.Put(ctx, "b", name, bytes.NewReader(nil), peer.PutOptions{Size: int64(size), Sum: &info.Checksum})
		if err != nil || again.Version != info.Version {
			t.Errorf("%s: the same bytes were stored anew: %+v %v", name, again, err)
		}
		for _, node := range c.Nodes { // whoever is asked
			got, body, err := c.Peer.GetAt(ctx, node.Addr(), &peer.ObjectRequest{Kind: wire.TGet, Bucket: "b", Object: name})
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(body)
			body.Close()
			if err != nil || !bytes.Equal(b, data) || got.Size != int64(size) || got.Checksum != info.Checksum {
				t.Errorf("%s from %s: %d bytes, %+v, %v", name, node.Name(), len(b), got, err)
			}
		}
	}
	for _, r := range []struct {
		start, length int64
		want          string
		code          errs.Code
	}{{2, 3, "234", 0}, {0, 4, "0123", 0}, {7, -1, "789", 0}, {10, -1, "", 0}, {0, -1, "0123456789", 0}, {5, 6, "", errs.RangeNotSatisfiable},
		{11, -1, "", errs.RangeNotSatisfiable}, {3, 0, "", errs.InvalidArgument}, {-1, 1, "", errs.InvalidArgument}} {
		c.Put(t, "b", "digits", []byte("0123456789"))
		_, body, err := c.Peer.Get(ctx, "b", "digits", peer.GetOptions{Start: r.start, Length: r.length})
		if errs.CodeOf(err) != r.code {
			t.Errorf("range %d:%d: %v", r.start, r.length, err)
		}
		if err != nil {
			continue
		}
		b, err := io.ReadAll(body)
		body.Close()
		if err != nil || string(b) != r.want {
			t.Errorf("range %d:%d: %q %v", r.start, r.length, b, err)
		}
	}
}

type failing struct{ n int }

func (f *failing) Read(p []byte) (int, error) {
	if f.n <= 0 {
		return 0, errors.New("the source broke")
	}
	n := min(len(p), f.n)
	f.n -= n
	return n, nil
}

// Whatever goes wrong with a PUT, nothing of the object is there afterwards.
func TestFailedPutLeavesNothing(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	ctx := t.Context()
	wrong := uint64(1)
	if _, err := c.Peer.Put(ctx, "b", "broken", &failing{n: 500_000}, peer.PutOptions{Size: -1}); err == nil {
		t.Error("a broken source was stored")
	}
	if _, err := c.Peer.Put(ctx, "b", "sum", bytes.NewReader([]byte("x")), peer.PutOptions{Size: 1, Sum: &wrong}); !errs.IsCode(err, errs.ChecksumMismatch) {
		t.Errorf("a wrong checksum: %v", err)
	}
	if _, err := c.Peer.Put(ctx, "b", "short", bytes.NewReader(make([]byte, 10)), peer.PutOptions{Size: 11}); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("a short payload: %v", err)
	}
	if _, err := c.Peer.Put(ctx, "b", "long", bytes.NewReader(make([]byte, 5<<20)), peer.PutOptions{Size: 11}); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("a long payload: %v", err)
	}
	if _, err := c.Peer.Put(ctx, "none", "o", bytes.NewReader(make([]byte, 5<<20)), peer.PutOptions{Size: 5 << 20}); !errs.IsCode(err, errs.BucketNotFound) {
		t.Errorf("no bucket: %v", err)
	}
	for _, name := range []string{"", "a/../b", "a\x00", "\xff"} {
		if _, err := c.Peer.Put(ctx, "b", name, bytes.NewReader(nil), peer.PutOptions{}); !errs.IsCode(err, errs.InvalidArgument) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	page, err := c.Peer.List(ctx, "b", peer.ListOptions{})
	if err != nil || len(page.Objects) != 0 {
		t.Errorf("%+v %v", page, err)
	}
}

// All streams of a connection but one stand still with their windows full: the one that is
// read gets all that is sent to it.
func TestFullWindows(t *testing.T) {
	const frame, frames, still = 64 << 10, 400, 31
	certs := testcluster.Certs(t)
	var full atomic.Int64
	srv := serve(t, certs, func(ctx context.Context, c *peer.ServerCall) error {
		payload := make([]byte, frame)
		for i := range frames {
			if i == (2<<20)/frame-4 {
				full.Add(1)
			}
			if err := c.W.Frame(&peer.Data{}, payload); err != nil {
				return err
			}
		}
		return nil
	})
	e := caller(t, testcluster.Identity(t, certs, peer.ClientName))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range still {
		call, err := e.Open(ctx, srv.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer call.Close()
		if err := call.W.Frame(&peer.Ask{Kind: wire.TStatus}, nil); err != nil {
			t.Fatal(err)
		}
		if err := call.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	for full.Load() < still {
		if ctx.Err() != nil {
			t.Fatalf("%d of %d windows are full", full.Load(), still)
		}
		time.Sleep(time.Millisecond)
	}
	call, err := e.Open(ctx, srv.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	got := 0
	_, err = call.Do(&peer.Ask{Kind: wire.TStatus}, func(wire.Head) error {
		b, err := call.Payload()
		got += len(b)
		return err
	})
	if err != nil || got != frame*frames {
		t.Errorf("%d of %d bytes: %v", got, frame*frames, err)
	}
}
