package server

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/internal/store"
)

// simCluster is a cluster of nodes that have nothing but names and versions, to try passes
// by the hundred, with everything that goes wrong between nodes.
type simCluster struct {
	t      *testing.T
	rnd    *rand.Rand
	copies int

	mu    sync.Mutex
	view  simView // guarded by mu: the newest placement
	nodes map[string]*simNode
	fails float64           // guarded by mu: how likely a call fails
	sent  int               // guarded by mu: records sent and taken
	truth map[string]uint64 // guarded by mu: version of each name; 0 with gone: deleted
	gone  map[string]bool   // guarded by mu
	clock uint64            // guarded by mu
}

// simView is a placement: who is up.
type simView struct {
	hash uint64
	up   []string
}

// place gives a name's holders.
func (v simView) place(name string, copies int) []string {
	up := slices.Clone(v.up)
	slices.SortFunc(up, func(a, b string) int { return strings.Compare(key(b, name), key(a, name)) })
	return up[:min(copies, len(up))]
}

func key(node, name string) string { return fmt.Sprintf("%016x", xxh3.HashString(node+"/"+name)) }

// simNode is one node. Its maps are guarded by simCluster.mu.
type simNode struct {
	c      *simCluster
	name   string
	recs   map[string]store.Record
	gate   gate
	active uint64          // guarded by simCluster.mu
	walked uint64          // guarded by simCluster.mu
	over   uint64          // guarded by simCluster.mu
	stray  map[string]bool // names written here by an older placement; guarded by simCluster.mu
	heard  chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func newSim(t *testing.T, seed uint64, copies int, names ...string) *simCluster {
	c := &simCluster{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), copies: copies, nodes: map[string]*simNode{}, truth: map[string]uint64{}, gone: map[string]bool{}, clock: 1000}
	for _, n := range names {
		c.add(n)
	}
	return c
}

func (c *simCluster) add(name string) *simNode {
	n := &simNode{c: c, name: name, recs: map[string]store.Record{}, stray: map[string]bool{}, heard: make(chan struct{}), cancel: func() {}}
	c.mu.Lock()
	c.nodes[name] = n
	c.mu.Unlock()
	return n
}

// sleep takes up to so many milliseconds.
func (c *simCluster) sleep(most int) {
	c.mu.Lock()
	d := time.Duration(c.rnd.IntN(most)) * time.Millisecond
	c.mu.Unlock()
	time.Sleep(d)
}

// chance is true with probability p.
func (c *simCluster) chance(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.Float64() < p
}

// fail makes a call take its time and fail now and then.
func (c *simCluster) fail() error {
	c.mu.Lock()
	p := c.fails
	c.mu.Unlock()
	c.sleep(5)
	if c.chance(p) {
		return errs.New(errs.Unavailable, "sim", "the network")
	}
	return nil
}

// newest gives the highest version of a name anywhere. mu is held.
func (c *simCluster) newest(name string) (r store.Record) {
	for _, n := range c.nodes {
		if have := n.recs[name]; have.Version > r.Version {
			r = have
		}
	}
	return r
}

