package server

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/semaphore"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// Node is a running storage node.
type Node struct {
	// dependencies and constants
	o        Options
	log      *slog.Logger
	store    *store.Store
	ep       *peer.Endpoint
	calls    *peer.Client // for calls to other nodes
	batches  *batching.Node
	shards   *shards
	metrics  *metrics
	registry *prometheus.Registry
	admin    *admin
	progress *progress

	reconciler *reconciler
	board      *board
	scrubber   *scrubber
	resilverer *resilverer
	replicas   *semaphore.Weighted // bytes of small objects being received
	started    time.Time

	remotes *remotes

	phase    atomic.Int32 // serving
	writes   nameLocks    // held while a write of a name is decided
	removals nameLocks    // of names whose object is being deleted or renamed; taken before writes
	appends  nameLocks    // of names that are being appended to; taken before writes
	faults   faults

	state  atomic.Pointer[state]
	saving sync.Mutex // held while the state is changed and saved

	me   atomic.Pointer[peer.Node] // name and addresses of this node as they are; nil before enterMap
	live *liveness

	catchup     *catchup
	catchUpOnce sync.Once
	current     chan struct{} // closed when state was exchanged with all nodes that can be reached

	leaving sync.Once
	gone    chan struct{} // closed when this node isn't in the cluster any more

	ctx    context.Context // ends with Close; for background work
	cancel context.CancelFunc
	wg     sync.WaitGroup // background work

	closing  sync.Once
	closeErr error
}

// Start opens the data folders, binds the ports, joins the cluster and serves. When
// it returns, the node answers.
func Start(ctx context.Context, o Options) (_ *Node, err error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := &Node{o: o, log: o.Logger, started: time.Now(), registry: prometheus.NewRegistry(), current: make(chan struct{}), gone: make(chan struct{}), catchup: newCatchup()}
	n.resilverer = newResilverer(n)
	n.ctx, n.cancel = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			n.release()
		}
	}()
	if n.store, err = store.Open(store.Options{Dirs: o.Dirs, Logger: o.Logger, OnMountpathFault: n.diskFault}); err != nil {
		return nil, err
	}
	st, err := loadState(o.Dirs)
	if err != nil {
		return nil, err
	}
	known := st.Name != "" // this folder was a node before
	if err := n.mayReturn(st); err != nil {
		return nil, err
	}
	if err := n.takeName(st); err != nil {
		return nil, err
	}
	n.log = n.log.With("node", st.Name)
	n.o.Logger = n.log
	n.state.Store(st)
	n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.metrics = newMetrics(n.registry, n.store)
	n.remotes = newRemotes(n, o.Backend)
	n.metrics.remoteMetrics.watch(n.registry, n)
	n.shards = newShards(n.ctx, n.store, o.IndexCache, n.metrics, n.log)

	n.ep, err = peer.NewEndpoint(peer.EndpointOptions{Identity: o.Identity, Listen: o.Listen, Hello: n.hello, Logger: n.log})
	if err != nil {
		return nil, err
	}
	if o.Admin != "" {
		if n.admin, err = startAdmin(o.Admin, n.registry, n.readiness, n.log); err != nil {
			return nil, err
		}
	}
	n.background()
	n.handle()
	n.batches = batching.NewNode(batching.NodeOptions{Name: st.Name, Endpoint: n.ep, Source: &source{n}, Map: n.Map,
		MaxBatches: o.MaxBatches, SenderTimeout: o.SenderTimeout, Registerer: n.registry, Logger: n.log})
	if err := n.enterMap(st.Want == peer.Left); err != nil {
		return nil, err
	}
	if err := n.applyBuckets(st.sortedBuckets(true)); err != nil {
		return nil, err
	}
	n.calls = peer.NewNodeClient(n.ep, n.Map)
	if n.live, err = startLiveness(n); err != nil {
		return nil, err
	}
	n.metrics.cluster(n.registry, n.Map)
	if err := n.ep.Serve(); err != nil {
		return nil, err
	}
	if err := n.join(ctx, known); err != nil {
		return nil, err
	}
	n.live.announce(n.state.Load())
	n.wg.Go(n.live.run) // ends with n.ctx
	n.wg.Go(n.gossip)   // ends with n.ctx
	n.startBackground()
	n.phase.Store(int32(running))
	n.log.Info("serving", "addr", n.Addr(), "admin", n.AdminAddr(), "dirs", o.Dirs, "nodes", len(n.Map().Nodes))
	return n, nil
}

func (n *Node) handle() {
	h := n.ep.Handle
	h(wire.TMapGet, peer.Reader, n.serveMap)
	h(wire.TMapPush, peer.NodeRole, n.servePush)
	h(wire.TJoin, peer.NodeRole, n.serveJoin)
	h(wire.TBucketCreate, peer.Writer, n.serveBucketCreate)
	h(wire.TBucketDestroy, peer.Writer, n.serveBucketDestroy)
	h(wire.TBucketList, peer.Reader, n.serveBucketList)
	h(wire.TBucketSet, peer.Writer, n.serveBucketSet)
	h(wire.TBucketShow, peer.Reader, n.serveBucketShow)
	h(wire.TPut, peer.Writer, n.measured("put", n.servePut))
	h(wire.TAppend, peer.Writer, n.measured("append", n.serveAppend))
	h(wire.TCopy, peer.Writer, n.measured("copy", n.serveCopy))
	h(wire.TRename, peer.Writer, n.measured("rename", n.serveRename))
	h(wire.TStage, peer.NodeRole, n.measured("stage", n.serveStage))
	h(wire.TEvict, peer.Writer, n.measured("evict", n.serveEvict))
	h(wire.TPrefetch, peer.Reader, n.measured("prefetch", n.servePrefetch))
	h(wire.TGet, peer.Reader, n.measured("get", n.serveGet))
	h(wire.THead, peer.Reader, n.measured("head", n.serveHead))
	h(wire.TDelete, peer.Writer, n.measured("delete", n.serveDelete))
	h(wire.TMembers, peer.Reader, n.measured("members", n.serveMembers))
	h(wire.TList, peer.Reader, n.measured("list", n.serveList))
	h(wire.TStatus, peer.Reader, n.serveStatus)
	h(wire.TVersions, peer.NodeRole, n.serveVersions)
	h(wire.TTombstone, peer.NodeRole, n.serveTombstone)
	h(wire.TReplicate, peer.NodeRole, n.serveReplicate)
	h(wire.TSettled, peer.NodeRole, n.serveSettled)
	h(wire.TRebalance, peer.Admin, n.serveRebalance)
	h(wire.TMountpathList, peer.Admin, n.serveMountpaths)
	h(wire.TMountpathSet, peer.Admin, n.serveSetMountpath)
	h(wire.TLeave, peer.Admin, n.serveLeave)
}

