package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// LocalOptions are what a whole cluster in one process is started with.
type LocalOptions struct {
	Nodes    int
	Dir      string // node i keeps its data in Dir/n<i>
	Listen   string // of the first node; the others take the ports after it, or any when it is 0
	Identity *peer.Identity
	Logger   *slog.Logger
	// Adjust may change a node's options before it starts.
	Adjust func(i int, o *Options)
}

// Local is a cluster in one process, for one machine and for tests.
type Local struct{ Nodes []*Node }

// StartLocal starts n nodes that know each other.
func StartLocal(ctx context.Context, o LocalOptions) (_ *Local, err error) {
	host, port, err := net.SplitHostPort(o.Listen)
	if err != nil {
		return nil, errs.New(errs.InvalidArgument, "start cluster", fmt.Sprintf("listen %q: want host:port", o.Listen))
	}
	first, err := strconv.Atoi(port)
	if err != nil || first < 0 || first+o.Nodes > 65536 {
		return nil, errs.New(errs.InvalidArgument, "start cluster", fmt.Sprintf("listen %q: want a port from 0 to %d", o.Listen, 65536-o.Nodes))
	}
	if o.Nodes < 1 {
		return nil, errs.New(errs.InvalidArgument, "start cluster", fmt.Sprintf("%d nodes", o.Nodes))
	}
	l := &Local{}
	defer func() {
		if err != nil {
			_ = l.Close()
		}
	}()
	for i := range o.Nodes {
		no := Options{Name: fmt.Sprintf("n%d", i+1), Dirs: []string{filepath.Join(o.Dir, fmt.Sprintf("n%d", i+1))},
			Admin: net.JoinHostPort("127.0.0.1", "0"), Identity: o.Identity, Logger: o.Logger}
		p := 0
		if first > 0 {
			p = first + i
		}
		no.Listen = net.JoinHostPort(host, strconv.Itoa(p))
		if i > 0 {
			no.Join = []string{l.Nodes[0].Addr()}
		}
		if o.Adjust != nil {
			o.Adjust(i, &no)
		}
		n, err := Start(ctx, no)
		if err != nil {
			return nil, err
		}
		l.Nodes = append(l.Nodes, n)
	}
	// The last one knows where all are now; after this all do.
	l.Nodes[len(l.Nodes)-1].push(ctx)
	return l, nil
}

// Endpoint is the address of the first node.
func (l *Local) Endpoint() string { return l.Nodes[0].Addr() }

// Close stops all nodes, the last one first.
func (l *Local) Close() error {
	var all []error
	for i := len(l.Nodes) - 1; i >= 0; i-- {
		all = append(all, l.Nodes[i].Close())
	}
	return errors.Join(all...)
}
