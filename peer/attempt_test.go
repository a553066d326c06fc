package peer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// fake is a node of a made-up cluster: it holds one object under every name.
type fake struct {
	*relay
	e *Endpoint

	gets, heads, puts, deletes atomic.Int64

	mu      sync.Mutex
	data    []byte                          // guarded by mu
	version uint64                          // guarded by mu
	pause   chan struct{}                   // guarded by mu: a GET waits for it after the first half; nil: it doesn't
	status  func(ctx context.Context) error // guarded by mu
	remove  func(c *ServerCall) error       // guarded by mu
}

// set changes what a fake does.
func (f *fake) set(do func(f *fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f)
}

// cluster is some fakes and a client that goes by a map of them.
type cluster struct {
	nodes  []*fake
	client *Client
}

func fakes(t *testing.T, n int, data []byte) *cluster {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	if err := InitCA(dir); err != nil {
		t.Fatal(err)
	}
	id := map[string]*Identity{}
	for file, role := range map[string]Role{NodeName: NodeRole, ClientName: Writer} {
		if err := Issue(dir, dir, file, file, role); err != nil {
			t.Fatal(err)
		}
		var err error
		if id[file], err = LoadIdentity(dir, file); err != nil {
			t.Fatal(err)
		}
	}
	c := &cluster{}
	var m atomic.Pointer[Map]
	for range n {
		e, err := NewEndpoint(EndpointOptions{Identity: id[NodeName], Listen: "127.0.0.1:0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.Close() })
		f := &fake{data: data, version: 7, e: e, status: func(context.Context) error { return nil }, remove: func(*ServerCall) error { return nil }}
		e.Handle(wire.TMapGet, Reader, func(_ context.Context, c *ServerCall) error {
			return c.W.Frame(&MapMessage{Kind: wire.TMap, Map: m.Load()}, nil)
		})
		e.Handle(wire.TStatus, Reader, func(ctx context.Context, c *ServerCall) error {
			f.mu.Lock()
			status := f.status
			f.mu.Unlock()
			return status(ctx)
		})
		e.Handle(wire.TGet, Reader, f.serveGet)
		e.Handle(wire.THead, Reader, func(_ context.Context, c *ServerCall) error {
			f.heads.Add(1)
			return c.W.Frame(f.object(), nil)
		})
		e.Handle(wire.TPut, Writer, func(_ context.Context, c *ServerCall) error {
			f.puts.Add(1)
			if _, err := io.Copy(io.Discard, ReceiveBody(c.R)); err != nil {
				return err
			}
			return c.W.Frame(f.object(), nil)
		})
		e.Handle(wire.TDelete, Writer, func(_ context.Context, c *ServerCall) error {
			f.deletes.Add(1)
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.remove(c)
		})
		if err := e.Serve(); err != nil {
			t.Fatal(err)
		}
		f.relay = newRelay(t, e.Addr().String())
		c.nodes = append(c.nodes, f)
	}
	var nodes []Node
	for i, f := range c.nodes {
		nodes = append(nodes, Node{Name: fmt.Sprintf("n%d", i+1), Addr: f.addr, Epoch: 1})
	}
	m.Store(NewMap("c", 1, nodes))
	e, err := NewEndpoint(EndpointOptions{Identity: id[ClientName]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	e.waits = waits{open: 300 * time.Millisecond, silent: 200 * time.Millisecond, sign: 300 * time.Millisecond, suspect: time.Minute}
	if c.client, err = NewClient(t.Context(), e, c.nodes[0].addr); err != nil {
		t.Fatal(err)
	}
	for _, f := range c.nodes { // connections are there
		if _, err := c.client.Status(t.Context(), f.addr); !errs.IsCode(err, errs.OK) && !errs.IsCode(err, errs.Protocol) {
			t.Fatal(err)
		}
	}
	return c
}

func (f *fake) object() *ObjectMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &ObjectMessage{Name: "o", Size: int64(len(f.data)), Version: f.version, Checksum: xxh3.Hash(f.data)}
}

func (f *fake) serveGet(ctx context.Context, c *ServerCall) error {
	f.gets.Add(1)
	req := ObjectRequest{Kind: wire.TGet}
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := c.W.Frame(f.object(), nil); err != nil {
		return err
	}
	f.mu.Lock()
	part, pause := f.data[req.Start:], f.pause
	f.mu.Unlock()
	if req.Length > 0 {
		part = part[:req.Length]
	}
	if pause != nil {
		half := len(part) / 2
		if _, _, err := SendBody(c.W, bytes.NewReader(part[:half])); err != nil {
			return err
		}
		if err := c.W.Flush(); err != nil {
			return err
		}
		select {
		case <-pause:
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, _, err := SendBody(c.W, bytes.NewReader(part[half:])); err != nil {
			return err
		}
	} else if _, _, err := SendBody(c.W, bytes.NewReader(part)); err != nil {
		return err
	}
	c.End.Bytes, c.End.Sum = uint64(len(part)), xxh3.Hash(part)
	return nil
}

// owner is the fake that owns b/o, then the next one, and so on.
func (c *cluster) ranked() []*fake {
	var out []*fake
	for _, i := range c.client.Map().Holders(HashObject("b", "o"), len(c.nodes)) {
		out = append(out, c.nodes[i])
	}
	return out
}

func noise(n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(n)})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

// bounded is long enough for any of these tests, and short of a connection's own death.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestReadsGoElsewhere(t *testing.T) {
	t.Parallel()
	c := fakes(t, 3, noise(1000))
	nodes := c.ranked()
	nodes[0].cut()
	ctx := bounded(t)
	if _, err := c.client.Head(ctx, "b", "o"); err != nil {
		t.Fatal(err)
	}
	if nodes[0].heads.Load() != 0 || nodes[1].heads.Load()+nodes[2].heads.Load() == 0 {
		t.Errorf("asked %d %d %d times", nodes[0].heads.Load(), nodes[1].heads.Load(), nodes[2].heads.Load())
	}
	// From now on it is known: nobody waits for it first.
	if !c.client.e.pool.suspected(nodes[0].addr) {
		t.Error("the node isn't suspected")
	}
	for range 3 {
		_, body, err := c.client.Get(ctx, "b", "o", GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, nodes[0].data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_ = body.Close()
	}
	if _, err := c.client.Buckets(ctx); !errs.IsCode(err, errs.NotSupported) { // which the fakes don't answer
		t.Errorf("a call that any node may answer: %v", err)
	}
	// When it is back and has answered it is asked first again.
	nodes[0].mend()
	for {
		if err := c.client.e.Ping(ctx, nodes[0].addr); err == nil {
			break
		} else if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	before := nodes[0].heads.Load()
	if _, err := c.client.Head(ctx, "b", "o"); err != nil || nodes[0].heads.Load() != before+1 {
		t.Errorf("asked %d times after its return, %v", nodes[0].heads.Load()-before, err)
	}
}

// What changes something goes to a node that has given a sign of life, once.
func TestWritesGoElsewhere(t *testing.T) {
	t.Parallel()
	c := fakes(t, 3, noise(10))
	nodes := c.ranked()
	nodes[0].cut()
	ctx := bounded(t)
	for _, r := range []io.Reader{bytes.NewReader(noise(10)), io.MultiReader(bytes.NewReader(noise(10)))} {
		if _, err := c.client.Put(ctx, "b", "o", r, PutOptions{Size: 10}); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.client.Delete(ctx, "b", "o"); err != nil {
		t.Fatal(err)
	}
	if n := nodes[1].puts.Load() + nodes[2].puts.Load(); n != 2 || nodes[0].puts.Load() != 0 {
		t.Errorf("%d puts", n)
	}
	if n := nodes[1].deletes.Load() + nodes[2].deletes.Load(); n != 1 {
		t.Errorf("%d deletes", n)
	}
	for _, f := range nodes[1:] {
		f.cut()
	}
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := c.client.Put(short, "b", "o", bytes.NewReader(nil), PutOptions{}); !errs.IsCode(err, errs.Unavailable) && !errs.IsCode(err, errs.Timeout) {
		t.Errorf("with no node there: %v", err)
	}
}

// A node that is slow is waited for, however many others there are.
func TestSlowNodeIsWaitedFor(t *testing.T) {
	t.Parallel()
	c := fakes(t, 2, nil)
	slow := make(chan struct{})
	for _, f := range c.nodes {
		f.set(func(f *fake) {
			f.status = func(ctx context.Context) error {
				select {
				case <-slow:
					return errs.New(errs.Busy, "status", "it was slow")
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
	}
	c.client.e.waits.sign = time.Minute // however slow the machine is
	signs := atomic.Int64{}
	call, err := c.client.e.OpenWatched(bounded(t), c.nodes[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	sign := call.vigil.sign
	call.vigil.sign = func(ctx context.Context) error {
		if signs.Add(1) == 3 {
			close(slow)
		}
		return sign(ctx)
	}
	if _, err := call.Do(&Ask{Kind: wire.TStatus}, discard); !errs.IsCode(err, errs.Busy) {
		t.Errorf("after %d signs of life: %v", signs.Load(), err)
	}
}

// Once it is trusted, a call to a node that gives no sign is not given up.
func TestTrustedCallIsNotGivenUp(t *testing.T) {
	t.Parallel()
	c := fakes(t, 1, nil)
	answer, waiting := make(chan struct{}), make(chan struct{})
	c.nodes[0].set(func(f *fake) {
		f.status = func(ctx context.Context) error {
			close(waiting)
			<-answer
			return errs.New(errs.Busy, "status", "it was slow")
		}
	})
	call, err := c.client.e.OpenWatched(bounded(t), c.nodes[0].addr)
	if err != nil {
		t.Fatal(err)
	}
	defer call.Close()
	asked := atomic.Bool{}
	call.vigil.sign = func(context.Context) error {
		asked.Store(true)
		return errs.New(errs.Unavailable, "ping", "")
	}
	call.Trust()
	go func() { // ends when the timer of a vigil would have run
		<-waiting
		time.Sleep(2 * c.client.e.waits.silent)
		close(answer)
	}()
	if _, err := call.Do(&Ask{Kind: wire.TStatus}, discard); !errs.IsCode(err, errs.Busy) || asked.Load() {
		t.Errorf("%v, asked for a sign: %v", err, asked.Load())
	}
}

func TestGetGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	const size = 5<<20 + 13
	for _, r := range []struct {
		name          string
		start, length int64
	}{{"whole", 0, 0}, {"range", 1000, size - 5000}, {"tail", 777, -1}, {"head", 0, size / 2}} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			c := fakes(t, 3, noise(size))
			nodes := c.ranked()
			nodes[0].set(func(f *fake) { f.pause = make(chan struct{}) })
			info, body, err := c.client.Get(bounded(t), "b", "o", GetOptions{Start: r.start, Length: r.length})
			if err != nil || info.Size != size {
				t.Fatal(info, err)
			}
			defer body.Close()
			want := nodes[0].data[r.start:]
			if r.length > 0 {
				want = want[:r.length]
			}
			var got bytes.Buffer
			if _, err := io.CopyN(&got, body, int64(len(want)/3)); err != nil {
				t.Fatal(err)
			}
			nodes[0].cut()
			if _, err := io.Copy(&got, body); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes, want %d, or others", got.Len(), len(want))
			}
			if nodes[1].gets.Load()+nodes[2].gets.Load() == 0 {
				t.Error("nobody else was asked")
			}
		})
	}
}

// The rest of another version, or of other bytes, never follows the first part.
func TestGetNeverMixesVersions(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		do   func(f *fake)
		code errs.Code
	}{
		"a newer version": {func(f *fake) { f.version++ }, errs.VersionMismatch},
		"other bytes":     {func(f *fake) { f.data = noise(len(f.data) - 1) }, errs.VersionMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := fakes(t, 3, noise(4<<20))
			nodes := c.ranked()
			nodes[0].set(func(f *fake) { f.pause = make(chan struct{}) })
			for _, f := range nodes[1:] {
				f.set(change.do)
			}
			_, body, err := c.client.Get(bounded(t), "b", "o", GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close()
			var got bytes.Buffer
			if _, err := io.CopyN(&got, body, 1<<20); err != nil {
				t.Fatal(err)
			}
			nodes[0].cut()
			// The first node is asked again as well: it must answer that it is gone.
			_ = nodes[0].e.Close()
			_, err = io.Copy(&got, body)
			if !errs.IsCode(err, change.code) {
				t.Errorf("%d bytes, %v", got.Len(), err)
			}
			if !bytes.HasPrefix(nodes[0].data, got.Bytes()) {
				t.Error("bytes of another version were given out")
			}
		})
	}
	t.Run("the same version with other bytes", func(t *testing.T) {
		t.Parallel()
		c := fakes(t, 2, noise(4<<20))
		nodes := c.ranked()
		nodes[0].set(func(f *fake) { f.pause = make(chan struct{}) })
		_, body, err := c.client.Get(bounded(t), "b", "o", GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		if _, err := io.CopyN(io.Discard, body, 1<<20); err != nil {
			t.Fatal(err)
		}
		// Both say that they have these bytes, and neither has all of them.
		nodes[1].set(func(f *fake) {
			f.data = bytes.Clone(f.data)
			f.data[0]++
			f.data[len(f.data)-1]++
		})
		body.(*resumingBody).info.Checksum = nodes[1].object().Checksum
		nodes[0].cut()
		if _, err = io.Copy(io.Discard, body); !errs.IsCode(err, errs.ChecksumMismatch) {
			t.Errorf("%v", err)
		}
	})
}

// The only node there is, when its connection breaks in mid-stream, is asked again.
func TestGetGoesOnAtTheSameNode(t *testing.T) {
	t.Parallel()
	c := fakes(t, 1, noise(4<<20))
	n := c.nodes[0]
	pause := make(chan struct{})
	n.set(func(f *fake) { f.pause = pause })
	_, body, err := c.client.Get(bounded(t), "b", "o", GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var got bytes.Buffer
	if _, err := io.CopyN(&got, body, 1<<20); err != nil {
		t.Fatal(err)
	}
	close(pause)
	c.client.e.pool.mu.Lock()
	for _, conn := range c.client.e.pool.peers[n.addr].conns {
		_ = conn.qc.CloseWithError(codeClosing, "broken by the test")
	}
	c.client.e.pool.mu.Unlock()
	if _, err := io.Copy(&got, body); err != nil || !bytes.Equal(got.Bytes(), n.data) {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
	if n.gets.Load() != 2 {
		t.Errorf("asked %d times", n.gets.Load())
	}
}

func TestRefreshHeedsItsContext(t *testing.T) {
	t.Parallel()
	c := fakes(t, 1, nil)
	c.client.refreshing <- struct{}{} // somebody's fetch takes for ever
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.client.Refresh(ctx); !errs.IsCode(err, errs.Canceled) {
		t.Error(err)
	}
	<-c.client.refreshing
	if err := c.client.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
}

// A delete whose answer is lost is made again; that there is nothing left then is its
// success.
func TestDeleteWhoseAnswerIsLost(t *testing.T) {
	t.Parallel()
	c := fakes(t, 1, nil)
	n := c.nodes[0]
	first := true
	n.set(func(f *fake) {
		f.remove = func(call *ServerCall) error {
			if first {
				first = false
				call.stream.CancelWrite(codeCanceled)
				return nil
			}
			return errs.New(errs.NotFound, "delete", "")
		}
	})
	if err := c.client.Delete(bounded(t), "b", "o"); err != nil {
		t.Error(err)
	}
	if err := c.client.Delete(bounded(t), "b", "o"); !errs.IsCode(err, errs.NotFound) {
		t.Error(err)
	}
}
