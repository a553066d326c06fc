package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// pollEvery is how often a command that waits asks the nodes.
const pollEvery = 300 * time.Millisecond

func (p *program) clusterRebalanceCommand() *cli.Command {
	return &cli.Command{
		Name: "rebalance", Usage: "let nodes look through all they hold, and bring it to where it belongs",
		ArgsUsage: "[NODE…]",
		Description: `Nodes do so by themselves whenever the cluster map or a bucket's copies change. Without
NODE all do. --wait returns when they have done it and the cluster is settled.`,
		Flags: withClient(&cli.BoolFlag{Name: "wait", Usage: "until it is done"}),
		Action: func(c *cli.Context) error {
			o := clusterRebalanceOptions{Nodes: c.Args().Slice(), Wait: c.Bool("wait")}
			return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return p.clusterRebalance(c.Context, cl, o) })
		},
	}
}

// clusterRebalanceOptions say which nodes are asked; none is all.
type clusterRebalanceOptions struct {
	Nodes []string
	Wait  bool
}

func (p *program) clusterRebalance(ctx context.Context, c *cluster, o clusterRebalanceOptions) error {
	m := c.Map()
	var asked []peer.Node
	for _, name := range o.Nodes {
		n, err := nodeNamed(m, name)
		if err != nil {
			return err
		}
		asked = append(asked, n)
	}
	if len(o.Nodes) == 0 {
		for _, i := range m.Readable() {
			asked = append(asked, m.Nodes[i])
		}
	}
	before := map[string]time.Time{}
	for _, n := range asked {
		s, err := c.Status(ctx, n.Addr)
		if err != nil {
			return named(err, n.Name)
		}
		before[n.Name] = s.Reconcile.Finished
	}
	for _, n := range asked {
		if err := c.Rebalance(ctx, n.Addr); err != nil {
			return named(err, n.Name)
		}
	}
	if !o.Wait {
		return nil
	}
	return p.waitSettled(ctx, c, before)
}

// named says which node an error is of.
func named(err error, node string) error {
	return errs.Wrap(errs.CodeOf(err), "node "+node, err)
}

// waitSettled waits until all nodes answer and are settled, and each of those in since
// has ended a pass after its time there.
func (p *program) waitSettled(ctx context.Context, c *cluster, since map[string]time.Time) error {
	bar := newProgress(p.stderr, "rebalance")
	defer bar.close()
	for {
		if err := c.Refresh(ctx); err != nil {
			return err
		}
		nodes, err := askNodes(ctx, c, c.Map())
		if err != nil {
			return err
		}
		var objects, bytes uint64
		done := settled(nodes)
		for _, n := range nodes {
			done = done && n.Error == ""
			t := n.Reconcile
			if t != nil {
				objects, bytes = objects+t.Objects, bytes+t.Bytes
			}
			if before, ok := since[n.Name]; ok && (t == nil || t.Active || t.Finished == nil || !t.Finished.After(before)) {
				done = false
			}
		}
		if done {
			return nil
		}
		bar.at(int64(bytes), fmt.Sprintf("rebalance: %s", plural(int64(objects), "object", "objects")))
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
