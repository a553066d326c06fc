package batching

import (
	"fmt"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// writeEntries writes an opening message and the entries in frames of bounded size.
func writeEntries(w *wire.Writer, msg *batchMessage, in []Entry, index []uint32) error {
	if len(in) > 0 {
		msg.Bucket = in[0].Bucket
	}
	if err := w.Frame(msg, nil); err != nil {
		return err
	}
	for k := 0; k < len(in); {
		from, bytes := k, 0
		for k < len(in) && k-from < entriesPerFrame && bytes < entryBytes {
			bytes += len(in[k].ObjName) + len(in[k].ArchPath)
			k++
		}
		part := entriesMessage{Bucket: msg.Bucket, Entries: in[from:k]}
		if index != nil {
			part.Indexed, part.Index = true, index[from:k]
		}
		if err := w.Frame(&part, nil); err != nil {
			return err
		}
	}
	return nil
}

// readEntries reads what writeEntries wrote after its opening message.
func readEntries(r *wire.Reader, msg *batchMessage) (in []Entry, index []uint32, err error) {
	if msg.N == 0 || msg.N > MaxEntries {
		return nil, nil, errs.New(errs.TooManyEntries, "batch", fmt.Sprintf("%d entries, want 1 to %d", msg.N, MaxEntries))
	}
	for uint64(len(in)) < msg.N {
		var part entriesMessage
		if _, err := r.Expect(&part); err != nil {
			return nil, nil, errs.Wrap(errs.Protocol, "batch", err)
		}
		if len(part.Entries) == 0 || uint64(len(in)+len(part.Entries)) > msg.N {
			return nil, nil, errs.New(errs.Protocol, "batch", fmt.Sprintf("%d entries announced, %d came", msg.N, len(in)+len(part.Entries)))
		}
		in = append(in, part.Entries...)
		index = append(index, part.Index...)
	}
	for i := range in {
		if in[i].Bucket == "" {
			in[i].Bucket = msg.Bucket
		}
	}
	return in, index, nil
}
