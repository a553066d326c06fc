package batching

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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/zeebo/xxh3"
	"go.uber.org/goleak"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// fakeSource holds objects in memory and misbehaves as it is told.
type fakeSource struct {
	mu      sync.Mutex
	objects map[string][]byte
	opens   int
	hold    map[string]chan struct{} // Open of the object waits for it
	fail    map[string]error
	corrupt map[string]bool // its checksum is wrong
	cut     map[string]bool // its bytes end early
	mine    func(e *Entry) bool
	other   *fakeSource                                          // where Again gives an entry from
	stuck   *stuckReader                                         // what large payloads are read through
	version uint64                                               // of all objects; 0: 7
	far     func(ctx context.Context, e *Entry)                  // waits for the store beyond the cluster
	read    func(ctx context.Context, r io.ReaderAt) io.ReaderAt // what payloads are read through
}

func key(e *Entry) string {
	if e.ArchPath != "" {
		return e.Bucket + "/" + e.ObjName + "@/" + e.ArchPath
	}
	return e.Bucket + "/" + e.ObjName
}

func (s *fakeSource) Open(ctx context.Context, e *Entry) (Payload, error) {
	s.mu.Lock()
	s.opens++
	k := key(e)
	data, ok := s.objects[k]
	hold, fail, corrupt, cut := s.hold[k], s.fail[k], s.corrupt[k], s.cut[k]
	s.mu.Unlock()
	if s.far != nil {
		Slow(ctx)
		s.far(ctx, e)
	}
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return Payload{}, ctx.Err()
		}
	}
	if fail != nil {
		return Payload{}, fail
	}
	if !ok && !s.mine(e) {
		// It can't ask the owner: it wouldn't be asked itself if that were there.
		return Payload{}, &errs.Error{Code: errs.Unavailable, Op: "open", Bucket: e.Bucket, Object: e.ObjName, Msg: "the owner isn't there"}
	}
	if !ok {
		return Payload{}, &errs.Error{Code: errs.NotFound, Op: "open", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath}
	}
	off, n, err := e.Range(int64(len(data)))
	if err != nil {
		return Payload{}, err
	}
	p := Payload{R: bytes.NewReader(data), Off: off, Size: n, Version: 7, Sum: xxh3.Hash(data[off : off+n]), Summed: true}
	if corrupt {
		p.Sum++
	}
	if cut {
		p.R = bytes.NewReader(data[:len(data)/2])
	}
	if s.version != 0 {
		p.Version = s.version
	}
	if s.read != nil {
		p.R = s.read(ctx, p.R)
	}
	if s.stuck != nil && p.Size > s.stuck.at {
		p.R = stuckReader{p.R, s.stuck.at, s.stuck.open}
	}
	if s.other != nil {
		p.Again = func(ctx context.Context, _ error) (Payload, error) { return s.other.Open(ctx, e) }
	}
	return p, nil
}

// fakeCluster is n nodes that take part in batches and nothing else.
type fakeCluster struct {
	t       *testing.T
	maps    atomic.Pointer[peer.Map]
	eps     []*peer.Endpoint
	nodes   []*Node
	sources []*fakeSource
	caller  *peer.Endpoint
	client  *Client
}

type fakeOptions struct {
	nodes  int
	adjust func(*NodeOptions)
	serve  func(i int, ep *peer.Endpoint) // adds to what node i serves, or replaces it
}

