package batching

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// putAll stores an entry's bytes on its first n holders.
func (c *fakeCluster) putAll(e Entry, data []byte, n int) Entry {
	for _, i := range c.m().Holders(peer.HashObject(e.Bucket, e.ObjName), n) {
		c.misbehave(i, func(s *fakeSource) { s.objects[key(&e)] = data })
	}
	return e
}

func count(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	must(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

func bytesOf(seed, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
	return b
}

// With two copies of everything a batch is whole without any one node.
func TestLostSenderWithCopies(t *testing.T) {
	for what, streaming := range map[string]bool{"streaming": true, "metadata first": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // a dead port answers nothing: both wait for the dial to give up
			c := newFakeCluster(t, fakeOptions{nodes: 4})
			var in []Entry
			var want [][]byte
			for i := range 120 {
				want = append(want, bytesOf(i, 10+i*13%1500))
				in = append(in, c.putAll(Entry{Bucket: "b", ObjName: fmt.Sprintf("o%d", i)}, want[i], 2))
			}
			must(t, c.eps[3].Close())
			r := c.run(&Request{ID: c.dtFor(1), In: slices.Clone(in), Strm: &streaming})
			if r.err != nil || r.totals.OK != len(in) {
				t.Fatalf("%+v %v", r.totals, r.err)
			}
			for i := range in {
				if !bytes.Equal(r.data[i], want[i]) {
					t.Errorf("entry %d differs", i)
				}
			}
			if m := c.nodes[1].m; count(t, m.lostSenders) != 1 || count(t, m.recovered) == 0 {
				t.Error("nothing was counted as recovered")
			}
		})
	}
}

// stuckReader blocks at an offset until it is let go.
type stuckReader struct {
	io.ReaderAt
	at   int64
	open chan struct{}
}

func (r stuckReader) ReadAt(p []byte, off int64) (int, error) {
	if off >= r.at {
		<-r.open
		return 0, errs.New(errs.Internal, "read", "let go")
	}
	return r.ReaderAt.ReadAt(p, off)
}

// An entry whose sender dies within it goes on from another copy, and the reader sees
// nothing of it.
func TestSenderDiesWithinEntry(t *testing.T) {
	const size = 40*wire.ChunkSize + 77 // more than the windows between the nodes and the client hold
	for _, version := range []uint64{7, 8} {
		c := newFakeCluster(t, fakeOptions{})
		data := bytesOf(3, size)
		big := c.putAll(c.ownedBy(1, "big"), data, 3)
		after := c.putAll(c.ownedBy(1, "after"), []byte("after"), 3)
		gate := make(chan struct{})
		c.misbehave(1, func(s *fakeSource) { s.stuck = &stuckReader{at: size / 2, open: gate} })
		c.misbehave(0, func(s *fakeSource) { s.version = version })
		s, err := c.client.GetBatch(t.Context(), &Request{ID: c.dtFor(0), In: []Entry{big, after}, Coer: true})
		must(t, err)
		it, err := s.Next()
		must(t, err)
		var got bytes.Buffer
		closed := make(chan error, 1)
		_, err = it.WriteTo(writerFunc(func(p []byte) (int, error) {
			if got.Len() == 0 {
				go func() { closed <- c.eps[1].Close() }()
			}
			return got.Write(p)
		}))
		if version == 7 {
			if err != nil || !bytes.Equal(got.Bytes(), data) {
				t.Errorf("%d of %d bytes: %v", got.Len(), len(data), err)
			}
			if n := count(t, c.nodes[0].m.resumed); n != 1 {
				t.Errorf("%v entries were resumed", n)
			}
		} else if !errs.IsCode(err, errs.SenderLost) && !errs.IsCode(err, errs.VersionMismatch) {
			t.Errorf("pieces of two versions: %v", err)
		}
		it, err = s.Next()
		must(t, err)
		if b, err := it.Bytes(); err != nil || string(b) != "after" {
			t.Errorf("%q %v", b, err)
		}
		_, err = s.Next()
		if err != io.EOF {
			t.Error(err)
		}
		close(gate)
		must(t, <-closed)
		s.Close()
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// A payload that turns out bad is taken from elsewhere, whole or from where it went wrong.
func TestBadPayloadIsReplaced(t *testing.T) {
	for _, size := range []int{0, 100, wire.ChunkSize, 3*wire.ChunkSize + 5} {
		data := bytesOf(9, size)
		e := Entry{Bucket: "b", ObjName: "o"}
		mine := func(*Entry) bool { return true }
		good := &fakeSource{objects: map[string][]byte{"b/o": data}, mine: mine}
		for what, bad := range map[string]*fakeSource{
			"a wrong checksum": {objects: map[string][]byte{"b/o": data}, corrupt: map[string]bool{"b/o": true}, mine: mine, other: good},
			"cut short":        {objects: map[string][]byte{"b/o": data}, cut: map[string]bool{"b/o": true}, mine: mine, other: good},
		} {
			var got []byte
			last := 0
			feed := func(src Source) error {
				got, last = nil, 0
				return newFeeder(src).feed(t.Context(), &e, func(first, end bool, p *Payload, piece []byte, sum uint64) error {
					if first != (len(got) == 0) || p.Size != int64(size) {
						t.Errorf("%s: first %v after %d of %d bytes", what, first, len(got), p.Size)
					}
					if got = append(got, piece...); end {
						last++
					}
					return nil
				})
			}
			if err := feed(bad); err != nil || !bytes.Equal(got, data) || last != 1 {
				t.Errorf("%s, %d bytes: %d came: %v", what, size, len(got), err)
			}
			bad.other = nil
			if size == 0 && bad.cut["b/o"] {
				continue
			}
			var ee *entryError
			if err := feed(bad); !errors.As(err, &ee) || !errs.IsCode(ee.err, errs.ChecksumMismatch) || last != 0 {
				t.Errorf("%s and nothing else, %d bytes: %v", what, size, err)
			}
		}
	}
}

// preparedSource records what it was prepared for.
type preparedSource struct {
	*fakeSource
	shares chan []Entry
}

func (s *preparedSource) Prepare(_ context.Context, share []Entry) Source {
	s.shares <- slices.Clone(share)
	return s.fakeSource
}

// A source that wants to is told its share beforehand, at the DT and at senders.
func TestSourceIsPrepared(t *testing.T) {
	shares := make(chan []Entry, 10)
	c := newFakeCluster(t, fakeOptions{adjust: func(o *NodeOptions) {
		o.Source = &preparedSource{o.Source.(*fakeSource), shares}
	}})
	in, _ := c.fill(60, 100)
	if r := c.run(&Request{In: slices.Clone(in)}); r.err != nil {
		t.Fatal(r.err)
	}
	n := 0
	for range c.nodes {
		share := <-shares
		n += len(share)
		for _, e := range share[1:] {
			if c.owner(e) != c.owner(share[0]) {
				t.Error("a share of several owners")
			}
		}
	}
	if n != len(in) {
		t.Errorf("%d entries in all shares, want %d", n, len(in))
	}
}
