package server_test

import (
	"fmt"
	"io"
	"testing"
	"time"

	"sheaf/internal/backend"
	"sheaf/internal/backend/s3test"
	"sheaf/internal/testcluster"
	"sheaf/peer"
)

// BenchmarkColdGet reads objects that aren't kept through a node, and the same objects
// from the S3 server itself; the ratio of the two is what the cluster costs.
func BenchmarkColdGet(b *testing.B) {
	s := s3test.Start(b, "data")
	c := testcluster.Start(b, testcluster.Options{Nodes: 1})
	if err := c.Peer.CreateBucket(b.Context(), "r", peer.BucketProps{Backend: s.BackendURL("data"), Durability: peer.Relaxed}); err != nil {
		b.Fatal(err)
	}
	direct, err := backend.Open(b.Context(), s.BackendURL("data"), backend.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = direct.Close() })
	for _, size := range []int{100 << 10, 64 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s.Put(b, "data", "o", noise(1, size))
			b.SetBytes(int64(size))
			var cold, own time.Duration
			for b.Loop() {
				// What is kept goes, or it would be a warm GET.
				if err := c.Peer.Evict(b.Context(), "r", "o"); err != nil {
					b.Fatal(err)
				}
				begin := time.Now()
				r, err := direct.Get(b.Context(), "o", 0, -1, "")
				if err == nil {
					_, err = io.Copy(io.Discard, r)
					_ = r.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
				own += time.Since(begin)
				begin = time.Now()
				_, body, err := c.Peer.Get(b.Context(), "r", "o", peer.GetOptions{})
				if err == nil {
					_, err = io.Copy(io.Discard, body)
					_ = body.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
				cold += time.Since(begin)
				waitFor(b, "the copy", func() bool { // it is kept a moment after it was served
					info, err := c.Peer.Head(b.Context(), "r", "o")
					return err == nil && info.Checksum != 0
				})
			}
			mb := float64(size) * float64(b.N) / 1e6
			b.ReportMetric(mb/own.Seconds(), "s3-MB/s")
			b.ReportMetric(mb/cold.Seconds(), "cold-MB/s")
			b.ReportMetric(own.Seconds()/cold.Seconds(), "of-s3")
		})
	}
}
