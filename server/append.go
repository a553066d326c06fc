package server

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// append coordinates an APPEND at the owner: what is there and what comes are written as a
// new object, on the condition that what is there is still the same at the commit. So it
// costs what a PUT of the whole costs, and readers see the object before or after. Appends
// to one name come one after the other.
func (n *Node) append(ctx context.Context, w *write, body io.Reader) (store.Info, error) {
	unlock, err := n.appends.lock(ctx, w.bucket, w.object)
	if err != nil {
		return store.Info{}, err
	}
	defer unlock()
	s, err := n.search(w.bucket, w.object, false)
	if err != nil {
		return store.Info{}, err
	}
	whole := &write{bucket: w.bucket, object: w.object, size: -1, attrs: w.attrs, append: true}
	have, old, err := s.stream(ctx)
	switch {
	case errs.IsCode(err, errs.NotFound):
		if w.cond.Version != 0 {
			return store.Info{}, err
		}
		old = io.NopCloser(strings.NewReader(""))
		whole.cond.Absent = true
	case err != nil:
		return store.Info{}, err
	default:
		if err := s.r.check(w.cond, answers{{VersionInfo: peer.VersionInfo{Version: have.Version}}}); err != nil {
			_ = old.Close() // a pipe
			return store.Info{}, err
		}
		whole.cond.Version = have.Version
	}
	defer old.Close()
	if w.attrs == nil {
		whole.attrs = have.Attrs
	}
	if w.size >= 0 {
		whole.size = have.Size + w.size
	}
	info, err := n.write(ctx, whole, io.MultiReader(old, &summed{r: body, want: w.sum}))
	if code := errs.CodeOf(err); code == errs.AlreadyExists || code == errs.NotFound {
		// The caller asked for neither: somebody was faster.
		err = s.r.fail(errs.VersionMismatch, "another write came first", "")
	}
	return info, err
}

// summed compares the checksum of what is read through it.
type summed struct {
	r    io.Reader
	want *uint64
	hash xxh3.Hasher
}

func (s *summed) Read(p []byte) (int, error) {
	k, err := s.r.Read(p)
	if s.want == nil {
		return k, err
	}
	_, _ = s.hash.Write(p[:k])
	if sum := s.hash.Sum64(); err == io.EOF && sum != *s.want {
		err = errs.New(errs.ChecksumMismatch, "append", fmt.Sprintf("the bytes have the checksum %016x, announced was %016x", sum, *s.want))
	}
	return k, err
}
