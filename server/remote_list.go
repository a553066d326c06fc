package server

import (
	"context"

	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// listRemote gives a page of a remote bucket. The names are the backend's; of an object
// whose copy is kept and current the cluster's description is given, which has a checksum.
// A page has 1 000 names at most, S3's own limit; its token is where it ends, as everywhere.
func (n *Node) listRemote(ctx context.Context, rec bucketRecord, o peer.ListOptions) (*peer.ListPage, error) {
	rem, err := n.remotes.of(rec)
	if err != nil {
		return nil, err
	}
	after, err := readListToken(rec.Name, o)
	if err != nil {
		return nil, err
	}
	after = max(o.StartAfter, after)
	page, err := rem.b.List(ctx, backend.ListOptions{Prefix: o.Prefix, Delimiter: o.Delimiter, After: after, Limit: o.Limit})
	if err != nil {
		return nil, &errs.Error{Code: errs.CodeOf(err), Op: "list", Bucket: rec.Name, Err: err}
	}
	kept := map[string]*peer.ObjectInfo{}
	if len(page.Objects) > 0 {
		kept = n.keptNames(ctx, rec.Name, o, after, page.Objects[len(page.Objects)-1].Name)
	}
	out := &peer.ListPage{Prefixes: page.Prefixes, Objects: make([]peer.ObjectInfo, len(page.Objects))}
	if page.Next != "" {
		o.Token = ""
		out.Token = listToken(rec.Name, o, page.Next)
	}
	for i, obj := range page.Objects {
		if k := kept[obj.Name]; k != nil && k.Attrs[attrBackend] == obj.Version {
			out.Objects[i] = *k
		} else {
			out.Objects[i] = described(obj, store.Record{})
		}
	}
	return out, nil
}

// keptNames lists what all nodes keep of the names after one up to last. It is a help, not
// the truth: where a node doesn't answer, its copies are described by the backend.
func (n *Node) keptNames(ctx context.Context, bucket string, o peer.ListOptions, after, last string) map[string]*peer.ObjectInfo {
	kept := map[string]*peer.ObjectInfo{}
	o.StartAfter, o.Token, o.Limit = after, "", backend.MaxPage
	for {
		page, err := n.list(ctx, bucket, o)
		if err != nil {
			n.log.Debug("the copies of a remote bucket can't be listed", "bucket", bucket, "err", err)
			return kept
		}
		end := ""
		for i := range page.Objects {
			end = page.Objects[i].Name
			kept[end] = &page.Objects[i]
		}
		if page.Token == "" || end >= last {
			return kept
		}
		o.Token = page.Token
	}
}
