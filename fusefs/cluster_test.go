package fusefs

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/peer"
)

// fakeCluster is a cluster in memory, with knobs for what can go wrong.
type fakeCluster struct {
	mu       sync.Mutex
	buckets  map[string]map[string]*fakeObject
	version  uint64
	pageSize int
	down     error                // every call fails with it
	calls    map[string]int       // by kind
	requests []*batching.Request  // as they came
	gates    map[string]chan bool // object → its entries wait until it is closed
	fails    map[string]error     // object → its entries fail with it
	breaks   map[string]bool      // object → its entries break off half way
	hard     map[string]error     // object → the batch fails there
}

type fakeObject struct {
	data    []byte
	version uint64
	mtime   time.Time
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		buckets: map[string]map[string]*fakeObject{}, pageSize: peer.MaxListPage, calls: map[string]int{},
		gates: map[string]chan bool{}, fails: map[string]error{}, breaks: map[string]bool{}, hard: map[string]error{},
	}
}

func (c *fakeCluster) put(bucket, name string, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.buckets[bucket] == nil {
		c.buckets[bucket] = map[string]*fakeObject{}
	}
	c.version++
	c.buckets[bucket][name] = &fakeObject{data, c.version, time.Unix(1_700_000_000+int64(c.version), 0)}
}

func (c *fakeCluster) putShard(t *testing.T, bucket, name string, members ...string) {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for i := 0; i < len(members); i += 2 {
		if err := w.WriteHeader(&tar.Header{Name: members[i], Size: int64(len(members[i+1])), Mode: 0o644, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, members[i+1])
	}
	w.Close()
	c.put(bucket, name, buf.Bytes())
}

// gate makes the entries of an object wait; open lets them go.
func (c *fakeCluster) gate(object string) (open func()) {
	ch := make(chan bool)
	c.mu.Lock()
	c.gates[object] = ch
	c.mu.Unlock()
	return sync.OnceFunc(func() { close(ch) })
}

func (c *fakeCluster) count(kind string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[kind]
}

func (c *fakeCluster) find(kind, bucket, name string) (*fakeObject, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[kind]++
	if c.down != nil {
		return nil, c.down
	}
	if c.buckets[bucket] == nil {
		return nil, &errs.Error{Code: errs.BucketNotFound, Op: kind, Bucket: bucket}
	}
	if o := c.buckets[bucket][name]; o != nil {
		return o, nil
	}
	return nil, &errs.Error{Code: errs.NotFound, Op: kind, Bucket: bucket, Object: name}
}

func (o *fakeObject) info(name string) peer.ObjectInfo {
	return peer.ObjectInfo{Name: name, Size: int64(len(o.data)), Version: o.version, Checksum: xxh3.Hash(o.data), ModTime: o.mtime}
}

func (o *fakeObject) member(name string) ([]byte, error) {
	for r := tar.NewReader(bytes.NewReader(o.data)); ; {
		h, err := r.Next()
		if err != nil {
			return nil, &errs.Error{Code: errs.NotFound, Op: "member", Member: name}
		}
		if h.Name == name {
			return io.ReadAll(r)
		}
	}
}

func (c *fakeCluster) Buckets(context.Context) ([]peer.BucketInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls["buckets"]++
	if c.down != nil {
		return nil, c.down
	}
	var all []peer.BucketInfo
	for name := range c.buckets {
		all = append(all, peer.BucketInfo{Name: name})
	}
	return all, nil
}

func (c *fakeCluster) List(_ context.Context, bucket string, o peer.ListOptions) (*peer.ListPage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls["list"]++
	if c.down != nil {
		return nil, c.down
	}
	names := make([]string, 0, len(c.buckets[bucket]))
	for name := range c.buckets[bucket] {
		if strings.HasPrefix(name, o.Prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if o.Limit == 0 || o.Limit > c.pageSize {
		o.Limit = c.pageSize
	}
	p := &peer.ListPage{}
	last := max(o.StartAfter, strings.TrimPrefix(o.Token, "token:"))
	for _, name := range names {
		key := name
		if i := strings.Index(name[len(o.Prefix):], "/"); o.Delimiter == "/" && i >= 0 {
			key = name[:len(o.Prefix)+i+1]
		}
		if key <= last {
			continue
		}
		if len(p.Objects)+len(p.Prefixes) == o.Limit {
			p.Token = "token:" + last
			return p, nil
		}
		last = key
		if key != name || o.Delimiter == "/" && strings.HasSuffix(key, "/") && key != o.Prefix {
			p.Prefixes = append(p.Prefixes, key)
		} else {
			p.Objects = append(p.Objects, c.buckets[bucket][name].info(name))
		}
	}
	return p, nil
}

func (c *fakeCluster) Members(_ context.Context, bucket, shard string) (peer.ObjectInfo, []peer.MemberInfo, error) {
	o, err := c.find("members", bucket, shard)
	if err != nil {
		return peer.ObjectInfo{}, nil, err
	}
	var all []peer.MemberInfo
	for r := tar.NewReader(bytes.NewReader(o.data)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return o.info(shard), all, nil
		}
		if err != nil {
			return peer.ObjectInfo{}, nil, &errs.Error{Code: errs.BadShard, Op: "members", Err: err}
		}
		all = append(all, peer.MemberInfo{Name: h.Name, Size: h.Size, ModTime: o.mtime})
	}
}

func (c *fakeCluster) Head(_ context.Context, bucket, name string) (peer.ObjectInfo, error) {
	o, err := c.find("head", bucket, name)
	if err != nil {
		return peer.ObjectInfo{}, err
	}
	return o.info(name), nil
}

func (c *fakeCluster) Get(ctx context.Context, bucket, name string, g peer.GetOptions) (peer.ObjectInfo, io.ReadCloser, error) {
	o, err := c.find("get", bucket, name)
	if err != nil {
		return peer.ObjectInfo{}, nil, err
	}
	c.mu.Lock()
	gate := c.gates["get:"+name]
	c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return peer.ObjectInfo{}, nil, ctx.Err()
		}
	}
	data := o.data
	if g.ArchPath != "" {
		if data, err = o.member(g.ArchPath); err != nil {
			return peer.ObjectInfo{}, nil, err
		}
	}
	e := batching.Entry{Start: g.Start, Length: g.Length}
	off, n, err := e.Range(int64(len(data)))
	if err != nil {
		return peer.ObjectInfo{}, nil, err
	}
	return o.info(name), io.NopCloser(bytes.NewReader(data[off : off+n])), nil
}

