package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/server"
)

// What changes hands while nodes come and go: each name has one writer and any number of
// readers, and its writes are numbered. A write that was acknowledged is the floor: whoever
// begins to read after it sees it or a later one. One that failed without a clear outcome
// may have happened.

// saga is what was tried on one name.
type saga struct {
	mu     sync.Mutex
	values []string // guarded by mu: the content after each write that was begun; "" deleted
	floor  int      // guarded by mu: index of the last that was acknowledged
}

// begin notes a write before it is made, and gives its number.
func (s *saga) begin(value string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values = append(s.values, value)
	return len(s.values) - 1
}

func (s *saga) acked(k int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.floor = k
}

// sure gives the content if the last write was acknowledged.
func (s *saga) sure() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[s.floor], s.floor == len(s.values)-1
}

func (s *saga) low() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floor
}

// allows tells whether a read that began when floor was low may see value.
func (s *saga) allows(low int, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.values[low:] {
		if v == value {
			return nil
		}
	}
	return fmt.Errorf("%q was read; from write %d on there were %q", value, low, s.values[low:])
}

// bytesOf are a value's bytes: its name and then noise that belongs to it.
func bytesOf(value string) []byte {
	var seed uint64
	for _, c := range value {
		seed = seed*131 + uint64(c)
	}
	return append([]byte(value+"\n"), noise(seed, int(seed%9000))...)
}

// valueOf gives the value whose bytes those are.
func valueOf(b []byte) (string, error) {
	value, _, ok := strings.Cut(string(b[:min(len(b), 100)]), "\n")
	if !ok || !bytes.Equal(b, bytesOf(value)) {
		return "", fmt.Errorf("%d bytes that nobody wrote, beginning with %.40q", len(b), b)
	}
	return value, nil
}

// load is writers, renamers, deleters, readers and batches on one bucket.
type load struct {
	t       *testing.T
	c       *testcluster.Cluster
	bucket  string
	writers int
	names   int // of each writer
	sagas   map[string]*saga
	next    atomic.Int64
	reads   atomic.Int64 // that gave an answer
	writes  atomic.Int64 // acknowledged
	failed  atomic.Int64 // operations without an outcome
}

func newLoad(t *testing.T, c *testcluster.Cluster, bucket string, writers, names int) *load {
	l := &load{t: t, c: c, bucket: bucket, writers: writers, names: names, sagas: map[string]*saga{}}
	for w := range writers {
		for i := range names {
			l.sagas[l.name(w, i)] = &saga{values: []string{""}}
		}
	}
	return l
}

func (l *load) name(w, i int) string { return fmt.Sprintf("w%d/d%d/o%02d", w, i%3, i) }

// unclear tells whether an operation's failure leaves its outcome open, as it may while
// nodes come and go.
func unclear(err error) bool {
	switch errs.CodeOf(err) {
	case errs.Unavailable, errs.Timeout, errs.Canceled, errs.TooManyRequests:
		return true
	}
	return false
}

// write makes one random write on names of writer w.
func (l *load) write(ctx context.Context, p *peer.Client, w int, r *rand.Rand) {
	name := l.name(w, r.IntN(l.names))
	s := l.sagas[name]
	now, sure := s.sure()
	value := "v" + strconv.FormatInt(l.next.Add(1), 10) + " of " + name
	var err error
	var to *saga
	var k, tk int
	switch dice := r.IntN(10); {
	case dice < 2 && sure && now != "":
		k = s.begin("")
		err = p.Delete(ctx, l.bucket, name)
	case dice == 2 && sure && now != "":
		target := l.name(w, r.IntN(l.names))
		if target == name {
			return
		}
		to = l.sagas[target]
		tk, k = to.begin(now), s.begin("")
		_, err = p.Rename(ctx, peer.ObjectName{Bucket: l.bucket, Object: name}, peer.ObjectName{Bucket: l.bucket, Object: target}, peer.CopyOptions{})
	default:
		k = s.begin(value)
		b := bytesOf(value)
		_, err = p.Put(ctx, l.bucket, name, bytes.NewReader(b), peer.PutOptions{Size: int64(len(b))})
	}
	switch {
	case err == nil:
		l.writes.Add(1)
		s.acked(k)
		if to != nil {
			to.acked(tk)
		}
	case ctx.Err() != nil || unclear(err):
		l.failed.Add(1)
	default:
		l.t.Errorf("writing %s: %v", name, err)
	}
}

// saw checks what a read of a name gave.
func (l *load) saw(what, name string, low int, b []byte, err error) {
	var value string
	switch {
	case errs.IsCode(err, errs.NotFound):
	case err != nil && unclear(err):
		l.failed.Add(1)
		return
	case err == nil:
		if value, err = valueOf(b); err != nil {
			l.t.Errorf("%s of %s: %v", what, name, err)
			return
		}
	default:
		l.t.Errorf("%s of %s: %v", what, name, err)
		return
	}
	l.reads.Add(1)
	if err := l.sagas[name].allows(low, value); err != nil {
		l.t.Errorf("%s of %s: %v", what, name, err)
	}
}

func (l *load) read(ctx context.Context, p *peer.Client, r *rand.Rand) {
	name := l.name(r.IntN(l.writers), r.IntN(l.names))
	low := l.sagas[name].low()
	_, body, err := p.Get(ctx, l.bucket, name, peer.GetOptions{})
	var b []byte
	if err == nil {
		b, err = io.ReadAll(body)
		_ = body.Close()
	}
	if ctx.Err() == nil {
		l.saw("GET", name, low, b, err)
	}
}

