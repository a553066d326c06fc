package server

import (
	"context"
	"fmt"
	"io"

	"sheaf/batching"
	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// openNeighbor opens an entry as another node has it on its disks. The bytes come as they
// are read: what is under way is a stream's window.
func (n *Node) openNeighbor(ctx context.Context, addr string, e *batching.Entry) (peer.ObjectInfo, batching.Payload, error) {
	b := &neighborBody{e: e}
	b.open = func(start, length int64) (peer.ObjectInfo, io.ReadCloser, error) {
		return n.calls.GetAt(ctx, addr, &peer.ObjectRequest{Kind: wire.TGet, Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath,
			Start: start, Length: length, Forwarded: true})
	}
	var err error
	if b.info, b.body, err = b.open(e.Start, e.Length); err != nil {
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	if b.off, b.size, err = e.Range(b.info.Size); err != nil {
		_ = b.Close()
		return peer.ObjectInfo{}, batching.Payload{}, err
	}
	whole := e.ArchPath == "" && b.size == b.info.Size
	return b.info, batching.Payload{R: b, Size: b.size, Version: b.info.Version, Sum: b.info.Checksum, Summed: whole, Closer: b}, nil
}

// neighborBody is an entry's payload on its way from another node. It is read in order;
// where a reader jumps, the rest is asked for anew.
type neighborBody struct {
	e         *batching.Entry
	open      func(start, length int64) (peer.ObjectInfo, io.ReadCloser, error)
	info      peer.ObjectInfo
	body      io.ReadCloser
	off, size int64 // of the payload in the object or member
	pos       int64 // of body
}

var _ io.ReaderAt = (*neighborBody)(nil)

// ReadAt implements io.ReaderAt. It isn't for concurrent use.
func (b *neighborBody) ReadAt(p []byte, off int64) (int, error) {
	if off >= b.size {
		if len(p) == 0 && off == b.size {
			return 0, b.ended()
		}
		return 0, io.EOF
	}
	if off != b.pos {
		_ = b.body.Close()
		info, body, err := b.open(b.off+off, b.size-off)
		if err != nil {
			return 0, err
		}
		if b.body, b.pos = body, off; info.Version != b.info.Version {
			return 0, &errs.Error{Code: errs.VersionMismatch, Op: "read", Bucket: b.e.Bucket, Object: b.e.ObjName, Member: b.e.ArchPath, Msg: "the object was replaced while it was read"}
		}
	}
	short := int64(len(p)) > b.size-off
	if short {
		p = p[:b.size-off]
	}
	k, err := io.ReadFull(b.body, p)
	b.pos += int64(k)
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return k, errs.New(errs.Protocol, "read", fmt.Sprintf("the neighbour sent %d of %d bytes", b.pos, b.size))
	case err != nil:
		return k, err
	case b.pos == b.size:
		if err := b.ended(); err != nil {
			return 0, err
		}
	}
	if short {
		return k, io.EOF
	}
	return k, nil
}

// ended takes the end of the stream, which says whether the bytes are those that were sent
// and those that the sender's disk should hold.
func (b *neighborBody) ended() error {
	var more [1]byte
	k, err := b.body.Read(more[:])
	switch {
	case k > 0:
		return errs.New(errs.Protocol, "read", "the neighbour sent more than the entry has")
	case err == io.EOF:
		return nil
	}
	return err
}

// Close ends the stream.
func (b *neighborBody) Close() error { return b.body.Close() }
