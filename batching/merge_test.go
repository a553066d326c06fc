package batching

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// Whatever the mix of objects, members, ranges, repetitions and sizes, whoever assembles
// and however: the entries come back in order, byte for byte.
func TestOrderAndBytes(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, data := c.fill(300, 30_000)
	big := make([]byte, 3*wire.ChunkSize+17)
	for i := range big {
		big[i] = byte(i * 7)
	}
	c.put(Entry{Bucket: "c", ObjName: "big"}, big)
	c.put(Entry{Bucket: "c", ObjName: "empty"}, nil)
	c.put(Entry{Bucket: "c", ObjName: "s.tar", ArchPath: "m/1"}, []byte("member"))
	exact := make([]byte, wire.ChunkSize)
	c.put(Entry{Bucket: "c", ObjName: "exact"}, exact)
	extra := []Entry{{Bucket: "c", ObjName: "big"}, {Bucket: "c", ObjName: "empty"}, {Bucket: "c", ObjName: "s.tar", ArchPath: "m/1"},
		{Bucket: "c", ObjName: "big", Start: 5, Length: -1}, {Bucket: "c", ObjName: "big", Start: 100, Length: 1}, {Bucket: "c", ObjName: "s.tar", ArchPath: "m/1", Length: 3},
		{Bucket: "c", ObjName: "exact"}, {Bucket: "c", ObjName: "big"}, {Bucket: "c", ObjName: "empty", Length: -1}}
	extraData := [][]byte{big, nil, []byte("member"), big[5:], big[100:101], []byte("mem"), exact, big, nil}
	entries, data = append(entries, extra...), append(data, extraData...)
	entries, data = append(entries, entries[:20]...), append(data, data[:20]...) // the same ones again
	rand.Shuffle(len(entries), func(i, j int) {
		entries[i], entries[j] = entries[j], entries[i]
		data[i], data[j] = data[j], data[i]
	})
	off := false
	for _, strm := range []*bool{nil, &off} {
		for dt := range c.nodes {
			for coloc := range 3 {
				req := &Request{ID: c.dtFor(dt), In: append([]Entry(nil), entries...), Strm: strm, Coloc: coloc}
				r := c.run(req)
				if r.err != nil {
					t.Fatal(r.err)
				}
				if len(r.data) != len(entries) || r.totals.OK != len(entries) {
					t.Fatalf("%d of %d entries, %+v", len(r.data), len(entries), r.totals)
				}
				for i := range data {
					if !bytes.Equal(r.data[i], data[i]) {
						t.Fatalf("strm %v dt %d coloc %d: entry %d (%+v): %d bytes, want %d", strm == nil, dt, coloc, i, entries[i], len(r.data[i]), len(data[i]))
					}
				}
			}
		}
	}
	c.idle()
}

// Reading none, some or all of an item's payload never disturbs the next.
func TestUnreadItemsAreSkipped(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, data := c.fill(60, 4*wire.ChunkSize)
	s, err := c.client.GetBatch(t.Context(), &Request{In: entries})
	must(t, err)
	defer s.Close()
	n := 0
	for it, err := range s.Items() {
		must(t, err)
		if it.Size != int64(len(data[n])) {
			t.Fatalf("entry %d has %d bytes, want %d", n, it.Size, len(data[n]))
		}
		if n%3 == 0 {
			b, err := it.Bytes()
			must(t, err)
			if !bytes.Equal(b, data[n]) {
				t.Fatalf("entry %d differs", n)
			}
		}
		if n%3 == 1 {
			if _, err := it.WriteTo(&failingWriter{after: 10}); it.Size > 10 && !errors.Is(err, errWriter) {
				t.Fatalf("a failing writer: %v", err)
			}
		}
		n++
	}
	if n != len(entries) {
		t.Errorf("%d items", n)
	}
}

var errWriter = errors.New("the writer fails")

type failingWriter struct{ after int }

func (w *failingWriter) Write(p []byte) (int, error) {
	if w.after -= len(p); w.after < 0 {
		return 0, errWriter
	}
	return len(p), nil
}