func (l *load) batch(ctx context.Context, p *batching.Client, r *rand.Rand) {
	req := &batching.Request{Bucket: l.bucket, Coer: true, MaxSoftErrors: -1}
	var lows []int
	for range 12 {
		name := l.name(r.IntN(l.writers), r.IntN(l.names))
		req.In = append(req.In, batching.Entry{ObjName: name})
		lows = append(lows, l.sagas[name].low())
	}
	s, err := p.GetBatch(ctx, req)
	if err != nil {
		if ctx.Err() == nil && !unclear(err) {
			l.t.Errorf("batch: %v", err)
		}
		l.failed.Add(1)
		return
	}
	defer s.Close()
	for i := 0; ; i++ {
		e, err := s.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			if ctx.Err() == nil && !unclear(err) {
				l.t.Errorf("batch: %v", err)
			}
			l.failed.Add(1)
			return
		}
		b, err := e.Bytes()
		if ctx.Err() != nil {
			return
		}
		l.saw("batch", req.In[i].ObjName, lows[i], b, err)
	}
}

// list checks that a listing has what was there throughout, and not what wasn't.
func (l *load) list(ctx context.Context, p *peer.Client) {
	type known struct {
		low  int
		here bool
	}
	before := map[string]known{}
	for name, s := range l.sagas {
		if v, sure := s.sure(); sure {
			before[name] = known{s.low(), v != ""}
		}
	}
	listed := map[string]bool{}
	for o := (peer.ListOptions{Limit: 20}); ; {
		page, err := p.List(ctx, l.bucket, o)
		if err != nil {
			if ctx.Err() == nil && !unclear(err) {
				l.t.Errorf("LIST: %v", err)
			}
			l.failed.Add(1)
			return
		}
		for _, obj := range page.Objects {
			listed[obj.Name] = true
		}
		if page.Token == "" {
			break
		}
		o.Token = page.Token
	}
	for name, k := range before {
		s := l.sagas[name]
		if _, sure := s.sure(); !sure || s.low() != k.low {
			continue // it was written meanwhile
		}
		if listed[name] != k.here {
			l.t.Errorf("LIST has %s: %v, it was there all the time: %v", name, listed[name], k.here)
		}
	}
}

// run keeps up the load until ctx ends.
func (l *load) run(ctx context.Context, wg *sync.WaitGroup) {
	certs := testcluster.Identity(l.t, l.c.Certs, peer.ClientName)
	worker := func(seed uint64, do func(p *peer.Client, r *rand.Rand)) {
		p, _ := testcluster.Client(l.t, certs, l.c.Endpoint())
		r := rand.New(rand.NewPCG(seed, 5))
		wg.Go(func() {
			for ctx.Err() == nil {
				do(p, r)
			}
		})
	}
	for w := range l.writers {
		worker(uint64(w), func(p *peer.Client, r *rand.Rand) { l.write(ctx, p, w, r) })
	}
	for i := range 2 {
		worker(100+uint64(i), func(p *peer.Client, r *rand.Rand) { l.read(ctx, p, r) })
	}
	worker(200, func(p *peer.Client, r *rand.Rand) { l.batch(ctx, batching.NewClient(p), r) })
	worker(300, func(p *peer.Client, r *rand.Rand) { l.list(ctx, p) })
}

// final checks every name when all is quiet.
func (l *load) final() {
	for name, s := range l.sagas {
		_, body, err := l.c.Peer.Get(bounded(l.t), l.bucket, name, peer.GetOptions{})
		var b []byte
		if err == nil {
			b, err = io.ReadAll(body)
			_ = body.Close()
		}
		if err != nil && unclear(err) {
			l.t.Errorf("GET of %s when all is quiet: %v", name, err)
			continue
		}
		l.saw("the last GET", name, s.low(), b, err)
	}
}

func TestUnderLoad(t *testing.T) {
	t.Parallel()
	c := watchful(t, 3)
	copied(t, c, "b", 2)
	l := newLoad(t, c, "b", 3, 40)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	l.run(ctx, &wg)
	defer wg.Wait()
	defer cancel()
	more := func(n int64) {
		t.Helper()
		from, reads := l.writes.Load(), l.reads.Load()
		waitFor(t, "more writes and reads", func() bool { return t.Failed() || l.writes.Load() >= from+n && l.reads.Load() >= reads+n })
	}
	more(100)
	joins(t, c, "n4", time.Second)
	more(30)
	addr := c.Nodes[1].Addr()
	must(t, c.Nodes[1].Close()) // killed, as far as the others can tell
	inState(t, []*server.Node{c.Nodes[0], c.Nodes[2], c.Nodes[3]}, "n2", peer.Down)
	more(30)
	again(t, c, 1, addr)
	inState(t, c.Nodes, "n2", peer.Up)
	more(30)
	must(t, leave(t, c, c.Nodes[2].Addr(), &peer.LeaveRequest{}))
	more(30)
	inState(t, c.Nodes, "n3", peer.Left)
	cancel()
	wg.Wait()
	must(t, c.Nodes[2].Close())
	c.Nodes = append(c.Nodes[:2:2], c.Nodes[3])
	calm(t, c)
	l.final()
	for name := range l.sagas {
		var top uint64
		var deleted bool
		for _, r := range records(t, c, "b", name) {
			if r.Version > top {
				top, deleted = r.Version, r.Deleted
			}
		}
		held(t, c, "b", name, 2, top, deleted)
	}
	t.Logf("%d writes, %d reads, %d operations without an outcome", l.writes.Load(), l.reads.Load(), l.failed.Load())
}
