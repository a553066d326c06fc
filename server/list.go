package server

import (
	"context"
	"fmt"

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
	rec, ok := n.state.Load().bucket(req.Bucket)
	if !ok {
		return &errs.Error{Code: errs.BucketNotFound, Bucket: req.Bucket}
	}
	var page *peer.ListPage
	var err error
	if req.Forwarded {
		page, err = n.listHere(ctx, req.Bucket, req.Options)
	} else if rec.Backend != "" {
		page, err = n.listRemote(ctx, rec, req.Options)
	} else {
		page, err = n.list(ctx, req.Bucket, req.Options)
	}
	if err != nil {
		return err
	}
	return peer.WritePage(c.W, page)
}

// listHere lists what lies on this node. The page's Token is the StartAfter of the next.
func (n *Node) listHere(ctx context.Context, bucket string, o peer.ListOptions) (*peer.ListPage, error) {
	p, err := n.store.List(ctx, bucket, store.ListOptions{Prefix: o.Prefix, Delimiter: o.Delimiter,
		StartAfter: o.StartAfter, Limit: listLimit(o.Limit), Deleted: o.Tombstones})
	if err != nil {
		return nil, err
	}
	out := &peer.ListPage{Prefixes: p.Prefixes, DeletedPrefixes: p.DeletedPrefixes, Token: p.Token}
	if len(p.Objects) > 0 {
		out.Objects = make([]peer.ObjectInfo, len(p.Objects))
		for i, o := range p.Objects {
			out.Objects[i] = objectInfo(o)
		}
	}
	for _, r := range p.Deleted {
		out.Deleted = append(out.Deleted, peer.ObjectInfo{Name: r.Name, Version: r.Version, ModTime: r.ModTime})
	}
	return out, nil
}

func listLimit(limit int) int {
	if limit <= 0 || limit > peer.MaxListPage {
		return peer.MaxListPage
	}
	return limit
}

// list gives a page of what all nodes hold. Every object of the bucket that is live is in
// it once, with its newest record; if that can't be said, because a node that may alone
// hold an object doesn't answer, it fails and names the node.
func (n *Node) list(ctx context.Context, bucket string, o peer.ListOptions) (*peer.ListPage, error) {
	st := n.state.Load()
	b, ok := st.bucket(bucket)
	if !ok {
		return nil, &errs.Error{Code: errs.BucketNotFound, Op: "list", Bucket: bucket}
	}
	after, err := readListToken(bucket, o)
	if err != nil {
		return nil, err
	}
	nodes, spare, err := listNodes(st.Map, max(b.Copies, 1))
	if err != nil {
		return nil, err
	}
	// As long as objects are on their way, a node may have an old copy of what another
	// knows to be deleted.
	settled := n.settled()
	if !settled {
		spare = 0
	}
	o.Limit, o.StartAfter, o.Tombstones = listLimit(o.Limit), max(o.StartAfter, after), !settled
	o.Token = ""
	l := &lister{opts: o, nodes: len(nodes), chunk: listChunk(o, len(nodes), max(b.Copies, 1)), spare: spare,
		ask: func(ctx context.Context, i int, o peer.ListOptions) (*peer.ListPage, error) {
			var p *peer.ListPage
			var err error
			if nodes[i].Name == n.Name() {
				p, err = n.listHere(ctx, bucket, o)
			} else {
				p, err = n.calls.ListAt(ctx, nodes[i].Addr, bucket, o)
			}
			if err == nil {
				return p, nil
			}
			e := errs.Flatten(err)
			if e.Node == "" || errs.CodeOf(err) == errs.Unavailable {
				e.Node = nodes[i].Name
			}
			return nil, e
		}}
	page, err := l.page(ctx)
	if err != nil {
		return nil, err
	}
	if page.Token != "" {
		page.Token = listToken(bucket, o, page.Token)
	}
	return page, nil
}

// listNodes gives the nodes to ask, and how many of them may fail to answer: with several
// copies of each object a node may be missing as long as others have all it has.
func listNodes(m *peer.Map, copies int) (nodes []peer.Node, spare int, err error) {
	spare = copies - 1
	for _, node := range m.Nodes {
		switch {
		case node.State.Readable():
			nodes = append(nodes, node)
		case node.State == peer.Down:
			if spare--; spare < 0 {
				return nil, 0, &errs.Error{Code: errs.Unavailable, Op: "list", Node: node.Name,
					Msg: fmt.Sprintf("node %s is down, and may alone hold some of the objects", node.Name)}
			}
		}
	}
	return nodes, spare, nil
}

// listChunk is how many lines each node is first asked for: its share of the page and a
// quarter, so that one round is mostly enough; but a folded prefix may be on every node.
// All answers together stay within a bound, however many nodes there are.
func listChunk(o peer.ListOptions, nodes, copies int) int {
	share := o.Limit
	if o.Delimiter == "" {
		share = o.Limit*min(copies, nodes)/max(nodes, 1)*5/4 + 64
	}
	return max(min(share, o.Limit, 2*peer.MaxListPage/max(nodes, 1)), 1)
}
