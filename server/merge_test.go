package server

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sheaf/peer"
)

// pageOf is what a node that holds these objects, sorted by name, answers: a model of
// the store's listing, with a page size of the node's own.
func pageOf(objects []peer.ObjectInfo, o peer.ListOptions, size int) *peer.ListPage {
	page := &peer.ListPage{}
	last := ""
	for _, obj := range objects {
		key, folded := obj.Name, false
		if !strings.HasPrefix(key, o.Prefix) {
			continue
		}
		if o.Delimiter != "" {
			if i := strings.Index(key[len(o.Prefix):], o.Delimiter); i >= 0 {
				key, folded = key[:len(o.Prefix)+i+1], true
			}
		}
		if key <= o.StartAfter || folded && key == last {
			continue
		}
		if len(page.Objects)+len(page.Prefixes) == size {
			page.Token = last
			return page
		}
		if last = key; folded {
			page.Prefixes = append(page.Prefixes, key)
		} else {
			page.Objects = append(page.Objects, obj)
		}
	}
	return page
}

func randomName(r *rand.Rand) string {
	var parts []string
	for range 1 + r.IntN(3) {
		parts = append(parts, []string{"a", "b", "a-b", "a0", "ab", "é", "a.", "z"}[r.IntN(8)])
	}
	return strings.Join(parts, "/") + fmt.Sprint(r.IntN(20))
}

// However names are spread over nodes and cut into pages, paging through the merged
// listing gives each of them once, in order, and of an object the newest version.
func TestMergePagesGivesEachNameOnce(t *testing.T) {
	for seed := range uint64(400) {
		r := rand.New(rand.NewPCG(seed, 7))
		nodes := make([]map[string]peer.ObjectInfo, 1+r.IntN(5))
		for i := range nodes {
			nodes[i] = map[string]peer.ObjectInfo{}
		}
		newest := map[string]peer.ObjectInfo{}
		for range r.IntN(200) {
			name := randomName(r)
			for range 1 + r.IntN(2) { // now and then on two nodes
				o := peer.ObjectInfo{Name: name, Version: r.Uint64N(1000), Size: r.Int64N(9)}
				i := r.IntN(len(nodes))
				if have, ok := nodes[i][name]; ok {
					o = have
				}
				nodes[i][name] = o
			}
		}
		held := make([][]peer.ObjectInfo, len(nodes))
		for i, m := range nodes {
			for name, o := range m {
				held[i] = append(held[i], o)
				if have, ok := newest[name]; !ok || o.Version > have.Version {
					newest[name] = o
				}
			}
			slices.SortFunc(held[i], func(a, b peer.ObjectInfo) int { return cmp.Compare(a.Name, b.Name) })
		}
		var all []peer.ObjectInfo
		for _, o := range newest {
			all = append(all, o)
		}
		slices.SortFunc(all, func(a, b peer.ObjectInfo) int { return cmp.Compare(a.Name, b.Name) })

		o := peer.ListOptions{Prefix: []string{"", "a", "a/", "b/a", "none"}[r.IntN(5)]}
		if r.IntN(2) == 0 {
			o.Delimiter = "/"
		}
		want := pageOf(all, o, len(all)+1)
		limit := r.IntN(12) // 0: as many as there are
		got := &peer.ListPage{}
		for pages := 0; ; pages++ {
			if pages > 2*len(all)+2 {
				t.Fatalf("seed %d: the listing doesn't end", seed)
			}
			parts := make([]*peer.ListPage, len(held))
			for i := range held {
				size := 1 + r.IntN(20)
				if limit > 0 {
					size = min(size, limit)
				}
				parts[i] = pageOf(held[i], o, size)
			}
			page := mergePages(parts, limit)
			if n := len(page.Objects) + len(page.Prefixes); limit > 0 && n > limit {
				t.Fatalf("seed %d: a page of %d names, the limit is %d", seed, n, limit)
			}
			got.Objects = append(got.Objects, page.Objects...)
			got.Prefixes = append(got.Prefixes, page.Prefixes...)
			if page.Token == "" {
				break
			}
			if page.Token <= o.StartAfter {
				t.Fatalf("seed %d: after %q comes the token %q", seed, o.StartAfter, page.Token)
			}
			o.StartAfter = page.Token
		}
		// Two nodes may hold one version of an object with different sizes only in this
		// model: versions are compared, not the rest.
		same := slices.EqualFunc(got.Objects, want.Objects, func(a, b peer.ObjectInfo) bool { return a.Name == b.Name && a.Version == b.Version })
		if !same || !slices.Equal(got.Prefixes, want.Prefixes) {
			t.Fatalf("seed %d, limit %d, %+v:\ngot  %v %q\nwant %v %q", seed, limit, o, got.Objects, got.Prefixes, want.Objects, want.Prefixes)
		}
	}
}

func TestMergePagesEdges(t *testing.T) {
	obj := func(name string, version uint64) peer.ObjectInfo {
		return peer.ObjectInfo{Name: name, Version: version}
	}
	for _, c := range []struct {
		name  string
		pages []*peer.ListPage
		limit int
		want  string
	}{
		{"nothing", []*peer.ListPage{{}, {}}, 0, "[] [] "},
		{"newest of three", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("a", 2)}}, {Objects: []peer.ObjectInfo{obj("a", 3)}}, {Objects: []peer.ObjectInfo{obj("a", 1)}}}, 0, "[a/3] [] "},
		{"one prefix of all", []*peer.ListPage{{Prefixes: []string{"a/"}}, {Prefixes: []string{"a/"}}}, 0, "[] [a/] "},
		{"the limit", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("b", 1)}}, {Objects: []peer.ObjectInfo{obj("a", 1)}}}, 1, "[a/1] [] a"},
		{"exactly the limit", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("b", 1)}}, {Objects: []peer.ObjectInfo{obj("a", 1)}}}, 2, "[a/1 b/1] [] "},
		{"the limit, then a duplicate", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("a", 1)}}, {Objects: []peer.ObjectInfo{obj("a", 2)}}}, 1, "[a/2] [] "},
		{"a node that gave only a part", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("a", 1), obj("x", 1)}}, {Objects: []peer.ObjectInfo{obj("c", 1)}, Token: "c"}}, 0, "[a/1 c/1] [] c"},
		{"two parts", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("d", 1)}, Token: "d"}, {Objects: []peer.ObjectInfo{obj("c", 1)}, Token: "c"}}, 0, "[c/1] [] c"},
		{"a limit beyond what may be", []*peer.ListPage{{Objects: []peer.ObjectInfo{obj("a", 1)}}}, 1 << 30, "[a/1] [] "},
	} {
		p := mergePages(c.pages, c.limit)
		objects := make([]string, len(p.Objects))
		for i, o := range p.Objects {
			objects[i] = fmt.Sprintf("%s/%d", o.Name, o.Version)
		}
		if got := fmt.Sprint(objects, p.Prefixes, " ", p.Token); strings.Join(strings.Fields(got), " ") != strings.TrimSpace(c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
