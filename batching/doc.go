// Package batching is GetBatch, both ends: one request names N samples scattered
// over the cluster, one ordered stream brings them back.
//
//	           GetBatch                 Send: one sender's share
//	Client ───────────────▶ Node (DT) ───────────────────────────▶ Node (sender) ─▶ Source
//	  ▲   ◀── ordered ──── merge i=0…n−1 ◀══ ascending i ══════════ reads, checksums
//	  │        entries      │    ◀══ ascending i ═════════════════ Node (sender) ─▶ Source
//	Stream                  └──▶ Source (what the DT owns itself)
//
// The Designated Target (DT) plans which node delivers which entries, opens one
// stream to each, and walks the request in order, reading each entry from the stream
// of its owner: a k-way merge. It never holds entries back in a buffer of its own:
// QUIC flow control holds the senders that are ahead, so its memory is senders ×
// window whatever the size of the batch. The model is the GetBatch paper's
// (section 2.3); the merge replaces its reassembly buffer.
//
// Invariants:
//   - entries come back in request order, each exactly once, as payload or as error;
//   - a payload is checked against the checksum that its sender made, by whoever uses it;
//   - one goroutine owns a batch at the DT from its first byte to its trailer;
//     cancelling the client's call cancels every sender's;
//   - without the trailer nothing is complete;
//   - a sender that is lost costs nothing that another node can give: what it still
//     owed is planned anew, and an entry that was cut goes on where it stopped;
//   - a sender that waits for a store beyond the cluster isn't lost: it gives signs of life.
//
// The package knows nothing of disks: it asks a Source for bytes.
package batching

import (
	"context"
	"io"
)

// Source gives the bytes of entries: those that this node holds, and where it can those
// that another one does (GFN, get from neighbor). Its errors are *errs.Error and say by
// their code whether they are soft (errs.Code.Soft). NotFound means that the entry is
// nowhere; what may lie on a node that can't be asked is Unavailable.
type Source interface {
	// Open finds an entry and resolves its range. The payload must be closed.
	Open(ctx context.Context, e *Entry) (Payload, error)
}

// Preparer is a Source that can do better when it knows beforehand what it will be asked.
type Preparer interface {
	Source
	// Prepare gives the Source of one share of a batch, which is asked for the entries in
	// their order. What it starts in the background ends with ctx.
	Prepare(ctx context.Context, share []Entry) Source
}

// prepare is src for one share.
func prepare(ctx context.Context, src Source, share []Entry) Source {
	if p, ok := src.(Preparer); ok {
		return p.Prepare(ctx, share)
	}
	return src
}

// Payload is an open entry: Size bytes of R from Off on.
type Payload struct {
	R       io.ReaderAt
	Off     int64 // bytes
	Size    int64 // bytes
	Version uint64
	Sum     uint64 // xxh3-64 that the payload must have, when Summed
	Summed  bool
	Closer  io.Closer
	// Again, when set, is told that the bytes are bad, and gives the entry from somewhere
	// else, or an error when there is nowhere else.
	Again func(ctx context.Context, cause error) (Payload, error)
}

// Close gives back what the payload holds.
func (p *Payload) Close() {
	if p.Closer != nil {
		_ = p.Closer.Close() // read-only: nothing is lost
	}
}
