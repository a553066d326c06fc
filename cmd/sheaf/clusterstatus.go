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

func (p *program) clusterStatusCommand() *cli.Command {
	return &cli.Command{
		Name: "status", Usage: "ask every node how it is", Flags: withClient(
			&cli.BoolFlag{Name: "wait", Usage: "until all nodes answer and are settled"},
			jsonFlag(),
		),
		Description: `Settled is a node that has brought all it holds to where the cluster map says; the
cluster is when all are, by the same map. Exit status 5 when a node doesn't answer.

With --json one object: {"cluster","map","settled","nodes":[{"name","address","admin",
"state","settled","map","version","uptime_ms","total","free","objects","tombstones",
"mountpaths","batches","senders","reconcile","scrub","resilver","disks"}]}. A node that
doesn't answer has "state":"down" and "error" instead; the tasks are {"active","objects",
"bytes","moved","failed","started","finished"}, disks as 'sheaf cluster mountpaths' gives
them. Nodes that have left aren't there.`,
		Action: func(c *cli.Context) error {
			if _, err := positional(c, 0, 0, "no arguments"); err != nil {
				return err
			}
			o := clusterStatusOptions{JSON: c.Bool("json"), Wait: c.Bool("wait")}
			return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return p.clusterStatus(c.Context, cl, o) })
		},
	}
}

// clusterStatusOptions say how the nodes' status is shown.
type clusterStatusOptions struct{ JSON, Wait bool }

// nodeJSON is a node's status as --json shows it.
type nodeJSON struct {
	Name       string          `json:"name"`
	Address    string          `json:"address"`
	Admin      string          `json:"admin,omitempty"`
	State      string          `json:"state"` // "up", "leaving" or "down"
	Error      string          `json:"error,omitempty"`
	Settled    bool            `json:"settled"`
	Map        uint64          `json:"map,omitempty"`
	Version    string          `json:"version,omitempty"`
	UptimeMS   uint64          `json:"uptime_ms,omitempty"`
	Total      uint64          `json:"total,omitempty"`
	Free       uint64          `json:"free,omitempty"`
	Objects    uint64          `json:"objects"`
	Tombstones uint64          `json:"tombstones"`
	Mountpaths uint64          `json:"mountpaths,omitempty"`
	Batches    uint64          `json:"batches"`
	Senders    uint64          `json:"senders"`
	Reconcile  *taskJSON       `json:"reconcile,omitempty"`
	Scrub      *taskJSON       `json:"scrub,omitempty"`
	Resilver   *taskJSON       `json:"resilver,omitempty"`
	Disks      []mountpathJSON `json:"disks,omitempty"`

	hash  uint64         // of the map that it goes by
	known peer.NodeState // in the map of who asked
}

// taskJSON is a background task as --json shows it.
type taskJSON struct {
	Active   bool       `json:"active"`
	Objects  uint64     `json:"objects"`
	Bytes    uint64     `json:"bytes"`
	Moved    uint64     `json:"moved"`
	Failed   uint64     `json:"failed"`
	Started  *time.Time `json:"started,omitempty"`
	Finished *time.Time `json:"finished,omitempty"`
}

// taskJSONOf gives nil for a task that never ran.
func taskJSONOf(t *peer.TaskStatus) *taskJSON {
	if *t == (peer.TaskStatus{}) {
		return nil
	}
	when := func(t time.Time) *time.Time {
		if t.IsZero() {
			return nil
		}
		t = t.UTC()
		return &t
	}
	return &taskJSON{Active: t.Active, Objects: t.Objects, Bytes: t.Bytes, Moved: t.Moved, Failed: t.Failed, Started: when(t.Started), Finished: when(t.Finished)}
}

func (p *program) clusterStatus(ctx context.Context, c *cluster, o clusterStatusOptions) error {
	if o.Wait {
		if err := p.waitSettled(ctx, c, nil); err != nil {
			return err
		}
	}
	m := c.Map()
	nodes, err := askNodes(ctx, c, m)
	if err != nil {
		return err
	}
	if err := p.printStatus(m, nodes, o); err != nil {
		return err
	}
	var down []string
	for _, n := range nodes {
		if n.State == peer.Down.String() {
			down = append(down, fmt.Sprintf("%s (%s)", n.Name, n.Error))
		}
	}
	if len(down) > 0 {
		return errs.New(errs.Unavailable, "", fmt.Sprintf("%d of %s down: %s", len(down), plural(len(nodes), "node", "nodes"), strings.Join(down, ", ")))
	}
	return nil
}