func (n *simNode) env(v simView) passEnv {
	c := n.c
	locked := func(f func()) { c.mu.Lock(); defer c.mu.Unlock(); f() }
	return passEnv{
		buckets: func() []string { return []string{"b"} },
		records: func(_ context.Context, _, after string, limit int) (out []store.Record, err error) {
			locked(func() {
				for _, name := range slices.Sorted(maps.Keys(n.recs)) {
					if name > after && len(out) < limit {
						out = append(out, n.recs[name])
					}
				}
			})
			return out, nil
		},
		lookup: func(_ string, names []string) (out []store.Record, err error) {
			locked(func() {
				for _, name := range names {
					out = append(out, n.recs[name])
				}
			})
			return out, nil
		},
		place: func(_, name string) ([]string, int, bool) {
			h := v.place(name, c.copies)
			return h, slices.Index(h, n.name), len(h) == c.copies
		},
		versions: func(_ context.Context, node, _ string, names []string) (out []uint64, err error) {
			if err := c.fail(); err != nil {
				return nil, err
			}
			locked(func() {
				if c.nodes[node].active != v.hash {
					err = errPlaced
					return
				}
				for _, name := range names {
					out = append(out, c.nodes[node].recs[name].Version)
				}
			})
			return out, err
		},
		send: func(ctx context.Context, node, _ string, recs []store.Record) []error {
			out := make([]error, len(recs))
			for i, r := range recs {
				if out[i] = ctx.Err(); out[i] == nil {
					out[i] = c.fail()
				}
				if out[i] != nil {
					continue
				}
				locked(func() {
					to := c.nodes[node]
					if have := to.recs[r.Name]; have.Version < r.Version {
						to.recs[r.Name] = r
						to.stray[r.Name] = true
						c.sent++
					}
					if to.active != v.hash {
						out[i] = errPlaced
					}
				})
			}
			return out
		},
		remove: func(_ string, r store.Record) (err error) {
			defer n.gate.enter()()
			locked(func() {
				if n.active != v.hash {
					err = errPlaced
					return
				}
				if have := n.recs[r.Name]; have.Version != r.Version {
					err = errs.New(errs.VersionMismatch, "remove", "")
					return
				}
				delete(n.recs, r.Name)
				if c.newest(r.Name).Version < r.Version {
					c.t.Errorf("node %s took away the last copy of %s at version %d", n.name, r.Name, r.Version)
				}
			})
			return err
		},
		done: func(node string) (done bool) {
			locked(func() { done = c.nodes[node].walked == v.hash })
			return done
		},
		repair: func(_, name string, _ bool) {
			// Brings the newest here.
			locked(func() {
				if r := c.newest(name); r.Version > 0 {
					n.recs[name] = r
				}
			})
		},
		save:   func(cursor) {},
		walked: func() { locked(func() { n.walked = v.hash; c.tell() }) },
		wake: func() (ch <-chan struct{}) {
			locked(func() { ch = n.heard })
			return ch
		},
	}
}

// follow makes a node go by a placement: its pass by an older one ends.
func (n *simNode) follow(v simView) {
	n.cancel()
	n.wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.c.mu.Lock()
	n.active = 0 // whoever enters the gate from here on sees that
	n.c.mu.Unlock()
	n.wg.Go(func() {
		if n.gate.pass(ctx) != nil {
			return
		}
		n.c.mu.Lock()
		n.active = v.hash
		n.c.mu.Unlock()
		p := &pass{env: n.env(v)}
		if p.run(ctx, cursor{}) != nil {
			return
		}
		n.c.mu.Lock()
		defer n.c.mu.Unlock()
		n.over = v.hash
		n.c.tell()
	})
}

// tell wakes the passes that wait for other nodes. mu is held.
func (c *simCluster) tell() {
	for _, o := range c.nodes {
		close(o.heard)
		o.heard = make(chan struct{})
	}
}

// place makes a new placement, which the nodes learn of one after the other.
func (c *simCluster) place(up ...string) {
	c.mu.Lock()
	c.view = simView{hash: c.view.hash + 1, up: up}
	v := c.view
	order := c.rnd.Perm(len(c.nodes))
	names := slices.Sorted(maps.Keys(c.nodes))
	c.mu.Unlock()
	for _, i := range order {
		time.Sleep(time.Duration(i) * time.Millisecond)
		c.nodes[names[i]].follow(v)
	}
}

// settle waits until all nodes are done, and looks at what lies where.
func (c *simCluster) settle() {
	c.t.Helper()
	for deadline := time.Now().Add(time.Hour); ; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			for _, n := range c.nodes {
				c.mu.Lock()
				c.t.Logf("node %s: view %d, active %d, over %d, stray %v", n.name, c.view.hash, n.active, n.over, n.stray)
				for name := range n.stray {
					for _, o := range c.nodes {
						c.t.Logf("  %s: %s %v, holders %v", name, o.name, o.recs[name], c.view.place(name, c.copies))
					}
				}
				c.mu.Unlock()
			}
			c.t.Fatal("the nodes don't settle")
		}
		c.mu.Lock()
		all := true
		for _, n := range c.nodes {
			all = all && n.over == c.view.hash
			n.strays()
			all = all && len(n.stray) == 0
		}
		c.mu.Unlock()
		if all {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, version := range c.truth {
		holders := c.view.place(name, c.copies)
		for _, n := range c.nodes {
			have, want := n.recs[name], uint64(0)
			if slices.Contains(holders, n.name) {
				want = version
			}
			if have.Version != want || want > 0 && have.Deleted != c.gone[name] {
				c.t.Errorf("node %s has %s at version %d (deleted %v), want %d (deleted %v); holders %v", n.name, name, have.Version, have.Deleted, want, c.gone[name], holders)
			}
		}
	}
}

func (c *simCluster) stop() {
	for _, n := range c.nodes {
		n.cancel()
		n.wg.Wait()
	}
}

