package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// heldRecord is an object or a tombstone on a node of the model.
type heldRecord struct {
	name    string
	version uint64
	deleted bool
}

// pageOf is what a node that holds these records, sorted by name, answers: a model of the
// store's listing, with a page size of the node's own.
func pageOf(held []heldRecord, o peer.ListOptions, size int) *peer.ListPage {
	page := &peer.ListPage{}
	type line struct {
		key        string
		rec        heldRecord
		live, dead bool
	}
	var lines []line
	for _, r := range held {
		if !strings.HasPrefix(r.name, o.Prefix) || r.deleted && !o.Tombstones {
			continue
		}
		l := line{key: r.name, rec: r}
		if i := strings.IndexByte(r.name[len(o.Prefix):], '/'); o.Delimiter == "/" && i >= 0 {
			l = line{key: r.name[:len(o.Prefix)+i+1], live: !r.deleted, dead: r.deleted}
		}
		if l.key <= o.StartAfter {
			continue
		}
		if n := len(lines); n > 0 && lines[n-1].key == l.key {
			lines[n-1].live, lines[n-1].dead = lines[n-1].live || l.live, lines[n-1].dead || l.dead
			continue
		}
		lines = append(lines, l)
	}
	if len(lines) > size {
		lines, page.Token = lines[:size], lines[size-1].key
	}
	for _, l := range lines {
		if l.live {
			page.Prefixes = append(page.Prefixes, l.key)
		}
		if l.dead {
			page.DeletedPrefixes = append(page.DeletedPrefixes, l.key)
		}
		switch o := (peer.ObjectInfo{Name: l.key, Version: l.rec.version}); {
		case l.live || l.dead:
		case l.rec.deleted:
			page.Deleted = append(page.Deleted, o)
		default:
			page.Objects = append(page.Objects, o)
		}
	}
	return page
}

func randomName(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(5) {
		b.WriteByte("ab/-0"[r.IntN(5)])
	}
	return b.String()
}

