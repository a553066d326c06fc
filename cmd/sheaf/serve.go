package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/backend"
	"sheaf/peer"
	"sheaf/server"
)

func (p *program) serveCommand() *cli.Command {
	return &cli.Command{
		Name: "serve", Usage: "run one storage node",
		Description: `Needs a node's certificate (node.crt, node.key, ca.crt) in --certs. Prints
"ready HOST:PORT" on stdout when it answers, and tells systemd; logs to stderr. SIGTERM
or SIGINT lets the calls under way finish and stops the node.

--config names a file of these flags, one "flag = value" a line, "#" before comments. The
command line wins over the environment, and that over the file.`,
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "dir", Usage: "keep objects in `DIR`; may be given several times, one for each disk"},
			&cli.StringFlag{Name: "listen", Usage: "`HOST:PORT` to answer at (UDP)"},
			&cli.StringFlag{Name: "advertise", Usage: "`HOST:PORT` that others reach this node at, when it isn't --listen"},
			&cli.StringFlag{Name: "admin", Usage: "`HOST:PORT` of metrics, health and profiles (HTTP, without authentication); \"\" for none", Value: "127.0.0.1:0"},
			&cli.StringSliceFlag{Name: "join", Usage: "`HOST:PORT` of a node of the cluster; may be given several times"},
			&cli.StringFlag{Name: "name", Usage: "the node's `NAME` in the cluster; kept in DIR"},
			&cli.StringFlag{Name: "rebalance-rate", Usage: "bytes a second, `SIZE`, that the node sends to bring objects to where they belong; none for no limit",
				Value: "256MiB", EnvVars: []string{"SHEAF_REBALANCE_RATE"}},
			&cli.StringFlag{Name: "scrub-rate", Usage: "bytes a second, `SIZE`, that the node reads to compare what is on its disks with its checksums; none for no limit",
				Value: "32MiB", EnvVars: []string{"SHEAF_SCRUB_RATE"}},
			&cli.StringFlag{Name: "scrub-every", Usage: "`D` from one start of that to the next, as in 168h; none for never", Value: "168h", EnvVars: []string{"SHEAF_SCRUB_EVERY"}},
			&cli.StringSliceFlag{Name: "backend-root", Usage: "let file:// backends of buckets lie in `DIR`; may be given several times, without it there are none"},
			&cli.StringFlag{Name: configFlag, Usage: "read flags from `FILE`", EnvVars: []string{"SHEAF_CONFIG"}},
			certsFlag(),
		}, logFlags("info")...),
		Action: func(c *cli.Context) error {
			if _, err := positional(c, 0, 0, "no arguments"); err != nil {
				return err
			}
			if path := c.String(configFlag); path != "" {
				if err := readConfig(c, path); err != nil {
					return err
				}
			}
			o := serveOptions{Log: logOptionsOf(c), Node: server.Options{
				Name: c.String("name"), Dirs: c.StringSlice("dir"), Listen: c.String("listen"), Advertise: c.String("advertise"),
				Admin: c.String("admin"), Join: c.StringSlice("join"),
				Backend: backend.Options{Roots: c.StringSlice("backend-root")},
			}}
			if len(o.Node.Dirs) == 0 {
				return usagef(c, "want --dir")
			}
			if o.Node.Listen == "" {
				return usagef(c, "want --listen")
			}
			if err := o.background(c); err != nil {
				return err
			}
			var err error
			if o.Certs, err = inHome(c.String("certs"), "certs"); err != nil {
				return err
			}
			return p.serve(c.Context, o)
		},
	}
}

// serveOptions are what a node is started with.
type serveOptions struct {
	Node  server.Options // without identity and logger
	Certs string
	Log   logOptions
}

// background takes the flags of what a node does by itself.
func (o *serveOptions) background(c *cli.Context) (err error) {
	if o.Node.RebalanceBytes, err = parseRate(c.String("rebalance-rate")); err != nil {
		return usagef(c, "--rebalance-rate: %s", rootCause(err))
	}
	if o.Node.ScrubBytes, err = parseRate(c.String("scrub-rate")); err != nil {
		return usagef(c, "--scrub-rate: %s", rootCause(err))
	}
	every := c.String("scrub-every")
	if every == noLimit {
		o.Node.ScrubEvery = -1
		return nil
	}
	if o.Node.ScrubEvery, err = time.ParseDuration(every); err != nil || o.Node.ScrubEvery <= 0 {
		return usagef(c, "--scrub-every %q: want a time above 0 as in 168h, or none", every)
	}
	return nil
}

func (p *program) serve(ctx context.Context, o serveOptions) error {
	log, err := o.Log.logger(p.stderr)
	if err != nil {
		return err
	}
	o.Node.Logger = log
	if o.Node.Identity, err = peer.LoadIdentity(o.Certs, peer.NodeName); err != nil {
		return err
	}
	n, err := server.Start(ctx, o.Node)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "ready %s\n", n.Addr())
	notifySystemd("READY=1", log)
	<-ctx.Done()
	notifySystemd("STOPPING=1", log)
	log.Info("stopping")
	return n.Close()
}
