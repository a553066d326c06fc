package server

import (
	"context"
	"slices"
	"strings"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/internal/store"
	"sheaf/peer"
)

func (n *Node) serveList(ctx context.Context, c *peer.ServerCall) error {
	var req peer.ListRequest
	if err := c.R.Decode(&req); err != nil {
		return err
	}
	if err := names.CheckBucket(req.Bucket); err != nil {
		return err
	}
	if err := c.Allow(req.Bucket, peer.Reader); err != nil {
		return err
	}
	if err := names.CheckPrefix(req.Options.Prefix); err != nil {
		return err
	}
	if d := req.Options.Delimiter; d != "" && d != "/" {
		return errs.New(errs.InvalidArgument, "list", "the delimiter is \"/\" or none")
	}
	if err := n.needBucket(req.Bucket); err != nil {
		return err
	}
	var page *peer.ListPage
	var err error
	if req.Forwarded {
		page, err = n.listHere(ctx, req.Bucket, req.Options)
	} else {
		page, err = n.list(ctx, req.Bucket, req.Options)
	}
	if err != nil {
		return err
	}
	return peer.WritePage(c.W, page)
}

// listHere lists what lies on this node.
func (n *Node) listHere(ctx context.Context, bucket string, o peer.ListOptions) (*peer.ListPage, error) {
	if o.Limit <= 0 || o.Limit > peer.MaxListPage {
		o.Limit = peer.MaxListPage
	}
	p, err := n.store.List(ctx, bucket, store.ListOptions{Prefix: o.Prefix, Delimiter: o.Delimiter, StartAfter: o.StartAfter, Limit: o.Limit})
	if err != nil {
		return nil, err
	}
	out := &peer.ListPage{Prefixes: p.Prefixes, Token: p.Token}
	if len(p.Objects) > 0 {
		out.Objects = make([]peer.ObjectInfo, len(p.Objects))
		for i, o := range p.Objects {
			out.Objects[i] = objectInfo(o)
		}
	}
	return out, nil
}

// list asks all nodes for a page each, at once, and merges them. A node that doesn't
// answer fails the listing: a part of the names would look like all of them.
func (n *Node) list(ctx context.Context, bucket string, o peer.ListOptions) (*peer.ListPage, error) {
	nodes := slices.DeleteFunc(slices.Clone(n.Map().Nodes), func(o peer.Node) bool { return o.State == peer.Left })
	pages := make([]*peer.ListPage, len(nodes))
	errors := make([]error, len(nodes))
	done := make(chan struct{})
	for i, node := range nodes {
		go func() { // ends with its page, which ctx bounds; the loop below waits for all
			defer func() { done <- struct{}{} }()
			if node.Name == n.Name() {
				pages[i], errors[i] = n.listHere(ctx, bucket, o)
			} else {
				pages[i], errors[i] = n.calls.ListAt(ctx, node.Addr, bucket, o)
			}
		}()
	}
	for range nodes {
		<-done
	}
	for i, err := range errors {
		if err != nil {
			e := errs.Flatten(err)
			if e.Node == "" || errs.CodeOf(err) == errs.Unavailable {
				e.Node = nodes[i].Name
			}
			return nil, e
		}
	}
	return mergePages(pages, o.Limit), nil
}

// mergePages merges sorted pages into one of at most limit names: a pure function.
// A page that isn't its node's last speaks only for names up to its Token, so the
// merged page ends at the lowest of those.
func mergePages(pages []*peer.ListPage, limit int) *peer.ListPage {
	if limit <= 0 || limit > peer.MaxListPage {
		limit = peer.MaxListPage
	}
	type row struct {
		name   string
		object *peer.ObjectInfo // nil for a prefix
	}
	var rows []row
	bound, more := "", false
	for _, p := range pages {
		for i := range p.Objects {
			rows = append(rows, row{p.Objects[i].Name, &p.Objects[i]})
		}
		for _, s := range p.Prefixes {
			rows = append(rows, row{s, nil})
		}
		if p.Token != "" && (!more || p.Token < bound) {
			bound, more = p.Token, true
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.name, b.name) })
	out := &peer.ListPage{}
	last := ""
	for i, r := range rows {
		if more && r.name > bound {
			break
		}
		if i > 0 && r.name == rows[i-1].name && (r.object == nil) == (rows[i-1].object == nil) {
			// The same name from two nodes: of an object the newest version counts.
			if r.object != nil && r.object.Version > out.Objects[len(out.Objects)-1].Version {
				out.Objects[len(out.Objects)-1] = *r.object
			}
			continue
		}
		if len(out.Objects)+len(out.Prefixes) == limit {
			more, bound = true, last
			break
		}
		last = r.name
		if r.object != nil {
			out.Objects = append(out.Objects, *r.object)
		} else {
			out.Prefixes = append(out.Prefixes, r.name)
		}
	}
	if more {
		out.Token = bound
	}
	return out
}