// mayReturn refuses a node that has left and wasn't told to join, or was taken out of the
// cluster and still has objects, which may be long deleted.
func (n *Node) mayReturn(st *state) error {
	i := st.Map.Find(st.Name)
	if i < 0 || st.Map.Nodes[i].State != peer.Left {
		return nil
	}
	if len(n.o.Join) == 0 {
		return errs.New(errs.InvalidArgument, "start node", "node "+st.Name+" has left the cluster: to be taken in again it must join")
	}
	has, err := n.store.HasObjects()
	if err == nil && has {
		err = errs.New(errs.InvalidArgument, "start node", "node "+st.Name+" has left the cluster, and its data folders hold objects that may be out of date: it can join again with empty ones")
	}
	st.Want = peer.Left // also when the others took it out
	return err
}

// takeName settles what this node is called.
func (n *Node) takeName(st *state) error {
	switch {
	case st.Name == "" && n.o.Name == "":
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		st.Name = "n-" + hex.EncodeToString(b[:])
	case st.Name == "":
		st.Name = n.o.Name
	case n.o.Name != "" && n.o.Name != st.Name:
		return errs.New(errs.InvalidArgument, "start node", "the data folder belongs to node "+st.Name+", not "+n.o.Name)
	}
	return nil
}

// enterMap puts this node's own record into its map, newer than any before when the
// address has changed. One that had left is a new node when it joins again.
func (n *Node) enterMap(hadLeft bool) error {
	me := peer.Node{Name: n.Name(), Addr: n.o.Advertise, Epoch: nextEpoch(0)}
	if me.Addr == "" {
		me.Addr = n.ep.Addr().String()
		if host, _, err := net.SplitHostPort(n.o.Listen); err == nil && net.ParseIP(host) == nil {
			// A name stays a name: in Kubernetes addresses change and names don't.
			_, port, _ := net.SplitHostPort(me.Addr)
			me.Addr = net.JoinHostPort(host, port)
		}
	}
	if n.admin != nil {
		me.Admin = n.AdminAddr()
	}
	_, err := n.change(func(st *state) (*state, bool) {
		out, _ := st.merge(peer.NewMap(n.o.Identity.Cluster, st.Map.Version, nil), nil)
		i := out.Map.Find(me.Name)
		if i < 0 {
			return out.with(me), true
		}
		if hadLeft {
			back := me
			back.Epoch = nextEpoch(out.Map.Nodes[i].Epoch)
			out = out.with(back)
			out.Want = peer.Up
		}
		return out.asserted(me), true
	})
	n.me.Store(&me)
	return err
}

func (n *Node) hello() wire.Hello {
	m := n.Map()
	return wire.Hello{Node: n.Name(), Cluster: m.Cluster, MapVersion: m.Version}
}

// Name is this node's name in the cluster map.
func (n *Node) Name() string { return n.state.Load().Name }

// Map is the cluster map as this node has it.
func (n *Node) Map() *peer.Map { return n.state.Load().Map }

// Addr is the address that clients and other nodes reach this node at.
func (n *Node) Addr() string {
	m := n.Map()
	if i := m.Find(n.Name()); i >= 0 {
		return m.Nodes[i].Addr
	}
	return n.ep.Addr().String()
}

// AdminAddr is the bound address of the admin HTTP, "" without one.
func (n *Node) AdminAddr() string {
	if n.admin == nil {
		return ""
	}
	return n.admin.addr
}

// Registry holds this node's metrics.
func (n *Node) Registry() *prometheus.Registry { return n.registry }

// Close lets calls under way finish, up to the drain timeout, then stops everything.
// Further calls wait for the first and return the same.
func (n *Node) Close() error {
	n.closing.Do(func() {
		n.phase.Store(int32(stopping))
		ctx, cancel := context.WithTimeout(context.Background(), n.o.DrainTimeout)
		defer cancel()
		if err := n.ep.Drain(ctx); err != nil {
			n.log.Warn("calls were still under way at the end of the drain timeout")
		}
		n.closeErr = n.release()
		n.log.Info("stopped")
	})
	return n.closeErr
}

// release closes what was opened, in the opposite order.
func (n *Node) release() error {
	n.cancel()
	var all []error
	if n.live != nil {
		all = append(all, n.live.gossip.Close())
	}
	if n.ep != nil {
		all = append(all, n.ep.Close())
	}
	n.wg.Wait()
	if n.remotes != nil {
		n.remotes.close()
	}
	if n.admin != nil {
		all = append(all, n.admin.close())
	}
	if n.store != nil {
		n.noteEnd()
		all = append(all, n.store.Close())
	}
	return errors.Join(all...)
}
