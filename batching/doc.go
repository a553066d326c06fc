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
//   - without the trailer nothing is complete.
//
// The package knows nothing of disks: it asks a Source for bytes.
package batching

import (
	"context"
	"io"
)

// Source gives the bytes of entries that this node holds. Its errors are *errs.Error
// and say by their code whether they are soft (errs.Code.Soft).
type Source interface {
	// Open finds an entry and resolves its range. The payload must be closed.
	Open(ctx context.Context, e *Entry) (Payload, error)
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
}

// Close gives back what the payload holds.
func (p *Payload) Close() {
	if p.Closer != nil {
		_ = p.Closer.Close() // read-only: nothing is lost
	}
}