// strays does for the names that were written here what the repairs do: a record that
// doesn't belong here goes when all its holders have it. mu is held.
func (n *simNode) strays() {
	for name := range n.stray {
		holders := n.c.view.place(name, n.c.copies)
		lacking := func(h string) bool { return n.c.nodes[h].recs[name].Version < n.recs[name].Version }
		switch {
		case slices.Contains(holders, n.name):
		case slices.ContainsFunc(holders, lacking):
			continue
		default:
			delete(n.recs, name)
		}
		delete(n.stray, name)
	}
}

// write is a PUT or a DELETE as the owner coordinates it.
func (c *simCluster) write(name string, del bool) bool {
	c.mu.Lock()
	v := c.view
	holders := v.place(name, c.copies)
	owner := c.nodes[holders[0]]
	c.mu.Unlock()
	if len(holders) < c.copies {
		return false
	}
	time.Sleep(time.Millisecond) // the bytes come
	defer owner.gate.enter()()
	c.mu.Lock()
	version := uint64(0)
	for _, n := range c.nodes {
		if slices.Contains(v.up, n.name) && n.active != v.hash {
			c.mu.Unlock()
			return false // not all have heard of the placement
		}
		version = max(version, n.recs[name].Version)
	}
	c.clock++
	version = max(version+1, c.clock)
	c.mu.Unlock()
	for _, h := range holders {
		c.sleep(3)
		c.mu.Lock()
		if n := c.nodes[h]; n.recs[name].Version < version {
			n.recs[name] = store.Record{Info: store.Info{Name: name, Version: version, Size: 1}, Deleted: del}
			n.stray[name] = true
		}
		c.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if version > c.truth[name] {
		c.truth[name], c.gone[name] = version, del
	}
	return true
}

// A node joins: every copy that it is to have comes once, and the others keep no more
// than what is theirs.
func TestPassSendsOnce(t *testing.T) {
	for _, copies := range []int{1, 2, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := newSim(t, uint64(copies), copies, "a", "b", "c")
			defer c.stop()
			first := simView{up: []string{"a", "b", "c"}}
			for i := range 2500 {
				name := fmt.Sprintf("o%04d", i)
				c.truth[name] = uint64(i + 1)
				for _, h := range first.place(name, copies) {
					c.nodes[h].recs[name] = store.Record{Info: store.Info{Name: name, Version: uint64(i + 1)}}
				}
			}
			c.place(first.up...)
			c.settle()
			c.add("d")
			want := 0
			next := simView{up: []string{"a", "b", "c", "d"}}
			for name := range c.truth {
				if slices.Contains(next.place(name, copies), "d") {
					want++
				}
			}
			c.place("a", "b", "c", "d")
			c.settle()
			if c.sent != want {
				t.Errorf("%d copies: %d records were sent, %d were missing", copies, c.sent, want)
			}
		})
	}
}

// Nodes come and go while names are written and deleted, and calls fail.
func TestPassConverges(t *testing.T) {
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			all := []string{"a", "b", "c", "d", "e"}
			c := newSim(t, seed, 1+int(seed%3), all...)
			defer c.stop()
			c.place(all...)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			written := 0
			for w := range 3 {
				wg.Go(func() {
					for i := 0; ctx.Err() == nil; i++ {
						c.mu.Lock()
						name := fmt.Sprintf("w%d-%03d", w, c.rnd.IntN(200)) // each name has one writer
						del := c.rnd.IntN(4) == 0
						c.mu.Unlock()
						if c.write(name, del) {
							c.mu.Lock()
							written++
							c.mu.Unlock()
						}
						time.Sleep(time.Millisecond)
					}
				})
			}
			for range 8 {
				c.sleep(300)
				c.mu.Lock()
				c.fails = float64(c.rnd.IntN(3)) / 10
				up := slices.DeleteFunc(slices.Clone(all), func(string) bool { return c.rnd.IntN(4) == 0 })
				c.mu.Unlock()
				if len(up) >= c.copies {
					c.place(up...)
				}
			}
			cancel()
			wg.Wait()
			c.settle()
			if written < 50 {
				t.Errorf("seed %d: only %d writes came through", seed, written)
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// More names than a pass remembers: it walks again.
func TestPassOverflow(t *testing.T) {
	p := &pass{left: make([]passName, passLeft)}
	p.later("b", "m2")
	p.later("c", "a1")
	p.later("b", "m1x")
	if want := (cursor{"b", "m"}); p.over == nil || *p.over != want || len(p.left) != passLeft {
		t.Errorf("goes on after %v, want %v", p.over, want)
	}
}