func newFakeCluster(t *testing.T, o fakeOptions) *fakeCluster {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	must(t, peer.InitCA(dir))
	must(t, peer.Issue(dir, dir, "node", "node", peer.NodeRole))
	must(t, peer.Issue(dir, dir, "client", "client", peer.Reader))
	c := &fakeCluster{t: t}
	if o.nodes == 0 {
		o.nodes = 3
	}
	var list []peer.Node
	for i := range o.nodes {
		ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: identity(t, dir, "node"), Listen: "127.0.0.1:0"})
		must(t, err)
		t.Cleanup(func() { _ = ep.Close() })
		c.eps = append(c.eps, ep)
		list = append(list, peer.Node{Name: fmt.Sprintf("n%d", i), Addr: ep.Addr().String(), Epoch: 1})
	}
	c.maps.Store(peer.NewMap("c", 1, list))
	for i, ep := range c.eps {
		src := &fakeSource{objects: map[string][]byte{}, hold: map[string]chan struct{}{}, fail: map[string]error{}, corrupt: map[string]bool{}, cut: map[string]bool{},
			mine: func(e *Entry) bool { return c.owner(*e) == i }}
		no := NodeOptions{Name: list[i].Name, Endpoint: ep, Source: src, Map: c.m, Registerer: prometheus.NewRegistry()}
		if o.adjust != nil {
			o.adjust(&no)
		}
		c.sources = append(c.sources, src)
		c.nodes = append(c.nodes, NewNode(no))
		ep.Handle(wire.TMapGet, peer.Reader, func(_ context.Context, call *peer.ServerCall) error {
			return call.W.Frame(&peer.MapMessage{Kind: wire.TMap, Map: c.m()}, nil)
		})
		if o.serve != nil {
			o.serve(i, ep)
		}
		must(t, ep.Serve())
	}
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: identity(t, dir, "client")})
	must(t, err)
	t.Cleanup(func() { _ = ep.Close() })
	p, err := peer.NewClient(t.Context(), ep, list[0].Addr)
	must(t, err)
	c.caller, c.client = ep, NewClient(p)
	return c
}

func identity(t *testing.T, dir, file string) *peer.Identity {
	t.Helper()
	id, err := peer.LoadIdentity(dir, file)
	must(t, err)
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *fakeCluster) m() *peer.Map { return c.maps.Load() }

// misbehave changes what node i's source does.
func (c *fakeCluster) misbehave(i int, f func(s *fakeSource)) {
	c.sources[i].mu.Lock()
	defer c.sources[i].mu.Unlock()
	f(c.sources[i])
}

// owner is the index of the node that an entry lies on.
func (c *fakeCluster) owner(e Entry) int { return c.m().Owner(peer.HashObject(e.Bucket, e.ObjName)) }

// put stores an entry's bytes where they belong.
func (c *fakeCluster) put(e Entry, data []byte) Entry {
	s := c.sources[c.owner(e)]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[key(&e)] = data
	return e
}

// fill stores n objects of up to size bytes and gives their entries and contents.
func (c *fakeCluster) fill(n, size int) ([]Entry, [][]byte) {
	entries, data := make([]Entry, n), make([][]byte, n)
	for i := range n {
		b := make([]byte, rand.IntN(size+1))
		for j := range b {
			b[j] = byte(rand.Uint32())
		}
		data[i] = b
		entries[i] = c.put(Entry{Bucket: "b", ObjName: fmt.Sprintf("o%05d", i)}, b)
	}
	return entries, data
}

// dtFor finds a request id whose DT is node i.
func (c *fakeCluster) dtFor(i int) string {
	for {
		if id := NewID(); chooseDT(c.m(), id, 0, nil) == i {
			return id
		}
	}
}

// ownedBy finds an object name that node i owns.
func (c *fakeCluster) ownedBy(i int, prefix string) Entry {
	for k := 0; ; k++ {
		if e := (Entry{Bucket: "b", ObjName: fmt.Sprintf("%s%d", prefix, k)}); c.owner(e) == i {
			return e
		}
	}
}

// result is a batch read to its end.
type result struct {
	data   [][]byte
	errors []error // of placeholders
	err    error   // of the batch
	totals Totals
}

func (c *fakeCluster) run(req *Request) result {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 60*time.Second)
	defer cancel()
	var r result
	s, err := c.client.GetBatch(ctx, req)
	if err != nil {
		r.err = err
		return r
	}
	defer s.Close()
	for {
		it, err := s.Next()
		if err == io.EOF {
			r.totals = s.Totals()
			return r
		}
		if err != nil {
			r.err = err
			return r
		}
		if it.Index != len(r.data) {
			c.t.Fatalf("item %d comes as number %d", it.Index, len(r.data))
		}
		b, err := it.Bytes()
		if err != nil {
			b = nil
		} else if it.Sum() != xxh3.Hash(b) {
			c.t.Errorf("item %d: its checksum isn't that of its bytes", it.Index)
		}
		r.data, r.errors = append(r.data, b), append(r.errors, err)
	}
}

// idle waits until no node assembles or sends anything.
func (c *fakeCluster) idle() {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for i := 0; i < len(c.nodes); {
		if dt, sending := c.nodes[i].InFlight(); dt == 0 && sending == 0 {
			i++
			continue
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("node %d is still at work", i)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
