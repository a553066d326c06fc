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
for good, --force tells the others, who wait for it no longer. What only it holds is lost,
and it can join again with empty folders only.`,
		Flags: withClient(&cli.BoolFlag{Name: "wait", Usage: "until it has left"},
			&cli.BoolFlag{Name: "force", Usage: "at once, without giving anything away"}),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "the name of one NODE")
			if err != nil {
				return err
			}
			o := clusterLeaveOptions{Node: a[0], Wait: c.Bool("wait"), Force: c.Bool("force")}
			return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return p.clusterLeave(c.Context, cl, o) })
		},
	}
}

// clusterLeaveOptions say which node leaves.
type clusterLeaveOptions struct {
	Node        string
	Wait, Force bool
}

func (p *program) clusterLeave(ctx context.Context, c *cluster, o clusterLeaveOptions) error {
	n, err := nodeNamed(c.Map(), o.Node)
	if err != nil {
		return err
	}
	if n.State == peer.Left {
		return nil
	}
	if o.Force {
		return forceLeave(ctx, c, n)
	}
	if o.Force {
		return p.forceLeave(ctx, c, n)
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

// forceLeave makes a node one that has left: it hears it itself, or when it is down any
// other that can be reached.
func forceLeave(ctx context.Context, c *cluster, n peer.Node) error {
	addrs := []string{n.Addr}
	if n.State == peer.Down {
		addrs = nil
		m := c.Map()
		for _, i := range m.Readable() {
			addrs = append(addrs, m.Nodes[i].Addr)
		}
	}
	var err error = errs.New(errs.Unavailable, "", "no other node is up")
	for _, a := range addrs {
		if err = c.ForceLeave(ctx, a, n.Name); !errs.IsCode(err, errs.Unavailable) {
			break
		}
	}
	return named(err, n.Name)
}

// forceLeave tells any node that does its work that n has left.
func (p *program) forceLeave(ctx context.Context, c *cluster, n peer.Node) error {
	m := c.Map()
	var err error = errs.New(errs.Unavailable, "", "no other node is there to be told")
	for _, i := range m.Readable() {
		if m.Nodes[i].Name == n.Name {
			continue
		}
		if err = c.ForceLeave(ctx, m.Nodes[i].Addr, n.Name); err == nil || !errs.IsCode(err, errs.Unavailable) {
			return err
		}
	}
	return err
}
