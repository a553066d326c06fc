// Package testcluster runs a real cluster inside a test.
//
//	test ──▶ Cluster{Nodes, Peer, Batch} ──▶ server.StartLocal ──▶ n nodes on loopback, data in t.TempDir
//
// Everything is as in production: QUIC, mutual TLS, files. Invariant: when the test
// ends, also by failing, all of it is closed.
package testcluster

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/server"
)

// Cluster is a running cluster with a client that may do all that a client can.
type Cluster struct {
	*server.Local
	Dir    string // data folders n1, n2, …
	Certs  string // certificate folder with ca, node, client (admin), writer and reader
	Peer   *peer.Client
	Batch  *batching.Client
	Caller *peer.Endpoint
}

// Options adjust a cluster.
type Options struct {
	Nodes  int // default 3
	Adjust func(i int, o *server.Options)
}

// patience is how long nodes of a test wait for a silent one before they take it for
// down: a test that is not about that sees none go down, however busy the machine is.
const patience = 10 * time.Minute

// Start runs a cluster until the test ends.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	c := &Cluster{Dir: t.TempDir(), Certs: Certs(t)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := server.StartLocal(ctx, server.LocalOptions{Nodes: o.Nodes, Dir: c.Dir, Listen: "127.0.0.1:0",
		Identity: Identity(t, c.Certs, peer.NodeName), Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})), Adjust: func(i int, no *server.Options) {
			no.SuspectAfter = patience
			if o.Adjust != nil {
				o.Adjust(i, no)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	c.Local = l
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the cluster: %v", err)
		}
	})
	c.Peer, c.Caller = Client(t, Identity(t, c.Certs, peer.ClientName), l.Endpoint())
	c.Batch = batching.NewClient(c.Peer)
	return c
}

// Leftovers are the goroutines that may be there for a moment when a cluster has been
// closed: memberlist doesn't wait for a probe that is under way.
func Leftovers() []goleak.Option {
	return []goleak.Option{goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode")}
}

// Certs makes a CA with a certificate for each role: node, client (admin), writer, reader.
func Certs(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "certs")
	if err := peer.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	for file, role := range map[string]peer.Role{peer.NodeName: peer.NodeRole, peer.ClientName: peer.Admin, "writer": peer.Writer, "reader": peer.Reader} {
		if err := peer.Issue(dir, dir, file, file, role); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Identity loads a certificate.
func Identity(t testing.TB, dir, file string) *peer.Identity {
	t.Helper()
	id, err := peer.LoadIdentity(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// Client connects to a cluster until the test ends.
func Client(t testing.TB, id *peer.Identity, endpoint string) (*peer.Client, *peer.Endpoint) {
	t.Helper()
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ep.Close() })
	p, err := peer.NewClient(t.Context(), ep, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	return p, ep
}

// Bucket makes buckets.
func (c *Cluster) Bucket(t testing.TB, names ...string) {
	t.Helper()
	for _, b := range names {
		if err := c.Peer.CreateBucket(t.Context(), b, peer.BucketProps{}); err != nil && !errs.IsCode(err, errs.AlreadyExists) {
			t.Fatal(err)
		}
	}
}

// Put stores an object.
func (c *Cluster) Put(t testing.TB, bucket, object string, data []byte) {
	t.Helper()
	if _, err := c.Peer.Put(t.Context(), bucket, object, bytes.NewReader(data), peer.PutOptions{Size: int64(len(data))}); err != nil {
		t.Fatal(err)
	}
}

// Restart starts node i, which was closed, on its data folder and at addr.
func Restart(t testing.TB, c *Cluster, i int, addr string) *server.Node {
	t.Helper()
	n, err := server.Start(t.Context(), server.Options{Name: c.Nodes[i].Name(), Dirs: []string{filepath.Join(c.Dir, c.Nodes[i].Name())},
		Listen: addr, Identity: Identity(t, c.Certs, peer.NodeName), SuspectAfter: patience})
	if err != nil {
		t.Fatal(err)
	}
	c.Nodes[i] = n
	return n
}
