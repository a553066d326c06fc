package server_test

import (
	"bytes"
	"net/http"
	"sync"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/peer"
	"sheaf/server"
)

// A node that waits for the backend tells the batch's DT so, and isn't taken for lost.
func TestRemoteBatchWaits(t *testing.T) {
	c, s := remoteClusterWith(t, 2, peer.BucketProps{}, func(o *server.Options) { o.SenderTimeout = 4 * time.Second })
	data := noise(1, 100_000)
	s.Put(t, "data", "cold", data)
	m := c.Peer.Map()
	id := "w"
	for m.Owner(peer.HashKey(id)) == m.Owner(peer.HashObject("r", "cold")) {
		id += "w"
	}
	open := make(chan struct{})
	let := sync.OnceFunc(func() { close(open) })
	t.Cleanup(let)
	s.Intercept(func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodGet {
			select {
			case <-open:
			case <-r.Context().Done():
			}
		}
		next.ServeHTTP(w, r)
	})
	st, err := c.Batch.GetBatch(t.Context(), &batching.Request{ID: id, In: []batching.Entry{{Bucket: "r", ObjName: "cold"}}})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	waitFor(t, "a sign of life", func() bool { return total(t, c, "sheaf_getbatch_alive_total") > 0 })
	let()
	it, err := st.Next()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := it.Bytes(); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if n := total(t, c, "sheaf_getbatch_senders_lost_total"); n != 0 {
		t.Errorf("%v senders were given up", n)
	}
}
