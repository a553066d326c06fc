package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sheaf/batching"
	"sheaf/bench/run"
	"sheaf/internal/errs"
	"sheaf/peer"
)

// client speaks to a cluster over QUIC from a socket of its own.
type client struct {
	*peer.Client
	batch *batching.Client
}

// connect makes a client. Close must follow.
func connect(ctx context.Context, certs, endpoint string) (*client, error) {
	id, err := peer.LoadIdentity(certs, peer.ClientName)
	if err != nil {
		return nil, err
	}
	e, err := peer.NewEndpoint(peer.EndpointOptions{Identity: id})
	if err != nil {
		return nil, err
	}
	p, err := peer.NewClient(ctx, e, endpoint)
	if err != nil {
		_ = e.Close()
		return nil, err
	}
	return &client{Client: p, batch: batching.NewClient(p)}, nil
}

// Close ends the client's connections.
func (c *client) Close() { _ = c.Endpoint().Close() }

// putAll stores n objects, eight at a time, making the bucket when it isn't there.
func (c *client) putAll(ctx context.Context, bucket string, n int, object func(i int) (name string, data []byte)) error {
	if err := c.CreateBucket(ctx, bucket, peer.BucketProps{}); err != nil && !errs.IsCode(err, errs.AlreadyExists) {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { // ends when all are stored or one failed
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				name, data := object(i)
				if _, err := c.Put(ctx, bucket, name, bytes.NewReader(data), peer.PutOptions{Size: int64(len(data))}); err != nil {
					fail(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// fetch reads a batch to its end into w, checking that want bytes come. The client
// checks every entry's checksum.
func (c *client) fetch(ctx context.Context, req *batching.Request, want int64, w io.Writer) (t run.Timing, err error) {
	start := time.Now()
	s, err := c.batch.GetBatch(ctx, req)
	if err != nil {
		return t, err
	}
	defer s.Close()
	for it, err := range s.Items() {
		if err != nil {
			return t, err
		}
		if _, err := it.WriteTo(w); err != nil {
			return t, err
		}
		if it.Index == 0 {
			t.First = time.Since(start)
		}
	}
	t.Last = time.Since(start)
	if got := s.Totals(); got.Bytes != want || got.Failed != 0 {
		return t, fmt.Errorf("a batch of %d bytes and %d failed entries, want %d bytes", got.Bytes, got.Failed, want)
	}
	return t, nil
}

// content makes the bytes of object i: like nothing else and the same on every run.
func content(i, size int) []byte {
	src := rand.NewChaCha8([32]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(size), byte(size >> 8), byte(size >> 16)})
	b := make([]byte, size)
	_, _ = src.Read(b) // never fails
	return b
}
