package gossip

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// Options are what a node gossips with.
type Options struct {
	Name     string
	Endpoint *peer.Endpoint
	// Addr gives the address of a node of the cluster map that may be alive; it must not block.
	Addr func(node string) (addr string, ok bool)
	// Changed is told that a node came, went, or announced something new; it must not block.
	Changed func(node string)
	// SuspectAfter is how long a node that doesn't answer is suspected before it counts as
	// dead. It is asked three times in it or more, by several nodes. Default 3 s.
	SuspectAfter time.Duration
	Registerer   prometheus.Registerer // nil: none
	Logger       *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.SuspectAfter == 0 {
		o.SuspectAfter = 3 * time.Second
	}
	if o.Changed == nil {
		o.Changed = func(string) {}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
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
	if o.Name == "" || len(o.Name) > peer.MaxNodeName {
		bad("name %q: want 1 to %d bytes", o.Name, peer.MaxNodeName)
	}
	if o.Endpoint == nil {
		bad("no endpoint")
	}
	if o.Addr == nil {
		bad("no way to look addresses up")
	}
	if o.SuspectAfter < 0 {
		bad("suspect after is negative")
	}
	if msg == "" {
		return nil
	}
	return errs.New(errs.InvalidArgument, "gossip options", msg)
}
