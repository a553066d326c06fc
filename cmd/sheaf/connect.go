package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// connectTimeout is how long a command looks for the cluster. Data takes as long as it takes.
const connectTimeout = 10 * time.Second

// clientFlags are understood by sheaf itself and by every client command.
func clientFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "endpoint", Usage: "`HOST:PORT` of a node, or several with commas between", EnvVars: []string{"SHEAF_ENDPOINT"}},
		certsFlag(),
	}
}

func certsFlag() cli.Flag {
	return &cli.StringFlag{Name: "certs", Usage: "`DIR` of the certificates (default $SHEAF_HOME/certs)", EnvVars: []string{"SHEAF_CERTS"}}
}

// withClient adds the client flags to a command's own.
func withClient(own ...cli.Flag) []cli.Flag { return append(own, clientFlags()...) }

// clientOptions say which cluster a command speaks to, and as whom.
type clientOptions struct {
	Endpoint string // "" for the one in home
	Certs    string // "" for the ones in home
	Logger   *slog.Logger
}

func clientOptionsOf(c *cli.Context) clientOptions {
	return clientOptions{Endpoint: c.String("endpoint"), Certs: c.String("certs")}
}

// resolve fills in the defaults.
func (o clientOptions) resolve() (clientOptions, error) {
	var err error
	if o.Certs, err = inHome(o.Certs, "certs"); err != nil {
		return o, err
	}
	if o.Endpoint == "" {
		if o.Endpoint, err = readEndpoint(); err != nil {
			return o, err
		}
	}
	for _, a := range o.seeds() {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			return o, errs.New(errs.InvalidArgument, "", fmt.Sprintf("endpoint %q: want host:port", a))
		}
	}
	return o, nil
}

func (o clientOptions) seeds() []string { return strings.Split(o.Endpoint, ",") }

// cluster is a connection to a cluster.
type cluster struct {
	*peer.Client
	endpoint string // as it was found
}

// connect finds the cluster. Close must follow.
func connect(ctx context.Context, o clientOptions) (*cluster, error) {
	o, err := o.resolve()
	if err != nil {
		return nil, err
	}
	id, err := peer.LoadIdentity(o.Certs, peer.ClientName)
	if err != nil {
		return nil, err
	}
	ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id, Logger: o.Logger})
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := peer.NewClient(limited, ep, o.seeds()...)
	if err != nil {
		_ = ep.Close()
		return nil, explain(ctx, err, o)
	}
	return &cluster{Client: c, endpoint: o.Endpoint}, nil
}

// explain says in the user's words why a cluster can't be used.
func explain(ctx context.Context, err error, o clientOptions) error {
	if ctx.Err() != nil {
		return err
	}
	switch errs.CodeOf(err) {
	case errs.Unavailable, errs.Timeout:
		return errs.New(errs.Unavailable, "", fmt.Sprintf("no cluster answers at %s: %s", o.Endpoint, rootCause(err)))
	case errs.PermissionDenied:
		return errs.New(errs.PermissionDenied, "", fmt.Sprintf("the cluster at %s and the certificate in %s don't accept each other: %s", o.Endpoint, o.Certs, rootCause(err)))
	}
	return err
}

// Close ends the connection.
func (c *cluster) Close() { _ = c.Endpoint().Close() }

// withCluster runs fn with a connection.
func withCluster(ctx context.Context, o clientOptions, fn func(*cluster) error) error {
	c, err := connect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close()
	return fn(c)
}
