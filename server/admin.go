package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sheaf/internal/errs"
)

// admin is the HTTP port for operators: metrics, health and profiles. It has no
// authentication, so it listens on loopback unless told otherwise.
type admin struct {
	addr string
	srv  *http.Server
	done chan struct{}
}

// startAdmin listens on addr. ready tells whether the node does its work, and with
// settled whether all objects are where they belong too: /readyz, /readyz?settled.
func startAdmin(addr string, reg *prometheus.Registry, ready func(settled bool) error, log *slog.Logger) (*admin, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "listen for admin HTTP on "+addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := ready(r.URL.Query().Has("settled")); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	a := &admin{addr: ln.Addr().String(), done: make(chan struct{}),
		srv: &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}}
	go func() { // ends with close
		defer close(a.done)
		if err := a.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin HTTP stopped", "err", err)
		}
	}()
	return a, nil
}

func (a *admin) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := a.srv.Shutdown(ctx)
	if err != nil {
		err = a.srv.Close() // somebody is still reading a profile
	}
	<-a.done
	return err
}

// readiness is what /readyz answers: nil when this node does its work.
func (n *Node) readiness(settled bool) error {
	switch serving(n.phase.Load()) {
	case starting:
		return errors.New("starting: not yet in the cluster")
	case stopping:
		return errors.New("stopping")
	}
	if settled && !n.settled() {
		return errors.New("not settled: objects are on their way to where they belong")
	}
	return nil
}

// serving is how far a node's life has come.
type serving int32

const (
	starting serving = iota // until it has joined
	running
	stopping
)