// askNodes asks all nodes that haven't left at the same time.
func askNodes(ctx context.Context, c *cluster, m *peer.Map) ([]nodeJSON, error) {
	nodes := make([]nodeJSON, 0, len(m.Nodes))
	for _, n := range m.Nodes {
		if n.State != peer.Left {
			nodes = append(nodes, nodeJSON{Name: n.Name, Address: n.Addr, Admin: n.Admin, known: n.State})
		}
	}
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() { nodes[i].ask(ctx, c) }) // ends with its timeout
	}
	wg.Wait()
	return nodes, ctx.Err()
}

func (n *nodeJSON) ask(ctx context.Context, c *cluster) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	n.State = peer.Down.String()
	s, err := c.Status(ctx, n.Address)
	switch {
	case errs.IsCode(err, errs.Timeout):
		n.Error = fmt.Sprintf("no answer within %v", statusTimeout)
		return
	case err != nil:
		n.Error = rootCause(err)
		return
	case s.Name != n.Name:
		n.Error = fmt.Sprintf("node %s answers there", s.Name)
		return
	}
	n.State, n.Settled, n.Map, n.Version, n.UptimeMS, n.hash = s.State.String(), s.Settled, s.MapVersion, s.Version, s.UptimeMS, s.MapHash
	n.Total, n.Free, n.Mountpaths, n.Batches, n.Senders = s.Total, s.Free, s.MountpathCount, s.Batches, s.Senders
	n.Objects, n.Tombstones = s.Objects, s.TombstonesKept
	n.Reconcile, n.Scrub, n.Resilver = taskJSONOf(&s.Reconcile), taskJSONOf(&s.Scrub), taskJSONOf(&s.Resilver)
	n.Disks = mountpathsJSONOf("", s.Mountpaths)
	if s.State == peer.Down {
		// It has yet to hear that the others gave it up, or to tell them that it is back.
		n.State = peer.Up.String()
	}
}

// settled tells whether all nodes are, by one map. One that is known to be down keeps
// nobody waiting.
func settled(nodes []nodeJSON) bool {
	var hash uint64
	for _, n := range nodes {
		switch {
		case n.Error != "" && n.known == peer.Down:
			continue
		case !n.Settled || hash != 0 && n.hash != hash:
			return false
		}
		hash = n.hash
	}
	return true
}

func (p *program) printStatus(m *peer.Map, nodes []nodeJSON, o clusterStatusOptions) error {
	if o.JSON {
		return writeJSON(p.stdout, struct {
			Cluster string     `json:"cluster"`
			Map     uint64     `json:"map"`
			Settled bool       `json:"settled"`
			Nodes   []nodeJSON `json:"nodes"`
		}{m.Cluster, m.Version, settled(nodes), nodes})
	}
	rows := [][]string{{"NODE", "ADDRESS", "STATE", "SETTLED", "MAP", "UPTIME", "OBJECTS", "USED", "FREE", "BATCHES", "ADMIN"}}
	var more []string
	for _, n := range nodes {
		row := []string{n.Name, n.Address, n.State, "-", "-", "-", "-", "-", "-", "-", dash(n.Admin)}
		if n.Error == "" {
			uptime := (time.Duration(n.UptimeMS) * time.Millisecond).Round(time.Second)
			row = []string{n.Name, n.Address, n.State, yesNo(n.Settled), fmt.Sprint(n.Map), uptime.String(), fmt.Sprint(n.Objects),
				formatBytes(n.Total - min(n.Free, n.Total)), formatBytes(n.Free), fmt.Sprint(n.Batches), dash(n.Admin)}
		}
		rows = append(rows, row)
		more = append(more, n.remarks()...)
	}
	if err := table(p.stdout, rows); err != nil {
		return err
	}
	for _, line := range more {
		if _, err := fmt.Fprintln(p.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// remarks are what a person ought to know of a node beside its row.
func (n *nodeJSON) remarks() (lines []string) {
	for _, t := range []struct {
		name string
		task *taskJSON
	}{{"rebalance", n.Reconcile}, {"scrub", n.Scrub}, {"resilver", n.Resilver}} {
		if t.task != nil && (t.task.Active || t.task.Failed > 0) {
			lines = append(lines, fmt.Sprintf("%s: %s %s", n.Name, t.name, t.task))
		}
	}
	for _, d := range n.Disks {
		if !d.Enabled {
			lines = append(lines, fmt.Sprintf("%s: mountpath %s is disabled: %s", n.Name, d.Dir, dash(d.Error)))
		}
	}
	return lines
}

// String tells a person how a task is going.
func (t *taskJSON) String() string {
	how := "ended"
	if t.Active {
		how = "under way"
	}
	s := fmt.Sprintf("%s: %s, %s, %d moved", how, plural(int64(t.Objects), "object", "objects"), formatBytes(t.Bytes), t.Moved)
	if t.Failed > 0 {
		s += fmt.Sprintf(", %d failed", t.Failed)
	}
	return s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
