package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/server"
)

func (p *program) upCommand() *cli.Command {
	return &cli.Command{
		Name: "up", Usage: "run a cluster in this process, and a mount of it",
		Description: `Starts nodes n1, n2, … on this machine, with certificates made where they are
missing, and writes the endpoint to $SHEAF_HOME/endpoint, where the other commands
look for it. When all is there, stdout has a line for each node, one for the mount,
and last "ready HOST:PORT". Ctrl-C or SIGTERM stops everything; a second one ends the
process at once.

--listen is the first node's address; the others take the ports after it, or any
free ones when it is 0.`,
		Flags: append([]cli.Flag{
			&cli.IntFlag{Name: "nodes", Usage: "`N` nodes (default 1, or as many as DIR holds)"},
			&cli.StringFlag{Name: "dir", Usage: "`DIR` of the data (default $SHEAF_HOME/data)"},
			&cli.StringFlag{Name: "mount", Usage: "mount the cluster at `MNT`, an existing folder"},
			&cli.StringFlag{Name: "listen", Usage: "`HOST:PORT` of the first node", Value: "127.0.0.1:7070"},
			certsFlag(),
		}, logFlags("warn")...),
		Action: func(c *cli.Context) error {
			if _, err := positional(c, 0, 0, "no arguments"); err != nil {
				return err
			}
			o := upOptions{Nodes: c.Int("nodes"), Mount: c.String("mount"), Listen: c.String("listen"), Log: logOptionsOf(c)}
			if c.IsSet("nodes") && o.Nodes < 1 {
				return usagef(c, "%d nodes: want 1 or more", o.Nodes)
			}
			var err error
			if o.Dir, err = inHome(c.String("dir"), "data"); err != nil {
				return err
			}
			if o.Certs, err = inHome(c.String("certs"), "certs"); err != nil {
				return err
			}
			if o.Mount != "" {
				if o.Mount, err = filepath.Abs(o.Mount); err != nil {
					return err
				}
			}
			return p.up(c.Context, o)
		},
	}
}

// upOptions are what a cluster in one process is started with.
type upOptions struct {
	Nodes  int // 0: as many as Dir holds, 1 in an empty one
	Dir    string
	Certs  string
	Mount  string // "" for none
	Listen string
	Log    logOptions
}

func (p *program) up(ctx context.Context, o upOptions) (err error) {
	log, err := o.Log.logger(p.stderr)
	if err != nil {
		return err
	}
	if o.Nodes, err = nodesFor(o.Dir, o.Nodes); err != nil {
		return err
	}
	if err := ensureCerts(o.Certs); err != nil {
		return err
	}
	id, err := peer.LoadIdentity(o.Certs, peer.NodeName)
	if err != nil {
		return err
	}
	local, err := server.StartLocal(ctx, server.LocalOptions{Nodes: o.Nodes, Dir: o.Dir, Listen: o.Listen, Identity: id, Logger: log,
		Adjust: func(_ int, no *server.Options) { no.Backend.AnyFolder = true }}) // all is the user's own here
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, local.Close()) }()

	var gone <-chan struct{}
	if o.Mount != "" {
		m, err := startMount(ctx, mountOptions{
			Client: clientOptions{Endpoint: local.Endpoint(), Certs: o.Certs}, Mountpoint: o.Mount, Logger: log,
		})
		if err != nil {
			return err
		}
		defer m.stop()
		gone = m.fs.Done()
	}
	remove, err := writeEndpoint(local.Endpoint())
	if err != nil {
		return err
	}
	defer remove()
	p.printUp(local, o)

	select {
	case <-ctx.Done():
	case <-gone:
		log.Warn("unmounted from outside; the nodes go on", "mountpoint", o.Mount)
		<-ctx.Done()
	}
	log.Info("stopping", slog.Int("nodes", len(local.Nodes)))
	return nil
}

func (p *program) printUp(l *server.Local, o upOptions) {
	for _, n := range l.Nodes {
		fmt.Fprintf(p.stdout, "node %s %s admin http://%s\n", n.Name(), n.Addr(), n.AdminAddr())
	}
	if o.Mount != "" {
		fmt.Fprintf(p.stdout, "mount %s\n", o.Mount)
	}
	fmt.Fprintf(p.stdout, "ready %s\n", l.Endpoint())
}

// nodesFor settles how many nodes run on the data in dir. Fewer than it has would
// leave objects out of reach.
func nodesFor(dir string, want int) (int, error) {
	have := 0
	for {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("n%d", have+1))); err != nil {
			break
		}
		have++
	}
	switch {
	case want == 0:
		return max(have, 1), nil
	case want < have:
		return 0, errs.New(errs.InvalidArgument, "", fmt.Sprintf("%s holds the data of %s, and %d would run: use --nodes %d or another --dir", dir, plural(have, "node", "nodes"), want, have))
	}
	return want, nil
}
