package store

import (
	"bytes"
	"os"
	"testing"

	"sheaf/internal/errs"
)

func TestIndex(t *testing.T) {
	s := newStore(t, 2)
	_, err := s.ReadIndex("b", "s.tar")
	wantCode(t, err, errs.NotFound)
	wantCode(t, s.WriteIndex("b", "s.tar", []byte("i")), errs.NotFound)
	_, err = s.ReadIndex("nope", "s.tar")
	wantCode(t, err, errs.BucketNotFound)
	wantCode(t, s.WriteIndex("nope", "s.tar", nil), errs.BucketNotFound)

	put(t, s, "s.tar", "shard")
	put(t, s, "s.tar/x", "another")
	for _, blob := range [][]byte{{}, []byte("one"), bytes.Repeat([]byte("two"), 100_000)} {
		must(t, s.WriteIndex("b", "s.tar", blob))
		got, err := s.ReadIndex("b", "s.tar")
		if err != nil || !bytes.Equal(got, blob) {
			t.Errorf("%d bytes come back as %d, %v", len(blob), len(got), err)
		}
	}
	_, err = s.ReadIndex("b", "s.tar/x")
	wantCode(t, err, errs.NotFound)
	must(t, s.WriteIndex("b", "s.tar/x", []byte("x")))

	path := s.buckets["b"].ranked("s.tar")[0].index("s.tar")
	must(t, os.Truncate(path, MaxIndex+1)) // sparse
	_, err = s.ReadIndex("b", "s.tar")
	wantCode(t, err, errs.TooLarge)

	put(t, s, "s.tar", "newer")
	_, err = s.ReadIndex("b", "s.tar")
	wantCode(t, err, errs.NotFound)
	del(t, s, "s.tar")
	del(t, s, "s.tar/x")
	_, err = s.ReadIndex("b", "s.tar/x")
	wantCode(t, err, errs.NotFound)
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
	wantNoWork(t, s)
}
