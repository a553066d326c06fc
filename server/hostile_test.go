package server_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/quic-go/quic-go"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
	"sheaf/server"
)

// hostile is a QUIC connection that keeps to nothing.
type hostile struct {
	t    *testing.T
	conn *quic.Conn
}

// dialRaw connects with the certificate of that name; "" for none.
func dialRaw(t *testing.T, certs, file, addr string) (*hostile, error) {
	t.Helper()
	pem, err := os.ReadFile(filepath.Join(certs, peer.CACert))
	must(t, err)
	conf := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool(), ServerName: peer.ServerName, NextProtos: []string{wire.ALPN}}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		t.Fatal("the CA's file has no certificate")
	}
	if file != "" {
		cert, err := tls.LoadX509KeyPair(filepath.Join(certs, file+".crt"), filepath.Join(certs, file+".key"))
		must(t, err)
		conf.Certificates = []tls.Certificate{cert}
	}
	conn, err := quic.DialAddr(bounded(t), addr, conf, &quic.Config{MaxIdleTimeout: hang})
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = conn.CloseWithError(0, "") })
	return &hostile{t, conn}, nil
}

// greeted connects as that certificate's holder and says Hello.
func greeted(t *testing.T, certs, file, addr string) *hostile {
	t.Helper()
	h, err := dialRaw(t, certs, file, addr)
	must(t, err)
	end, err := h.call(frames(&wire.Hello{Version: 1}))
	must(t, err)
	must(t, end.Err())
	return h
}

func (h *hostile) open() *quic.Stream {
	h.t.Helper()
	s, err := h.conn.OpenStreamSync(bounded(h.t))
	must(h.t, err)
	must(h.t, s.SetDeadline(time.Now().Add(hang)))
	return s
}

// call sends bytes as a whole request and reads up to the trailer.
func (h *hostile) call(request []byte) (*wire.End, error) {
	h.t.Helper()
	s, err := h.conn.OpenStreamSync(bounded(h.t))
	if err != nil {
		return nil, err // refused already
	}
	defer s.CancelRead(1)
	if _, err := s.Write(request); err != nil {
		// The node may have answered and taken no more.
		var refused *quic.StreamError
		if !errors.As(err, &refused) || refused.ErrorCode != 2 {
			return nil, err
		}
	}
	_ = s.Close()
	return trailer(s)
}

func trailer(s io.Reader) (*wire.End, error) {
	r := wire.NewReader(s)
	for {
		head, err := r.Next()
		if err != nil {
			return nil, err
		}
		if head.Type == wire.TEnd {
			end := new(wire.End)
			return end, r.Decode(end)
		}
	}
}

// frames are messages as they are on the wire.
func frames(ms ...wire.Message) []byte {
	e := wire.NewEncoder()
	for _, m := range ms {
		e.Frame(m, nil)
	}
	return bytes.Clone(e.Bytes())
}

