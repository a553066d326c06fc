package server_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/server"
)

// A reader notices nothing of a holder that goes away while it reads: the rest comes
// from another copy. Nor does one that comes afterwards.
func TestReadersSurviveAHolder(t *testing.T) {
	t.Parallel()
	c := testcluster.Start(t, testcluster.Options{Adjust: func(_ int, o *server.Options) { o.DrainTimeout = time.Millisecond }})
	must(t, c.Peer.CreateBucket(bounded(t), "b", peer.BucketProps{Copies: 2}))
	name := ownedBy(c, 1, "b", "o", "")
	data := noise(1, 12<<20) // many times the windows: the first holder can't have sent all of it
	c.Put(t, "b", name, data)

	whole, body, err := c.Peer.Get(bounded(t), "b", name, peer.GetOptions{})
	must(t, err)
	defer body.Close()
	_, part, err := c.Peer.Get(bounded(t), "b", name, peer.GetOptions{Start: 1 << 20, Length: 10 << 20})
	must(t, err)
	defer part.Close()
	var got, gotPart bytes.Buffer
	_, err = io.CopyN(&got, body, 1<<20)
	must(t, err)
	_, err = io.CopyN(&gotPart, part, 100)
	must(t, err)
	must(t, c.Nodes[1].Close())
	_, err = io.Copy(&got, body)
	must(t, err)
	_, err = io.Copy(&gotPart, part)
	must(t, err)
	if !bytes.Equal(got.Bytes(), data) || !bytes.Equal(gotPart.Bytes(), data[1<<20:11<<20]) {
		t.Errorf("%d of %d and %d of %d bytes, or others", got.Len(), len(data), gotPart.Len(), 10<<20)
	}
	info, err := c.Peer.Head(bounded(t), "b", name)
	if err != nil || info.Version != whole.Version {
		t.Errorf("%+v %v", info, err)
	}
	if _, err := c.Peer.Buckets(bounded(t)); err != nil {
		t.Error(err)
	}
}
