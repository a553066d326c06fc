package server

import (
	"fmt"
	"log/slog"
	"net"
	"time"

	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer"
)

// Options are what a node is started with.
type Options struct {
	Name      string   // unique in the cluster; "" takes the one kept in Dirs, or makes one
	Dirs      []string // mountpaths
	Listen    string   // UDP host:port of the QUIC endpoint
	Advertise string   // host:port that others reach it at; "" for the bound address
	Admin     string   // TCP host:port of the admin HTTP; "" for none
	Join      []string // host:port of nodes of the cluster; empty for a first node
	Identity  *peer.Identity
	Logger    *slog.Logger

	JoinTimeout      time.Duration // how long to look for a node to join, default 30 s
	MaxBatches       int           // batches assembled at a time, default 256
	SenderTimeout    time.Duration // a DT's wait for a sender, default 10 s
	GossipEvery      time.Duration // exchange of state with a random node, default 5 s
	SuspectAfter     time.Duration // a node that is silent for it is asked twice more and then counts as down, default 3 s
	DrainTimeout     time.Duration // wait for calls under way at shutdown, default 10 s
	RebalanceBytes   int64         // bytes a second that a node sends to where objects belong, default 256 MiB; −1: no limit
	RebalanceObjects int64         // objects a second, likewise, default 50 000; −1: no limit
	ScrubBytes       int64         // bytes a second that the scrub reads, default 32 MiB; −1: no limit
	ScrubEvery       time.Duration // from the start of one scrub of all objects to that of the next, default 7 days; −1: no scrub
	Backend          backend.Options
	FetchAtOnce      int   // objects of remote buckets that are fetched ahead at a time, per batch and for all prefetches, default 16
	IndexCache       int64 // bytes of shard indexes kept in memory, default 256 MiB
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&o.JoinTimeout, 30*time.Second)
	def(&o.SenderTimeout, 10*time.Second)
	def(&o.GossipEvery, 5*time.Second)
	def(&o.SuspectAfter, 3*time.Second)
	def(&o.DrainTimeout, 10*time.Second)
	if o.MaxBatches == 0 {
		o.MaxBatches = 256
	}
	def(&o.ScrubEvery, 7*24*time.Hour)
	for rate, v := range map[*int64]int64{&o.RebalanceBytes: 256 << 20, &o.RebalanceObjects: 50_000, &o.ScrubBytes: 32 << 20} {
		if *rate == 0 {
			*rate = v
		}
	}
	if o.FetchAtOnce == 0 {
		o.FetchAtOnce = 16
	}
	if o.IndexCache == 0 {
		o.IndexCache = 256 << 20
	}
	return o
}

// Validate lists every fault at once.
func (o Options) Validate() error {
	var msg string
	bad := func(format string, a ...any) {
		if msg != "" {
			msg += "; "
		}
		msg += fmt.Sprintf(format, a...)
	}
	if o.Name != "" {
		if err := names.CheckBucket(o.Name); err != nil {
			bad("name %q: want letters, digits, '.', '_' and '-'", o.Name)
		}
	}
	if len(o.Dirs) == 0 {
		bad("no data folder")
	}
	if o.Identity == nil {
		bad("no certificate")
	}
	hostPort := func(what, s string, need bool) {
		if s == "" && !need {
			return
		}
		if _, _, err := net.SplitHostPort(s); err != nil {
			bad("%s %q: want host:port", what, s)
		}
	}
	hostPort("listen", o.Listen, true)
	hostPort("advertise", o.Advertise, false)
	hostPort("admin", o.Admin, false)
	for _, j := range o.Join {
		hostPort("join", j, true)
	}
	if o.Advertise == "" {
		if host, _, err := net.SplitHostPort(o.Listen); err == nil {
			if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
				bad("listen %q takes any address: name the one that others reach with advertise", o.Listen)
			}
		}
	}
	for what, n := range map[string]int64{"max batches": int64(o.MaxBatches), "index cache": o.IndexCache, "objects fetched at once": int64(o.FetchAtOnce), "sender timeout": int64(o.SenderTimeout),
		"join timeout": int64(o.JoinTimeout), "gossip interval": int64(o.GossipEvery), "suspect after": int64(o.SuspectAfter), "drain timeout": int64(o.DrainTimeout)} {
		if n < 0 {
			bad("%s is negative", what)
		}
	}
	for what, n := range map[string]int64{"rebalance bytes": o.RebalanceBytes, "rebalance objects": o.RebalanceObjects, "scrub bytes": o.ScrubBytes, "scrub interval": int64(o.ScrubEvery)} {
		if n < -1 {
			bad("%s is negative; −1 stands for none", what)
		}
	}
	if err := o.Backend.Validate(); err != nil {
		bad("%v", err)
	}
	if msg == "" {
		return nil
	}
	return errs.New(errs.InvalidArgument, "node options", msg)
}
