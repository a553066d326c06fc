package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// statusTimeout is how long 'cluster status' waits for a node.
const statusTimeout = 3 * time.Second

func (p *program) clusterCommand() *cli.Command {
	sub := func(name, usage, description string, run func(context.Context, *cluster, clusterOptions) error) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, Description: description, Flags: withClient(jsonFlag()),
			Action: func(c *cli.Context) error {
				if _, err := positional(c, 0, 0, "no arguments"); err != nil {
					return err
				}
				o := clusterOptions{JSON: c.Bool("json")}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return run(c.Context, cl, o) })
			},
		}
	}
	return &cli.Command{
		Name: "cluster", Usage: "tell about the cluster and its nodes",
		Subcommands: []*cli.Command{
			sub("status", "ask every node how it is", `Exit status 5 when a node doesn't answer. With --json one object: {"cluster","map",
"nodes":[{"name","address","admin","state","map","version","uptime_ms","total","free",
"mountpaths","batches","senders"}]}; a node that is down has "error" instead.`, p.clusterStatus),
			sub("map", "show the cluster map", `With --json one object: {"cluster","version","nodes":[{"name","address","admin","weight"}]}.`, p.clusterMap),
		},
	}
}

// clusterOptions say how the cluster is shown.
type clusterOptions struct{ JSON bool }

// mapNodeJSON is a node of the map as --json shows it.
type mapNodeJSON struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Admin   string `json:"admin,omitempty"`
	Weight  uint64 `json:"weight"`
}

func (p *program) clusterMap(_ context.Context, c *cluster, o clusterOptions) error {
	m := c.Map()
	if o.JSON {
		nodes := []mapNodeJSON{}
		for _, n := range m.Nodes {
			nodes = append(nodes, mapNodeJSON{Name: n.Name, Address: n.Addr, Admin: n.Admin, Weight: max(n.Weight, 1)})
		}
		return writeJSON(p.stdout, struct {
			Cluster string        `json:"cluster"`
			Version uint64        `json:"version"`
			Nodes   []mapNodeJSON `json:"nodes"`
		}{m.Cluster, m.Version, nodes})
	}
	fmt.Fprintf(p.stdout, "cluster %s, map version %d, %s\n", m.Cluster, m.Version, plural(len(m.Nodes), "node", "nodes"))
	rows := [][]string{{"NODE", "ADDRESS", "WEIGHT", "ADMIN"}}
	for _, n := range m.Nodes {
		rows = append(rows, []string{n.Name, n.Addr, fmt.Sprint(max(n.Weight, 1)), dash(n.Admin)})
	}
	return table(p.stdout, rows)
}

// nodeJSON is a node's status as --json shows it.
type nodeJSON struct {
	Name       string `json:"name"`
	Address    string `json:"address"`
	Admin      string `json:"admin,omitempty"`
	State      string `json:"state"` // "up" or "down"
	Error      string `json:"error,omitempty"`
	Map        uint64 `json:"map,omitempty"`
	Version    string `json:"version,omitempty"`
	UptimeMS   uint64 `json:"uptime_ms,omitempty"`
	Total      uint64 `json:"total,omitempty"`
	Free       uint64 `json:"free,omitempty"`
	Mountpaths uint64 `json:"mountpaths,omitempty"`
	Batches    uint64 `json:"batches"`
	Senders    uint64 `json:"senders"`
}

func (p *program) clusterStatus(ctx context.Context, c *cluster, o clusterOptions) error {
	m := c.Map()
	nodes := make([]nodeJSON, len(m.Nodes))
	var wg sync.WaitGroup
	for i, n := range m.Nodes {
		wg.Go(func() { nodes[i] = askNode(ctx, c, n) }) // ends with its timeout
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := p.printStatus(m, nodes, o); err != nil {
		return err
	}
	var down []string
	for _, n := range nodes {
		if n.State != "up" {
			down = append(down, fmt.Sprintf("%s (%s)", n.Name, n.Error))
		}
	}
	if len(down) > 0 {
		return errs.New(errs.Unavailable, "", fmt.Sprintf("%d of %s down: %s", len(down), plural(len(nodes), "node", "nodes"), strings.Join(down, ", ")))
	}
	return nil
}

func askNode(ctx context.Context, c *cluster, n peer.Node) nodeJSON {
	out := nodeJSON{Name: n.Name, Address: n.Addr, Admin: n.Admin, State: "down"}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	s, err := c.Status(ctx, n.Addr)
	switch {
	case errs.IsCode(err, errs.Timeout):
		out.Error = fmt.Sprintf("no answer within %v", statusTimeout)
	case err != nil:
		out.Error = rootCause(err)
	case s.Name != n.Name:
		out.Error = fmt.Sprintf("node %s answers there", s.Name)
	default:
		out.State, out.Map, out.Version, out.UptimeMS = "up", s.MapVersion, s.Version, s.UptimeMS
		out.Total, out.Free, out.Mountpaths, out.Batches, out.Senders = s.Total, s.Free, s.MountpathCount, s.Batches, s.Senders
	}
	return out
}

func (p *program) printStatus(m *peer.Map, nodes []nodeJSON, o clusterOptions) error {
	if o.JSON {
		return writeJSON(p.stdout, struct {
			Cluster string     `json:"cluster"`
			Map     uint64     `json:"map"`
			Nodes   []nodeJSON `json:"nodes"`
		}{m.Cluster, m.Version, nodes})
	}
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "MAP", "UPTIME", "USED", "FREE", "BATCHES", "ADMIN"}}
	for _, n := range nodes {
		row := []string{n.Name, n.Address, n.State, "-", "-", "-", "-", "-", dash(n.Admin)}
		if n.State == "up" {
			uptime := (time.Duration(n.UptimeMS) * time.Millisecond).Round(time.Second)
			row = []string{n.Name, n.Address, n.State, fmt.Sprint(n.Map), uptime.String(), formatBytes(n.Total - min(n.Free, n.Total)), formatBytes(n.Free),
				fmt.Sprint(n.Batches), dash(n.Admin)}
		}
		rows = append(rows, row)
	}
	return table(p.stdout, rows)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
