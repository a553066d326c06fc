package server

import (
	"context"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// source is a node's own disks as a batch's source of bytes.
type source struct{ n *Node }

var _ batching.Source = (*source)(nil)

// Open implements batching.Source.
func (s *source) Open(ctx context.Context, e *batching.Entry) (batching.Payload, error) {
	if err := s.n.ready(ctx); err != nil {
		return batching.Payload{}, err
	}
	if err := s.n.needBucket(e.Bucket); err != nil {
		return batching.Payload{}, err
	}
	_, p, err := s.n.openEntry(ctx, e)
	return p, err
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