func TestMissingEntries(t *testing.T) {
	off := false
	for _, strm := range []*bool{nil, &off} {
		c := newFakeCluster(t, fakeOptions{})
		entries, data := c.fill(50, 2000)
		for _, i := range []int{7, 20, 49} {
			entries[i].ObjName = fmt.Sprintf("missing%d", i)
		}
		for dt := range c.nodes {
			r := c.run(&Request{ID: c.dtFor(dt), In: append([]Entry(nil), entries...), Strm: strm})
			var e *errs.Error
			if !errors.As(r.err, &e) || e.Code != errs.NotFound || e.Object != "missing7" || e.Op != "entry 7" {
				t.Errorf("without coer: %v", r.err)
			}
			r = c.run(&Request{ID: c.dtFor(dt), In: append([]Entry(nil), entries...), Strm: strm, Coer: true})
			if r.err != nil || r.totals.OK != 47 || r.totals.Failed != 3 {
				t.Fatalf("with coer: %+v %v", r.totals, r.err)
			}
			for i := range entries {
				if strings.HasPrefix(entries[i].ObjName, "missing") {
					if !errs.IsCode(r.errors[i], errs.NotFound) {
						t.Errorf("entry %d: %v", i, r.errors[i])
					}
				} else if !bytes.Equal(r.data[i], data[i]) {
					t.Errorf("entry %d differs", i)
				}
			}
			r = c.run(&Request{ID: c.dtFor(dt), In: append([]Entry(nil), entries...), Strm: strm, Coer: true, MaxSoftErrors: 2})
			if !errs.IsCode(r.err, errs.NotFound) || !strings.Contains(r.err.Error(), "limit is 2") {
				t.Errorf("past the limit: %v", r.err)
			}
		}
		c.idle()
	}
}

func TestMetadataFirst(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, data := c.fill(700, 100) // more than fit one frame of metadata
	entries[3].ObjName = "missing"
	off := false
	s, err := c.client.GetBatch(t.Context(), &Request{In: entries, Strm: &off, Coer: true})
	must(t, err)
	defer s.Close()
	metas := s.Metas()
	if len(metas) != len(entries) {
		t.Fatalf("%d of %d", len(metas), len(entries))
	}
	for i, m := range metas {
		if i == 3 {
			if !errs.IsCode(m.Err, errs.NotFound) {
				t.Errorf("entry 3: %+v", m)
			}
		} else if m.Err != nil || m.Size != int64(len(data[i])) || m.Version != 7 {
			t.Errorf("entry %d: %+v", i, m)
		}
	}
}

// A hard error ends the batch even with coer, and so does a corrupt object without it.
func TestTypedFaults(t *testing.T) {
	for _, size := range []int{100, 3 * wire.ChunkSize} {
		c := newFakeCluster(t, fakeOptions{})
		for node := range c.nodes {
			good := c.put(c.ownedBy(node, "good"), make([]byte, size))
			bad := c.put(c.ownedBy(node, "bad"), make([]byte, size))
			hard := c.ownedBy(node, "hard")
			cut := c.put(c.ownedBy(node, "cut"), make([]byte, size))
			c.misbehave(node, func(s *fakeSource) {
				s.corrupt[key(&bad)] = true
				s.cut[key(&cut)] = true
				s.fail[key(&hard)] = &errs.Error{Code: errs.BucketNotFound, Bucket: "b"}
			})
			for dt := range c.nodes {
				for _, e := range []Entry{bad, cut} {
					r := c.run(&Request{ID: c.dtFor(dt), In: []Entry{good, e, good}, Coer: true})
					if r.err != nil || r.totals.Failed != 1 || r.totals.OK != 2 || !errs.IsCode(r.errors[1], errs.ChecksumMismatch) || len(r.data[2]) != size {
						t.Errorf("%s on %d by dt %d: %+v %v %v", e.ObjName, node, dt, r.totals, r.errors, r.err)
					}
					r = c.run(&Request{ID: c.dtFor(dt), In: []Entry{good, e, good}})
					if !errs.IsCode(r.err, errs.ChecksumMismatch) && (len(r.errors) < 2 || !errs.IsCode(r.errors[1], errs.ChecksumMismatch)) {
						t.Errorf("%s without coer: %v %v", e.ObjName, r.errors, r.err)
					}
				}
				r := c.run(&Request{ID: c.dtFor(dt), In: []Entry{good, hard}, Coer: true})
				if !errs.IsCode(r.err, errs.BucketNotFound) {
					t.Errorf("a hard error: %v", r.err)
				}
			}
		}
		c.idle()
	}
}

