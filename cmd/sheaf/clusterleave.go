package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func (p *program) clusterLeaveCommand() *cli.Command {
	return &cli.Command{
		Name: "leave", Usage: "let a node give its objects to the others and leave for good", ArgsUsage: "NODE",
		Description: `Returns when the node has begun; --wait, when all it held is on the others and it has
left. Its process may be stopped then, and its folders are no longer needed. Objects can
be read and written all the while. A node that is down can't be asked: when it is gone
for good, the others make up for its copies by themselves.`,
		Flags: withClient(&cli.BoolFlag{Name: "wait", Usage: "until it has left"}),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "the name of one NODE")
			if err != nil {
				return err
			}
			o := clusterLeaveOptions{Node: a[0], Wait: c.Bool("wait")}
			return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return p.clusterLeave(c.Context, cl, o) })
		},
	}
}

// clusterLeaveOptions say which node leaves.
type clusterLeaveOptions struct {
	Node string
	Wait bool
}

func (p *program) clusterLeave(ctx context.Context, c *cluster, o clusterLeaveOptions) error {
	n, err := nodeNamed(c.Map(), o.Node)
	if err != nil {
		return err
	}
	if n.State == peer.Left {
		return nil
	}
	if err := c.Leave(ctx, n.Addr); err != nil {
		return named(err, n.Name)
	}
	if !o.Wait {
		return nil
	}
	bar := newProgress(p.stderr, "leave")
	defer bar.close()
	for {
		if err := c.Refresh(ctx); err != nil {
			return err
		}
		now, err := nodeNamed(c.Map(), o.Node)
		switch {
		case errs.IsCode(err, errs.NotFound): // forgotten: it was gone long ago
			return nil
		case err != nil:
			return err
		}
		switch now.State {
		case peer.Left:
			return nil
		case peer.Down:
			return errs.New(errs.Unavailable, "", fmt.Sprintf("node %s went down before it had left", o.Node))
		}
		if bar != nil {
			if s, err := c.Status(ctx, now.Addr); err == nil {
				bar.at(int64(s.Reconcile.Bytes), fmt.Sprintf("leave: %s left to move", plural(int64(s.Objects), "object", "objects")))
			}
		}
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}
