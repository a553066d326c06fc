package server_test

import (
	"fmt"
	"slices"
	"testing"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
)

// A token is a position: it goes on at any node, after all of them were started anew, and
// when names before it have come and gone meanwhile.
func TestListTokenSurvivesRestarts(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	c.Bucket(t, "b")
	var want []string
	for i := range 60 {
		name := fmt.Sprintf("d%d/o%03d", i%2, i)
		c.Put(t, "b", name, []byte("x"))
		want = append(want, name)
	}
	slices.Sort(want)
	o := peer.ListOptions{Limit: 25}
	first, err := c.Peer.List(bounded(t), "b", o)
	must(t, err)
	folded, err := c.Peer.List(bounded(t), "b", peer.ListOptions{Limit: 1, Delimiter: "/"})
	must(t, err)

	for _, n := range c.Nodes {
		must(t, n.Close())
	}
	for i := range c.Nodes {
		n := testcluster.Restart(t, c, i, c.Nodes[i].Addr())
		defer n.Close()
	}
	var got []string
	waitFor(t, "the cluster to be back", func() bool {
		_, err := c.Peer.List(bounded(t), "b", o)
		return err == nil
	})
	must(t, c.Peer.Delete(bounded(t), "b", want[3]))
	c.Put(t, "b", "d0/a", []byte("before"))
	for _, info := range first.Objects {
		got = append(got, info.Name)
	}
	for o.Token = first.Token; o.Token != ""; {
		page, err := c.Peer.List(bounded(t), "b", o)
		must(t, err)
		for _, info := range page.Objects {
			got = append(got, info.Name)
		}
		o.Token = page.Token
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	rest, err := c.Peer.List(bounded(t), "b", peer.ListOptions{Limit: 1, Delimiter: "/", Token: folded.Token})
	if err != nil || !slices.Equal(folded.Prefixes, []string{"d0/"}) || !slices.Equal(rest.Prefixes, []string{"d1/"}) || rest.Token != "" {
		t.Errorf("folded: %q, then %q, token %q, %v", folded.Prefixes, rest.Prefixes, rest.Token, err)
	}
	_, err = c.Peer.List(bounded(t), "b", peer.ListOptions{Delimiter: "/", Token: first.Token})
	fails(t, "a token of another listing", err, errs.InvalidArgument, "another bucket, prefix or delimiter")
}

// Each object is listed once, however many nodes hold it; and a node's own listing tells
// what was deleted when it is asked for that.
func TestListCopies(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{})
	must(t, c.Peer.CreateBucket(bounded(t), "b", peer.BucketProps{Copies: 2}))
	for i := range 30 {
		c.Put(t, "b", fmt.Sprintf("%d/o%02d", i%3, i), []byte("x"))
	}
	for i := 0; i < 30; i += 3 {
		must(t, c.Peer.Delete(bounded(t), "b", fmt.Sprintf("0/o%02d", i)))
	}
	objects, _, _ := listAll(t, c.Peer, "b", peer.ListOptions{Limit: 7})
	if len(objects) != 20 || !slices.IsSorted(objects) || len(slices.Compact(objects)) != 20 {
		t.Errorf("listed: %q", objects)
	}
	if _, prefixes, _ := listAll(t, c.Peer, "b", peer.ListOptions{Delimiter: "/"}); !slices.Equal(prefixes, []string{"1/", "2/"}) {
		t.Errorf("prefixes: %q", prefixes)
	}
	live, dead := 0, 0
	for _, n := range c.Nodes {
		page, err := c.Peer.ListAt(bounded(t), n.Addr(), "b", peer.ListOptions{Tombstones: true})
		must(t, err)
		live, dead = live+len(page.Objects), dead+len(page.Deleted)
		page, err = c.Peer.ListAt(bounded(t), n.Addr(), "b", peer.ListOptions{Tombstones: true, Delimiter: "/"})
		must(t, err)
		if slices.Contains(page.Prefixes, "0/") || len(page.Deleted) > 0 {
			t.Errorf("folded: %+v", page)
		}
	}
	if live != 40 || dead != 20 {
		t.Errorf("the nodes hold %d objects and %d tombstones", live, dead)
	}
}