// GetBatch serves a request with the faults that were asked for.
func (c *fakeCluster) GetBatch(ctx context.Context, req *batching.Request) (Entries, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls["getbatch"]++
	c.requests = append(c.requests, req)
	if c.down != nil {
		return nil, c.down
	}
	return &fakeEntries{c: c, ctx: ctx, req: req}, nil
}

type fakeEntries struct {
	c    *fakeCluster
	ctx  context.Context
	req  *batching.Request
	next int
	err  error // after an entry broke without coer
}

func (s *fakeEntries) Close() error { return nil }

func (s *fakeEntries) Next() (*batching.Item, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.next == len(s.req.In) {
		return nil, io.EOF
	}
	i := s.next
	e := &s.req.In[i]
	s.next++
	s.c.mu.Lock()
	gate, fail, hard, breaks := s.c.gates[e.ObjName], s.c.fails[e.ObjName], s.c.hard[e.ObjName], s.c.breaks[e.ObjName]
	s.c.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-s.ctx.Done():
			return nil, s.ctx.Err()
		}
	}
	if hard != nil {
		return nil, hard
	}
	o, err := s.c.find("entry", e.Bucket, e.ObjName)
	if fail != nil {
		err = fail
	}
	var data []byte
	if err == nil {
		data = o.data
		if e.ArchPath != "" {
			data, err = o.member(e.ArchPath)
		}
	}
	if err == nil {
		var off, n int64
		if off, n, err = e.Range(int64(len(data))); err == nil {
			data = data[off : off+n]
		}
	}
	if err != nil {
		if s.req.Coer && errs.CodeOf(err).Soft() {
			return &batching.Item{Index: i, Entry: e, Err: err}, nil
		}
		return nil, err
	}
	body := &fakeBody{s: s, data: data, breaks: breaks}
	it := batching.NewItem(i, e, int64(len(data)), xxh3.Hash(data), body)
	it.Version = o.version
	return it, nil
}

type fakeBody struct {
	s      *fakeEntries
	data   []byte
	breaks bool
}

// WriteTo writes in small pieces, to be like a network.
func (b *fakeBody) WriteTo(w io.Writer) (n int64, err error) {
	data := b.data
	if b.breaks {
		data = data[:len(data)/2]
	}
	for p := range slices.Chunk(data, 64<<10) {
		m, err := w.Write(p)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	if b.breaks {
		err := errs.New(errs.SenderLost, "getbatch", "the sender died")
		if !b.s.req.Coer {
			b.s.err = err
		}
		return n, err
	}
	return n, nil
}

// bytesOf makes reproducible payload.
func bytesOf(seed string, n int) []byte {
	out := make([]byte, 0, n+8)
	for x := xxh3.HashString(seed); len(out) < n; x = x*6364136223846793005 + 1442695040888963407 {
		out = fmt.Appendf(out, "%016x", x)
	}
	return out[:n]
}