// header is a frame whose header is these bytes.
func header(b ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// fields is a message made of anything.
type fields struct {
	kind wire.Type
	put  func(e *wire.Encoder)
}

func (f fields) Type() wire.Type { return f.kind }

func (f fields) Encode(e *wire.Encoder) {
	if f.put != nil {
		f.put(e)
	}
}

func (f fields) Field(_ string, d *wire.Decoder) { d.Skip() }

func batchOf(n uint64, more func(e *wire.Encoder)) fields {
	return fields{wire.TBatch, func(e *wire.Encoder) {
		e.Str("id", "hostile")
		e.Uint("n", n)
		e.Str("bucket", "b")
		e.Bool("here", true)
		if more != nil {
			more(e)
		}
	}}
}

func entriesOf(n int, put func(e *wire.Encoder)) fields {
	return fields{wire.TEntries, func(e *wire.Encoder) { e.Maps("in", n, func(int) { put(e) }) }}
}

func object(name string) func(e *wire.Encoder) {
	return func(e *wire.Encoder) { e.Str("objname", name) }
}

// healthy checks that a node does its work.
func healthy(t *testing.T, c *testcluster.Cluster, after string) {
	t.Helper()
	c.Put(t, "b", "probe", []byte(after))
	if got, err := get(t, c.Peer, "b", "probe", peer.GetOptions{}); err != nil || string(got) != after {
		t.Fatalf("after %s: %q %v", after, got, err)
	}
	var out bytes.Buffer
	if totals, err := c.Batch.GetArchive(bounded(t), &batching.Request{Bucket: "b", In: []batching.Entry{{ObjName: "probe"}, {ObjName: "probe"}}}, &out); err != nil || totals.OK != 2 {
		t.Fatalf("after %s: %+v %v", after, totals, err)
	}
}

func TestHostileCalls(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 2})
	c.Bucket(t, "b")
	c.Put(t, "b", "o", []byte("x"))
	addr := c.Endpoint()
	h := greeted(t, c.Certs, peer.ClientName, addr)
	deep := bytes.Repeat([]byte{0x91}, 200)
	for _, x := range []struct {
		name    string
		request []byte
		code    errs.Code
	}{
		{"nothing", nil, errs.Protocol},
		{"a header of 4 GiB", []byte{0xff, 0xff, 0xff, 0xff, 0x81}, errs.Protocol},
		{"a header of no bytes", []byte{0, 0, 0, 0}, errs.Protocol},
		{"a header over the limit by one", binary.BigEndian.AppendUint32(nil, wire.MaxHeader+1), errs.Protocol},
		{"a header cut short", []byte{0, 0, 1, 0, 0x81}, errs.Protocol},
		{"garbage", noise(1, 100_000), errs.Protocol},
		{"another protocol", []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), errs.Protocol},
		{"an array of 4 billion", header(0xdd, 0xff, 0xff, 0xff, 0xff), errs.Protocol},
		{"a map of 4 billion", header(0xdf, 0xff, 0xff, 0xff, 0xff), errs.Protocol},
		{"a payload of 4 GiB", header(append([]byte{0x82, 0xa1, 't', byte(wire.TGet), 0xa1, 'p', 0xce}, 0xff, 0xff, 0xff, 0xff)...), errs.Protocol},
		{"a text of 4 GiB", header(append([]byte{0x82, 0xa1, 't', byte(wire.TGet), 0xa6}, append([]byte("bucket"), 0xdb, 0xff, 0xff, 0xff, 0xff)...)...), errs.Protocol},
		{"nested 200 deep", header(append([]byte{0x82, 0xa1, 't', byte(wire.TGet), 0xa1, 'x'}, deep...)...), errs.Protocol},
		{"no such call", frames(fields{kind: 9999}), errs.NotSupported},
		{"an answer as a call", frames(&wire.End{}), errs.NotSupported},
		{"a Hello of no version", frames(fields{kind: wire.THello}), errs.Protocol},
		{"a node's name in Hello", frames(&wire.Hello{Version: 1, Node: "n1"}), errs.PermissionDenied},
		{"a map pushed by a writer", frames(&peer.MapMessage{Kind: wire.TMapPush, Map: peer.NewMap("c", 1<<60, []peer.Node{{Name: "n1", Addr: "evil:1", Epoch: 1 << 62}})}), errs.PermissionDenied},
		{"a join by a writer", frames(fields{kind: wire.TJoin}), errs.PermissionDenied},
		{"a sender's share asked by a writer", frames(fields{kind: wire.TSend}), errs.PermissionDenied},
		{"a path out of the bucket", frames(&peer.ObjectRequest{Kind: wire.TGet, Bucket: "b", Object: "../../../etc/passwd"}), errs.InvalidArgument},
		{"a bucket out of the folder", frames(&peer.ObjectRequest{Kind: wire.TGet, Bucket: "..", Object: "x", Forwarded: true}), errs.InvalidArgument},
		{"a member out of the shard", frames(&peer.ObjectRequest{Kind: wire.TGet, Bucket: "b", Object: "x.tar", Member: "/etc/passwd"}), errs.InvalidArgument},
		{"an absolute listing", frames(&peer.ListRequest{Bucket: "b", Options: peer.ListOptions{Prefix: "../"}}), errs.InvalidArgument},
		{"a PUT of a bad name", frames(&peer.PutRequest{Bucket: "b", Object: "a/./b"}), errs.InvalidArgument},
		{"a PUT without data", frames(&peer.PutRequest{Bucket: "b", Object: "cut"}), errs.Unavailable},
		{"a PUT of another message", frames(&peer.PutRequest{Bucket: "b", Object: "cut"}, &wire.Hello{Version: 1}), errs.Protocol},
		{"a batch of 4 billion", frames(batchOf(4_000_000_000, nil)), errs.TooManyEntries},
		{"a batch of one too many", frames(batchOf(batching.MaxEntries+1, nil)), errs.TooManyEntries},
		{"a batch of none", frames(batchOf(0, nil)), errs.TooManyEntries},
		{"a batch without its entries", frames(batchOf(5, nil)), errs.Protocol},
		{"a batch with empty entries", frames(batchOf(5, nil), fields{kind: wire.TEntries}), errs.Protocol},
		{"a batch with more than was said", frames(batchOf(1, nil), entriesOf(2, object("o"))), errs.Protocol},
		{"more entries in a frame than may be", frames(batchOf(2000, nil), entriesOf(513, object("o"))), errs.Protocol},
		{"a batch with a bad name", frames(batchOf(1, nil), entriesOf(1, object("a/../b"))), errs.InvalidArgument},
		{"a batch with a bad range", frames(batchOf(1, nil), entriesOf(1, func(e *wire.Encoder) { e.Str("objname", "o"); e.Int("start", 1<<62); e.Int("length", 1<<62) })), errs.InvalidArgument},
		{"a batch in no known format", frames(batchOf(1, func(e *wire.Encoder) { e.Str("output_format", "exe") }), entriesOf(1, object("o"))), errs.InvalidArgument},
		{"a batch with a bad id", frames(fields{wire.TBatch, func(e *wire.Encoder) { e.Str("id", "../x"); e.Uint("n", 1); e.Str("bucket", "b") }}, entriesOf(1, object("o"))), errs.InvalidArgument},
		{"a batch with a strange coloc", frames(batchOf(1, func(e *wire.Encoder) { e.Uint("coloc", 1<<63+7) }), entriesOf(1, object("o"))), errs.InvalidArgument},
		{"a batch without end", frames(batchOf(1, func(e *wire.Encoder) { e.Uint("timeout_ms", 1<<63) })), errs.Protocol},
		{"a batch of an object that isn't there", frames(batchOf(1, nil), entriesOf(1, object("none"))), errs.NotFound},
		{"a batch of a bucket that isn't there", frames(batchOf(1, nil), entriesOf(1, func(e *wire.Encoder) { e.Str("bucket", "nobucket"); e.Str("objname", "o") })), errs.BucketNotFound},
	} {
		end, err := h.call(x.request)
		if err != nil {
			t.Errorf("%s: no trailer: %v", x.name, err)
			h = greeted(t, c.Certs, peer.ClientName, addr)
			continue
		}
		fails(t, x.name, end.Err(), x.code)
	}
	healthy(t, c, "the hostile calls")
	if m := c.Nodes[0].Map(); len(m.Nodes) != 2 || m.Version > 1000 {
		t.Errorf("the map was changed: %+v", m)
	}
	if left, err := filepath.Glob(filepath.Join(c.Dir, "*", "@sheaf", "b", "%wk", "*")); err != nil || len(left) > 0 {
		t.Errorf("work files are left: %q %v", left, err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "b")
	c.Put(t, "b", "o", []byte("x"))
	addr := c.Endpoint()

	// Of the client's certificate TLS 1.3 tells only after the handshake.
	refused := func(what, certs, file string) {
		t.Helper()
		h, err := dialRaw(t, certs, file, addr)
		if err == nil {
			_, err = h.call(frames(&wire.Hello{Version: 1}))
		}
		var te *quic.TransportError
		var ae *quic.ApplicationError
		if crypto := errors.As(err, &te) && te.ErrorCode.IsCryptoError(); !crypto && !(errors.As(err, &ae) && ae.ErrorCode == 1) {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("no certificate", c.Certs, "")
	alien := testcluster.Certs(t)
	own, err := os.ReadFile(filepath.Join(c.Certs, peer.CACert))
	must(t, err)
	must(t, os.WriteFile(filepath.Join(alien, peer.CACert), own, 0o600)) // it trusts the cluster; the cluster doesn't trust it
	refused("another CA's certificate", alien, peer.ClientName)

	h, err := dialRaw(t, c.Certs, peer.ClientName, addr)
	must(t, err)
	_, err = h.call(frames(&peer.Ask{Kind: wire.TMapGet}))
	var ae *quic.ApplicationError
	if !errors.As(err, &ae) || !ae.Remote || ae.ErrorCode != 1 {
		t.Errorf("a call before Hello: %v", err)
	}

	// A reader reads, and changes nothing.
	p, _ := testcluster.Client(t, testcluster.Identity(t, c.Certs, "reader"), addr)
	if got, err := get(t, p, "b", "o", peer.GetOptions{}); err != nil || string(got) != "x" {
		t.Errorf("a reader's GET: %q %v", got, err)
	}
	_, err = p.Put(bounded(t), "b", "o", bytes.NewReader([]byte("y")), peer.PutOptions{Size: 1})
	fails(t, "a reader's PUT", err, errs.PermissionDenied, "reader", "writer")
	fails(t, "a reader's DELETE", p.Delete(bounded(t), "b", "o"), errs.PermissionDenied)
	fails(t, "a reader's bucket", p.CreateBucket(bounded(t), "c", peer.BucketProps{}), errs.PermissionDenied)
	fails(t, "a reader's end of a bucket", p.DestroyBucket(bounded(t), "b", true), errs.PermissionDenied)
	healthy(t, c, "the strangers")
}

// Streams that are given up, at any point, leave nothing behind.
func TestStreamsGivenUp(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 2, Adjust: func(_ int, o *server.Options) { o.DrainTimeout = time.Second }})
	c.Bucket(t, "b")
	for i := range 50 {
		c.Put(t, "b", fmt.Sprint("o", i), noise(uint64(i), 200_000))
	}
	healthy(t, c, "the start")
	addr := c.Endpoint()
	quiet := func(what string) {
		t.Helper()
		waitFor(t, "the calls to end after "+what, func() bool {
			return total(t, c, "sheaf_getbatch_inflight") == 0 && total(t, c, "sheaf_getbatch_sending") == 0
		})
		healthy(t, c, what)
	}
	baseline := runtime.NumGoroutine()

	h := greeted(t, c.Certs, peer.ClientName, addr)
	whole := frames(batchOf(50, nil), fields{wire.TEntries, func(e *wire.Encoder) {
		e.Maps("in", 50, func(i int) { e.Str("objname", fmt.Sprint("o", i)) })
	}})
	put := frames(&peer.PutRequest{Bucket: "b", Object: "half", Size: 1 << 20, Sized: true})
	// Half a request, then silence, then a reset, wherever it was cut.
	var silent []*quic.Stream
	for _, request := range [][]byte{whole, put, frames(&wire.Hello{Version: 1}), frames(&peer.ObjectRequest{Kind: wire.TGet, Bucket: "b", Object: "o1"})} {
		for cut := 1; cut < len(request); cut += 1 + len(request)/40 {
			s := h.open()
			_, err := s.Write(request[:cut])
			must(t, err)
			silent = append(silent, s)
		}
	}
	healthy(t, c, "silence")
	for _, s := range silent {
		s.CancelWrite(1)
		s.CancelRead(1)
	}
	quiet("half requests")

	// A batch whose answer nobody reads, then one that is given up after its beginning.
	for k := range 20 {
		s := h.open()
		_, err := s.Write(whole)
		must(t, err)
		_ = s.Close()
		if k%2 == 1 {
			_, err = io.ReadFull(s, make([]byte, 1000*k))
			must(t, err)
		}
		s.CancelRead(1)
	}
	quiet("batches given up")

	// Many at once: as many as may be open, then again and again.
	for range 1000 {
		s := h.open()
		s.CancelWrite(1)
		s.CancelRead(1)
	}
	for range 1000 {
		s := h.open()
		_, err := s.Write(whole[:len(whole)/2])
		must(t, err)
		s.CancelWrite(1)
		s.CancelRead(1)
	}
	quiet("2000 streams")
	_ = h.conn.CloseWithError(0, "")

	// A connection that is given up with all that is under way on it.
	h = greeted(t, c.Certs, peer.ClientName, addr)
	for i := range 200 {
		s := h.open()
		_, err := s.Write(whole[:len(whole)-i%2])
		must(t, err)
	}
	_ = h.conn.CloseWithError(7, "gone")
	quiet("a connection given up")
	// As many open as may be, each with half a length: others don't notice.
	h = greeted(t, c.Certs, peer.ClientName, addr)
	for range 2000 {
		s, err := h.conn.OpenStream()
		if err != nil {
			var limit *quic.StreamLimitReachedError
			if !errors.As(err, &limit) {
				t.Error(err)
			}
			break
		}
		_, err = s.Write([]byte{0, 0})
		must(t, err)
	}
	healthy(t, c, "as many open streams as may be")
	_ = h.conn.CloseWithError(0, "")
	waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= baseline+10 })
}