// Whatever the nodes hold, however they cut their answers, the pages together are the
// newest record of each name, without what is deleted.
func TestListMerge(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 400 {
		nodes := make([]map[string]heldRecord, 1+r.IntN(5))
		for i := range nodes {
			nodes[i] = map[string]heldRecord{}
		}
		settled := r.IntN(2) == 0
		newest := map[string]heldRecord{}
		version := uint64(0)
		for range r.IntN(200) {
			version++
			rec := heldRecord{name: randomName(r), version: version, deleted: !settled && r.IntN(3) == 0}
			for range 1 + r.IntN(2) {
				nodes[r.IntN(len(nodes))][rec.name] = rec
			}
			newest[rec.name] = rec
		}
		held := make([][]heldRecord, len(nodes))
		byName := func(a, b heldRecord) int { return cmp.Compare(a.name, b.name) }
		for i, m := range nodes {
			for name, rec := range m {
				if settled && rec != newest[name] {
					continue
				}
				held[i] = append(held[i], rec)
			}
			slices.SortFunc(held[i], byName)
		}
		var all []heldRecord
		for _, rec := range newest {
			if !rec.deleted {
				all = append(all, rec)
			}
		}
		slices.SortFunc(all, byName)

		o := peer.ListOptions{Prefix: []string{"", "a", "a/", "b/a", "none"}[r.IntN(5)], Limit: 1 + r.IntN(12)}
		if r.IntN(2) == 0 {
			o.Delimiter = "/"
		}
		want := pageOf(all, o, len(all)+1)
		o.Tombstones = !settled
		got := &peer.ListPage{}
		for pages := 0; ; pages++ {
			if pages > 2*len(all)+2 {
				t.Fatal("the listing doesn't end")
			}
			l := &lister{opts: o, nodes: len(held), chunk: 1 + r.IntN(6), ask: func(_ context.Context, i int, o peer.ListOptions) (*peer.ListPage, error) {
				return pageOf(held[i], o, o.Limit), nil
			}}
			page, err := l.page(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if n := len(page.Objects) + len(page.Prefixes); n > o.Limit || n < o.Limit && page.Token != "" {
				t.Fatalf("a page of %d names and the token %q, the limit is %d", n, page.Token, o.Limit)
			}
			got.Objects = append(got.Objects, page.Objects...)
			got.Prefixes = append(got.Prefixes, page.Prefixes...)
			if page.Token == "" {
				break
			}
			if page.Token <= o.StartAfter {
				t.Fatalf("after %q comes the token %q", o.StartAfter, page.Token)
			}
			o.StartAfter = page.Token
		}
		same := slices.EqualFunc(got.Objects, want.Objects, func(a, b peer.ObjectInfo) bool { return a.Name == b.Name && a.Version == b.Version })
		if !same || !slices.Equal(got.Prefixes, want.Prefixes) {
			t.Fatalf("%+v:\ngot  %v %q\nwant %v %q", o, got.Objects, got.Prefixes, want.Objects, want.Prefixes)
		}
	}
}

// A node that doesn't answer costs nothing where each object is on another too; else its
// error is the listing's.
func TestListMergeMissing(t *testing.T) {
	gone := &errs.Error{Code: errs.Unavailable, Node: "n1"}
	for _, c := range []struct {
		spare int
		err   error
		want  string
	}{
		{0, gone, "unavailable"},
		{1, gone, ""},
		{1, errs.New(errs.PermissionDenied, "", "no"), "permission"},
	} {
		l := &lister{opts: peer.ListOptions{Limit: 10}, nodes: 3, chunk: 10, spare: c.spare, ask: func(_ context.Context, i int, o peer.ListOptions) (*peer.ListPage, error) {
			if i == 1 {
				return nil, c.err
			}
			return pageOf([]heldRecord{{name: fmt.Sprint("o", i), version: 1}}, o, 10), nil
		}}
		page, err := l.page(t.Context())
		if c.want == "" {
			if err != nil || len(page.Objects) != 2 {
				t.Errorf("spare %d: %+v, %v", c.spare, page, err)
			}
		} else if !errors.Is(err, c.err) {
			t.Errorf("spare %d: %v, want %s", c.spare, err, c.want)
		}
	}
}

// A page asks each node for about its share, once, and never holds more than a bound.
func TestListMergeCost(t *testing.T) {
	const nodes = 40
	held := make([][]heldRecord, nodes)
	for i := range 30_000 {
		held[i*7%nodes] = append(held[i*7%nodes], heldRecord{name: fmt.Sprintf("o%05d", i), version: 1})
	}
	o := peer.ListOptions{Limit: peer.MaxListPage}
	var calls, lines atomic.Int64
	l := &lister{opts: o, nodes: nodes, chunk: listChunk(o, nodes, 1), ask: func(_ context.Context, i int, o peer.ListOptions) (*peer.ListPage, error) {
		p := pageOf(held[i], o, o.Limit)
		calls.Add(1)
		lines.Add(int64(len(p.Objects)))
		return p, nil
	}}
	page, err := l.page(t.Context())
	if err != nil || len(page.Objects) != peer.MaxListPage || page.Token == "" {
		t.Fatalf("%d objects, %v", len(page.Objects), err)
	}
	if calls.Load() > 2*nodes || lines.Load() > 2*peer.MaxListPage {
		t.Errorf("%d calls, %d lines", calls.Load(), lines.Load())
	}
	for _, fold := range []string{"", "/"} {
		o.Delimiter = fold
		for _, nodes := range []int{1, 3, 100, 100_000} {
			if n := listChunk(o, nodes, 3); n < 1 || n > peer.MaxListPage || nodes < 10_000 && n*nodes > 2*peer.MaxListPage+nodes {
				t.Errorf("%d nodes, delimiter %q: %d lines each", nodes, fold, n)
			}
		}
	}
}

func TestListNodes(t *testing.T) {
	for _, c := range []struct {
		states string // of nodes a, b, …: u(p) l(eaving) d(own) g(one)
		copies int
		want   string // nodes asked
		spare  int
		blame  string
	}{
		{"uuu", 1, "abc", 0, ""},
		{"uuu", 3, "abc", 2, ""},
		{"ulg", 1, "ab", 0, ""},
		{"udu", 1, "", 0, "b"},
		{"udu", 2, "ac", 0, ""},
		{"udul", 3, "acd", 1, ""},
		{"udud", 2, "", 0, "d"},
	} {
		var nodes []peer.Node
		for i, s := range c.states {
			state := map[rune]peer.NodeState{'u': peer.Up, 'l': peer.Leaving, 'd': peer.Down, 'g': peer.Left}[s]
			nodes = append(nodes, peer.Node{Name: string(rune('a' + i)), State: state})
		}
		got, spare, err := listNodes(peer.NewMap("c", 1, nodes), c.copies)
		asked := ""
		for _, n := range got {
			asked += n.Name
		}
		if asked != c.want || spare != c.spare {
			t.Errorf("%s, %d copies: asked %q, spare %d", c.states, c.copies, asked, spare)
		}
		if c.blame == "" {
			if err != nil {
				t.Errorf("%s, %d copies: %v", c.states, c.copies, err)
			}
		} else if e := errs.Flatten(err); e.Code != errs.Unavailable || e.Node != c.blame {
			t.Errorf("%s, %d copies: %v", c.states, c.copies, err)
		}
	}
}

func TestListToken(t *testing.T) {
	o := peer.ListOptions{Prefix: "p/", Delimiter: "/"}
	o.Token = listToken("b", o, "p/last/")
	if after, err := readListToken("b", o); err != nil || after != "p/last/" {
		t.Errorf("%q, %v", after, err)
	}
	// It is in the hands of clients: it stays readable.
	if want := "AViuh3ZwL2xhc3Qv"; o.Token != want {
		t.Errorf("token %q, want %q", o.Token, want)
	}
	for _, c := range []struct {
		bucket string
		o      peer.ListOptions
	}{
		{"c", o},
		{"b", peer.ListOptions{Prefix: "p", Delimiter: "/", Token: o.Token}},
		{"b", peer.ListOptions{Prefix: "p/", Token: o.Token}},
		{"b", peer.ListOptions{Prefix: "p/", Delimiter: "/", Token: "p/last/"}},
		{"b", peer.ListOptions{Prefix: "p/", Delimiter: "/", Token: o.Token[:6]}},
		{"b", peer.ListOptions{Prefix: "p/", Delimiter: "/", Token: "!"}},
	} {
		if _, err := readListToken(c.bucket, c.o); !errs.IsCode(err, errs.InvalidArgument) {
			t.Errorf("%s %+v: %v", c.bucket, c.o, err)
		}
	}
}