// A sender that is gone costs its own entries, named as such, and nobody else's.
func TestLostSender(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, data := c.fill(90, 1000)
	must(t, c.eps[2].Close())
	lost := 0
	for i := range entries {
		if c.owner(entries[i]) == 2 {
			lost++
		}
	}
	// A closed port answers nothing: the dial takes its own time to give up.
	r := c.run(&Request{ID: c.dtFor(0), In: append([]Entry(nil), entries...), Coer: true, MaxSoftErrors: -1})
	if r.err != nil || r.totals.Failed != lost || r.totals.OK != len(entries)-lost {
		t.Fatalf("%+v, %d entries were there: %v", r.totals, lost, r.err)
	}
	for i := range entries {
		if c.owner(entries[i]) == 2 {
			if code := errs.CodeOf(r.errors[i]); code != errs.SenderLost && code != errs.SenderTimeout {
				t.Errorf("entry %d: %v", i, r.errors[i])
			}
			if !strings.Contains(r.errors[i].Error(), "n2") {
				t.Errorf("the error doesn't name the node: %v", r.errors[i])
			}
		} else if !bytes.Equal(r.data[i], data[i]) {
			t.Errorf("entry %d differs", i)
		}
	}
}

// A sender that says nothing is given up after the sender timeout; what it had sent counts.
func TestSilentSender(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{adjust: func(o *NodeOptions) { o.SenderTimeout = 300 * time.Millisecond }})
	first := c.put(c.ownedBy(1, "first"), []byte("first"))
	stuck := c.put(c.ownedBy(1, "stuck"), []byte("stuck"))
	after := c.put(c.ownedBy(1, "after"), []byte("after"))
	other := c.put(c.ownedBy(2, "other"), []byte("other"))
	c.misbehave(1, func(s *fakeSource) { s.hold[key(&stuck)] = make(chan struct{}) })
	r := c.run(&Request{ID: c.dtFor(0), In: []Entry{first, stuck, other, after}, Coer: true})
	if r.err != nil || string(r.data[0]) != "first" || string(r.data[2]) != "other" {
		t.Fatalf("%q %v", r.data, r.err)
	}
	for _, i := range []int{1, 3} {
		if !errs.IsCode(r.errors[i], errs.SenderTimeout) {
			t.Errorf("entry %d: %v", i, r.errors[i])
		}
	}
	c.idle() // the silent sender was told to stop
}

func TestBatchTimeout(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	e := c.put(c.ownedBy(1, "stuck"), nil)
	c.misbehave(1, func(s *fakeSource) { s.hold[key(&e)] = make(chan struct{}) })
	for dt := range c.nodes {
		r := c.run(&Request{ID: c.dtFor(dt), In: []Entry{e}, Coer: true, Timeout: Duration(200 * time.Millisecond)})
		if !errs.IsCode(r.err, errs.Timeout) {
			t.Errorf("dt %d: %v", dt, r.err)
		}
	}
	c.idle()
}

// Entries that are ready reach the client while a later one is still awaited.
func TestNothingWaitsForALaterEntry(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	gate := make(chan struct{})
	for dt := range c.nodes {
		var in []Entry
		for i := range 20 {
			in = append(in, c.put(c.ownedBy(i%2, fmt.Sprintf("early%d-", i)), []byte("early")))
		}
		late := c.put(c.ownedBy(2, "late"), []byte("late"))
		c.misbehave(2, func(s *fakeSource) { s.hold[key(&late)] = gate })
		s, err := c.client.GetBatch(t.Context(), &Request{ID: c.dtFor(dt), In: append(in, late)})
		must(t, err)
		for range in {
			it, err := s.Next()
			must(t, err)
			if b, err := it.Bytes(); err != nil || string(b) != "early" {
				t.Fatalf("%q %v", b, err)
			}
		}
		if dt == len(c.nodes)-1 {
			close(gate)
			it, err := s.Next()
			must(t, err)
			if b, err := it.Bytes(); err != nil || string(b) != "late" {
				t.Fatalf("%q %v", b, err)
			}
		}
		s.Close()
	}
	c.idle()
}

