package server

import (
	"context"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// source is the cluster as a batch's source of bytes: what lies on this node's disks is
// read there, what doesn't is found at a neighbour.
type source struct{ n *Node }

var _ batching.Preparer = (*source)(nil)

// sourceFunc is one function as a source.
type sourceFunc func(ctx context.Context, e *batching.Entry) (batching.Payload, error)

// Open implements batching.Source.
func (f sourceFunc) Open(ctx context.Context, e *batching.Entry) (batching.Payload, error) {
	return f(ctx, e)
}

// Open implements batching.Source.
func (s *source) Open(ctx context.Context, e *batching.Entry) (batching.Payload, error) {
	return s.open(ctx, e, nil)
}

func (s *source) open(ctx context.Context, e *batching.Entry, h *hint) (batching.Payload, error) {
	if err := s.n.ready(ctx); err != nil {
		return batching.Payload{}, err
	}
	search, err := s.n.search(e.Bucket, e.ObjName, false)
	if err != nil {
		return batching.Payload{}, err
	}
	// Whoever is asked for an entry that it doesn't own is asked because the owner is silent:
	// its own copy costs no wait for that.
	search.near = true
	if h != nil && h.m == search.r.m {
		search.hint = h.answers
	}
	return search.open(ctx, e, nil)
}

// openEntry opens an object, member or range that lies here. The info describes the
// whole object or member.
func (n *Node) openEntry(ctx context.Context, e *batching.Entry) (peer.ObjectInfo, batching.Payload, error) {
	if e.ArchPath != "" {
		return n.openMember(ctx, e)
	}
	obj, err := n.store.Open(e.Bucket, e.ObjName)
	if err != nil {
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	info := obj.Info()
	off, size, err := e.Range(info.Size)
	if err != nil {
		_ = obj.Close()
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	return objectInfo(info), batching.Payload{R: obj, Off: off, Size: size, Version: info.Version,
		Sum: info.Checksum, Summed: size == info.Size, Closer: obj}, nil
}

func (n *Node) openMember(ctx context.Context, e *batching.Entry) (peer.ObjectInfo, batching.Payload, error) {
	obj, x, err := n.shards.open(ctx, e.Bucket, e.ObjName)
	if err != nil {
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	m, ok := x.Lookup(e.ArchPath)
	if !ok {
		_ = obj.Close()
		return peer.ObjectInfo{}, batching.Payload{}, &errs.Error{Code: errs.NotFound, Op: "open member", Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath}
	}
	off, size, err := e.Range(m.Size)
	if err != nil {
		_ = obj.Close()
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	info := store.Info{Name: m.Name, Size: m.Size, Version: obj.Info().Version, ModTime: m.ModTime}
	return objectInfo(info), batching.Payload{R: obj, Off: m.Offset + off, Size: size, Version: info.Version, Closer: obj}, nil
}
