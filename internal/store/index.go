package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sheaf/internal/errs"
)

// MaxIndex is the longest index in bytes.
const MaxIndex = 1 << 30

// The index of a shard is an opaque blob that can be made again from the shard. It lies
// under the hash of the shard's name on the shard's first mountpath. A Put over the shard
// and a Delete remove it; since a writer may have made it from the version before, the
// blob must itself say which version it belongs to.

func (br *branch) index(name string) string {
	return br.content(contentIndex) + "/" + hashedName(name)
}

// ReadIndex gives the index of a shard, NotFound when it has none.
func (s *Store) ReadIndex(bucket, name string) ([]byte, error) {
	const op = "read index"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return nil, fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	for _, br := range b.ranked(name) {
		blob, err := readFile(br.index(name), MaxIndex)
		if err = br.mount.watch(err); !errors.Is(err, os.ErrNotExist) && !isDown(err) {
			return blob, fail(op, bucket, name, err)
		}
	}
	return nil, fail(op, bucket, name, errs.New(errs.NotFound, "", "no index"))
}

// readFile reads a whole file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() > limit {
		return nil, errs.New(errs.TooLarge, "", fmt.Sprintf("%d bytes, the limit is %d", st.Size(), limit))
	}
	blob := make([]byte, st.Size())
	_, err = io.ReadFull(f, blob)
	return blob, err
}

// WriteIndex keeps an index beside a shard, NotFound when there is no such shard.
func (s *Store) WriteIndex(bucket, name string, blob []byte) error {
	const op = "write index"
	b, err := s.begin(bucket, &name)
	if err != nil {
		return fail(op, bucket, name, err)
	}
	defer s.calls.Done()
	if len(blob) > MaxIndex {
		return fail(op, bucket, name, errs.New(errs.TooLarge, "", fmt.Sprintf("%d bytes, the limit is %d", len(blob), MaxIndex)))
	}
	return fail(op, bucket, name, b.writeIndex(name, blob))
}

func (b *bucket) writeIndex(name string, blob []byte) error {
	home, err := b.home(name)
	if err != nil {
		return err
	}
	w, err := b.newWork(home)
	if err != nil {
		return err
	}
	defer w.discard()
	if _, err := w.f.Write(blob); err != nil {
		return diskFault(home.mount.watch(err))
	}
	if err := b.s.disk.sync(w.f); err != nil {
		return diskFault(home.mount.watch(err))
	}
	st := b.s.stripe(b.name, name)
	st.Lock()
	defer st.Unlock()
	b.life.RLock()
	defer b.life.RUnlock()
	if err := b.alive(); err != nil {
		return err
	}
	if k, err := b.copies(name); err != nil {
		return err
	} else if len(k.at) == 0 {
		return errs.New(errs.NotFound, "", "")
	}
	// The name isn't synced: an index lost in a power cut is made again.
	if err := w.current(); err != nil {
		return err
	}
	to := home.index(name)
	if err := os.Mkdir(filepath.Dir(to), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return diskFault(home.mount.watch(err))
	}
	if err := os.Rename(w.path, to); err != nil {
		return diskFault(home.mount.watch(err))
	}
	w.path = ""
	return nil
}

// dropIndex removes an object's index. The caller holds the stripe.
func (b *bucket) dropIndex(name string) {
	for _, br := range b.branches {
		if !br.mount.enabled() {
			continue
		}
		if err := br.mount.watch(os.Remove(br.index(name))); err != nil && !errors.Is(err, os.ErrNotExist) {
			b.s.log.Warn("an index can't be removed", "bucket", b.name, "object", name, "err", err)
		}
	}
}