func TestCancelledClientLeavesNothing(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, _ := c.fill(200, 100_000)
	gate := make(chan struct{})
	for i := 100; i < 110; i++ {
		c.misbehave(c.owner(entries[i]), func(s *fakeSource) { s.hold[key(&entries[i])] = gate })
	}
	var wg sync.WaitGroup
	for k := range 16 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s, err := c.client.GetBatch(ctx, &Request{In: append([]Entry(nil), entries...)})
			if err != nil {
				t.Error(err)
				return
			}
			for range 5 * k {
				if _, err := s.Next(); err != nil {
					t.Error(err)
				}
			}
			if k%2 == 0 {
				s.Close() // by closing
			} else {
				cancel() // by context
				if _, err := s.Next(); err == nil && k > 1 {
					for err == nil {
						_, err = s.Next()
					}
				}
				s.Close()
			}
		})
	}
	wg.Wait()
	c.idle()
	close(gate)
}

// A client that doesn't read holds up its own batch only.
func TestStalledReaderHoldsOnlyItself(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	big := make([]byte, 1<<20)
	var in []Entry
	for i := range 40 {
		in = append(in, c.put(Entry{Bucket: "b", ObjName: fmt.Sprintf("big%d", i)}, big))
	}
	stalled, err := c.client.GetBatch(t.Context(), &Request{In: append([]Entry(nil), in...)})
	must(t, err)
	defer stalled.Close()
	_, err = stalled.Next()
	must(t, err)
	for range 3 {
		if r := c.run(&Request{In: append([]Entry(nil), in...)}); r.err != nil || r.totals.OK != 40 {
			t.Fatalf("%+v %v", r.totals, r.err)
		}
	}
	for n := 1; ; n++ {
		if _, err := stalled.Next(); err == io.EOF {
			if n != 40 {
				t.Errorf("%d entries", n)
			}
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

func TestTooManyBatches(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{nodes: 1, adjust: func(o *NodeOptions) { o.MaxBatches = 2 }})
	e := c.put(Entry{Bucket: "b", ObjName: "o"}, []byte("x"))
	gate := make(chan struct{})
	c.misbehave(0, func(s *fakeSource) { s.hold[key(&e)] = gate })
	var open []*Stream
	for range 2 {
		s, err := c.client.GetBatch(t.Context(), &Request{In: []Entry{e, e}})
		if err == nil {
			open = append(open, s)
			continue
		}
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := c.client.GetBatch(ctx, &Request{In: []Entry{e}}); !errs.IsCode(err, errs.TooManyRequests) && !errs.IsCode(err, errs.Timeout) {
		t.Errorf("a third batch: %v", err)
	}
	// One that keeps trying gets through once there is room.
	done := make(chan error)
	go func() {
		s, err := c.client.GetBatch(t.Context(), &Request{In: []Entry{e}})
		if err == nil {
			s.Close()
		}
		done <- err
	}()
	close(gate)
	for _, s := range open {
		s.Close()
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.idle()
}

func TestRedirect(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	e := c.put(Entry{Bucket: "b", ObjName: "o"}, []byte("x"))
	req := &Request{ID: c.dtFor(1), In: []Entry{e}}
	must(t, req.Normalize())
	call, next, _, err := c.client.ask(t.Context(), c.m().Nodes[0].Addr, req, false, false)
	if err != nil || call != nil || next != c.m().Nodes[1].Addr {
		t.Fatalf("%v %q %v", call, next, err)
	}
	call, _, _, err = c.client.ask(t.Context(), c.m().Nodes[0].Addr, req, false, true)
	must(t, err)
	call.Close()
	// A client whose map is of another time is sent to the right node.
	p, err := peer.NewClient(t.Context(), c.caller, c.m().Nodes[2].Addr)
	must(t, err)
	old := NewClient(p)
	c.maps.Store(peer.NewMap("c", 2, c.m().Nodes[:2]))
	moved := c.put(Entry{Bucket: "b", ObjName: "moved"}, []byte("moved"))
	for range 20 {
		s, err := old.GetBatch(t.Context(), &Request{In: []Entry{moved}})
		must(t, err)
		it, err := s.Next()
		must(t, err)
		if b, err := it.Bytes(); err != nil || string(b) != "moved" {
			t.Fatalf("%q %v", b, err)
		}
		s.Close()
	}
}

// When the DT is gone, another node assembles, and only what the dead one owned is lost.
func TestDeadDT(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, data := c.fill(30, 1000)
	must(t, c.eps[1].Close())
	r := c.run(&Request{ID: c.dtFor(1), In: append([]Entry(nil), entries...), Coer: true, MaxSoftErrors: -1})
	if r.err != nil {
		t.Fatal(r.err)
	}
	for i := range entries {
		if c.owner(entries[i]) == 1 {
			if code := errs.CodeOf(r.errors[i]); code != errs.SenderLost && code != errs.SenderTimeout {
				t.Errorf("entry %d: %v", i, r.errors[i])
			}
		} else if !bytes.Equal(r.data[i], data[i]) {
			t.Errorf("entry %d differs", i)
		}
	}
}

// The DT's archive is byte for byte the one made of its frames, and tar reads it.
func TestTarFormat(t *testing.T) {
	c := newFakeCluster(t, fakeOptions{})
	entries, data := c.fill(80, 3*wire.ChunkSize)
	long := c.put(Entry{Bucket: "b", ObjName: strings.Repeat("long/", 60) + "name"}, []byte("long"))
	folder := c.put(Entry{Bucket: "b", ObjName: "folder/"}, nil)
	member := c.put(Entry{Bucket: "b", ObjName: "s.tar", ArchPath: "dir/ö"}, []byte("m"))
	entries, data = append(entries, long, folder, member), append(data, []byte("long"), nil, []byte("m"))
	missing := Entry{Bucket: "b", ObjName: "missing"}
	entries, data = append(entries, missing), append(data, nil)
	off := false
	for _, onob := range []bool{false, true} {
		for _, strm := range []*bool{nil, &off} {
			var got, made bytes.Buffer
			req := func() *Request {
				return &Request{In: append([]Entry(nil), entries...), Onob: onob, Coer: true, Strm: strm}
			}
			totals, err := c.client.GetArchive(t.Context(), req(), &got)
			must(t, err)
			if totals.OK != len(entries)-1 || totals.Failed != 1 || totals.Bytes != int64(got.Len()) {
				t.Errorf("%+v", totals)
			}
			s, err := c.client.GetBatch(t.Context(), req())
			must(t, err)
			must(t, WriteTar(t.Context(), &made, onob, s.Next))
			s.Close()
			if !bytes.Equal(got.Bytes(), made.Bytes()) {
				t.Errorf("onob %v: the archives differ: %d and %d bytes", onob, got.Len(), made.Len())
			}
			r := tar.NewReader(&got)
			for i := range entries {
				h, err := r.Next()
				must(t, err)
				b, err := io.ReadAll(r)
				must(t, err)
				want := entries[i].Bucket + "/" + entries[i].ObjName
				if onob {
					want = entries[i].ObjName
				}
				if entries[i].ArchPath != "" {
					want += "/" + entries[i].ArchPath
				}
				switch entries[i].ObjName {
				case "missing":
					want = "__404__/" + want
				case "folder/":
					want = strings.TrimSuffix(want, "/") + "%2F"
				}
				if h.Name != want || !bytes.Equal(b, data[i]) {
					t.Errorf("member %d is %q with %d bytes, want %q with %d", i, h.Name, len(b), want, len(data[i]))
				}
			}
			if _, err := r.Next(); err != io.EOF {
				t.Errorf("after the last: %v", err)
			}
		}
	}
	var got bytes.Buffer
	if _, err := c.client.GetArchive(t.Context(), &Request{In: append([]Entry(nil), entries...)}, &got); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("without coer: %v", err)
	}
}
