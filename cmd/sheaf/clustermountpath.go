package main

import (
	"bufio"
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func (p *program) clusterMountpathsCommand() *cli.Command {
	return &cli.Command{
		Name: "mountpaths", Usage: "list the nodes' data folders", ArgsUsage: "[NODE…]",
		Description: `Without NODE those of all. With --json each line is an object: {"node","dir","id",
"enabled","error","free","total","objects"}.`,
		Flags: withClient(jsonFlag()),
		Action: func(c *cli.Context) error {
			o := mountpathsOptions{Nodes: c.Args().Slice(), JSON: c.Bool("json")}
			return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return p.clusterMountpaths(c.Context, cl, o) })
		},
	}
}

func (p *program) clusterMountpathCommand() *cli.Command {
	set := func(name, usage, description string, enabled bool) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, ArgsUsage: "NODE DIR", Description: description, Flags: withClient(),
			Action: func(c *cli.Context) error {
				a, err := positional(c, 2, 2, "NODE and DIR")
				if err != nil {
					return err
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error {
					n, err := nodeNamed(cl.Map(), a[0])
					if err != nil {
						return err
					}
					return cl.SetMountpath(c.Context, n.Addr, a[1], enabled)
				})
			},
		}
	}
	return &cli.Command{
		Name: "mountpath", Usage: "take a node's data folder out of use, or into it again",
		Subcommands: []*cli.Command{
			set("enable", "use a folder again", `The disk is tried first. What belongs on it moves there in the background.`, true),
			set("disable", "use a folder no longer", `What lies there is not found until the folder is enabled again; copies on other nodes
are. A node does so by itself when a disk gives I/O errors.`, false),
		},
	}
}

// mountpathsOptions say whose data folders are listed, and how.
type mountpathsOptions struct {
	Nodes []string // none is all
	JSON  bool
}

// mountpathJSON is a data folder as --json shows it.
type mountpathJSON struct {
	Node    string `json:"node,omitempty"`
	Dir     string `json:"dir"`
	ID      string `json:"id"`
	Enabled bool   `json:"enabled"`
	Error   string `json:"error,omitempty"`
	Free    uint64 `json:"free"`
	Total   uint64 `json:"total"`
	Objects uint64 `json:"objects"`
}

func mountpathsJSONOf(node string, list []peer.MountpathStatus) (out []mountpathJSON) {
	for _, m := range list {
		out = append(out, mountpathJSON{Node: node, Dir: m.Dir, ID: m.ID, Enabled: m.Enabled, Error: m.Err, Free: m.Free, Total: m.Total, Objects: m.Objects})
	}
	return out
}

func (p *program) clusterMountpaths(ctx context.Context, c *cluster, o mountpathsOptions) error {
	m := c.Map()
	var nodes []peer.Node
	for _, name := range o.Nodes {
		n, err := nodeNamed(m, name)
		if err != nil {
			return err
		}
		nodes = append(nodes, n)
	}
	if len(o.Nodes) == 0 {
		for _, i := range m.Readable() {
			nodes = append(nodes, m.Nodes[i])
		}
	}
	var list []mountpathJSON
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(ctx, statusTimeout)
		of, err := c.Mountpaths(ctx, n.Addr)
		cancel()
		if errs.IsCode(err, errs.Timeout) {
			err = errs.New(errs.Timeout, "", fmt.Sprintf("node %s: no answer within %v", n.Name, statusTimeout))
		}
		if err != nil {
			return err
		}
		list = append(list, mountpathsJSONOf(n.Name, of)...)
	}
	return buffered(p.stdout, func(w *bufio.Writer) error {
		if o.JSON {
			for _, m := range list {
				if err := writeJSON(w, m); err != nil {
					return err
				}
			}
			return nil
		}
		rows := [][]string{{"NODE", "DIR", "ENABLED", "OBJECTS", "USED", "FREE", "ERROR"}}
		for _, m := range list {
			rows = append(rows, []string{m.Node, m.Dir, yesNo(m.Enabled), fmt.Sprint(m.Objects), formatBytes(m.Total - min(m.Free, m.Total)), formatBytes(m.Free), dash(m.Error)})
		}
		return table(w, rows)
	})
}
