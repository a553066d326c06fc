package batching

import (
	"bytes"
	"io"
)

// Item is one entry of a batch as it comes back. It is valid until the next
// call of Stream.Next; a payload that wasn't read is skipped then.
type Item struct {
	Index   int    // position in Request.In
	Entry   *Entry // the entry asked for
	Size    int64  // bytes of payload; 0 for a placeholder
	Version uint64 // of the object it was read from
	// Err is set on a placeholder: why the entry isn't here (an *errs.Error). Such
	// items only come when the request continues on error.
	Err error

	body io.WriterTo
	sum  uint64
}

// NewItem makes an item whose payload body writes out; sum is its xxh3-64. For
// sources other than a cluster: caches and tests.
func NewItem(index int, e *Entry, size int64, sum uint64, body io.WriterTo) *Item {
	return &Item{Index: index, Entry: e, Size: size, sum: sum, body: body}
}

// WriteTo writes the payload to w, chunk by chunk and without a copy of its own,
// and checks it against the sender's checksum. An error of w is returned as it is;
// one of the batch is an *errs.Error.
func (it *Item) WriteTo(w io.Writer) (int64, error) {
	if it.Err != nil {
		return 0, it.Err
	}
	if it.body == nil {
		return 0, nil
	}
	b := it.body
	it.body = nil
	return b.WriteTo(w)
}

// Bytes reads the whole payload into new memory.
func (it *Item) Bytes() ([]byte, error) {
	var buf bytes.Buffer
	if it.Err == nil && it.Size > 0 {
		buf.Grow(int(min(it.Size, 16<<20))) // beyond that the announced size must prove itself
	}
	_, err := it.WriteTo(&buf)
	return buf.Bytes(), err
}

// Sum is the xxh3-64 of the payload; known once it was written out.
func (it *Item) Sum() uint64 { return it.sum }
