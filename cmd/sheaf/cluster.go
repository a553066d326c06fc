package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func (p *program) clusterCommand() *cli.Command {
	return &cli.Command{
		Name: "cluster", Usage: "tell about the cluster and its nodes, and tend them",
		Subcommands: []*cli.Command{
			p.clusterStatusCommand(), p.clusterMapCommand(), p.clusterRebalanceCommand(), p.clusterLeaveCommand(),
			p.clusterMountpathsCommand(), p.clusterMountpathCommand(),
		},
	}
}

// nodeNamed finds a node of the cluster map by its name.
func nodeNamed(m *peer.Map, name string) (peer.Node, error) {
	i := m.Find(name)
	if i < 0 {
		return peer.Node{}, errs.New(errs.NotFound, "", fmt.Sprintf("no node %q: 'sheaf cluster map' lists them", name))
	}
	return m.Nodes[i], nil
}

func (p *program) clusterMapCommand() *cli.Command {
	return &cli.Command{
		Name: "map", Usage: "show the cluster map", Flags: withClient(jsonFlag()),
		Description: `States: up; leaving, which is being drained; down; left, for good. With --json one
object: {"cluster","version","nodes":[{"name","address","admin","weight","state"}]}.`,
		Action: func(c *cli.Context) error {
			if _, err := positional(c, 0, 0, "no arguments"); err != nil {
				return err
			}
			return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error {
				return p.clusterMap(c.Context, cl, clusterMapOptions{JSON: c.Bool("json")})
			})
		},
	}
}

// clusterMapOptions say how the map is shown.
type clusterMapOptions struct{ JSON bool }

// mapNodeJSON is a node of the map as --json shows it.
type mapNodeJSON struct {
	Name    string         `json:"name"`
	Address string         `json:"address"`
	Admin   string         `json:"admin,omitempty"`
	Weight  uint64         `json:"weight"`
	State   peer.NodeState `json:"state"`
}

func (p *program) clusterMap(_ context.Context, c *cluster, o clusterMapOptions) error {
	m := c.Map()
	if o.JSON {
		nodes := []mapNodeJSON{}
		for _, n := range m.Nodes {
			nodes = append(nodes, mapNodeJSON{Name: n.Name, Address: n.Addr, Admin: n.Admin, Weight: max(n.Weight, 1), State: n.State})
		}
		return writeJSON(p.stdout, struct {
			Cluster string        `json:"cluster"`
			Version uint64        `json:"version"`
			Nodes   []mapNodeJSON `json:"nodes"`
		}{m.Cluster, m.Version, nodes})
	}
	fmt.Fprintf(p.stdout, "cluster %s, map version %d, %s\n", m.Cluster, m.Version, plural(len(m.Nodes), "node", "nodes"))
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "WEIGHT", "ADMIN"}}
	for _, n := range m.Nodes {
		rows = append(rows, []string{n.Name, n.Addr, n.State.String(), fmt.Sprint(max(n.Weight, 1)), dash(n.Admin)})
	}
	return table(p.stdout, rows)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
