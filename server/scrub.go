package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer"
)

const (
	scrubPage = 256              // records taken together
	scrubSave = 10 * time.Second // how often the place in the round is saved
	scrubRest = 10 * time.Second // after a round that failed
)

// scrubber reads every object on this node's disks, round after round, and compares it
// with its checksum. A bad copy is given to the repairs, which replace it from another
// node. One goroutine owns it.
type scrubber struct {
	n     *Node
	log   *slog.Logger
	bytes *throttle
	every time.Duration // from the start of a round to that of the next

	mu     sync.Mutex
	status peer.TaskStatus // guarded by mu: of the round under way, or the last
}

func newScrubber(n *Node) *scrubber {
	return &scrubber{n: n, log: n.log, bytes: newThrottle(n.o.ScrubBytes, 512<<10), every: n.o.ScrubEvery}
}

// run is the scrubber's goroutine; it ends with ctx.
func (s *scrubber) run(ctx context.Context) {
	if s.n.ready(ctx) != nil {
		return
	}
	for ctx.Err() == nil {
		last := s.n.progress.get()
		began, from := last.Round, last.Scrub
		if from.zero() {
			if !pause(ctx, time.Until(began.Add(s.every))) {
				return
			}
			began = time.Now()
			s.save(began, cursor{})
		}
		s.set(func(t *peer.TaskStatus) { *t = peer.TaskStatus{Active: true, Started: began, Finished: t.Finished} })
		err := s.round(ctx, began, from)
		s.set(func(t *peer.TaskStatus) {
			t.Active = false
			if err == nil {
				t.Finished = time.Now()
			}
		})
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.log.Warn("scrub: the round failed and goes on later", "err", err)
			pause(ctx, scrubRest)
			continue
		}
		s.save(began, cursor{})
		s.n.metrics.scrubRounds.Inc()
	}
}

// pause waits, and tells whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *scrubber) save(round time.Time, at cursor) {
	s.n.progress.set(func(p *savedProgress) { p.Round, p.Scrub = round, at })
}

func (s *scrubber) set(f func(*peer.TaskStatus)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.status)
}

func (s *scrubber) get() peer.TaskStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// round reads all objects after from.
func (s *scrubber) round(ctx context.Context, began time.Time, from cursor) error {
	saved := time.Now()
	for _, b := range s.n.state.Load().sortedBuckets(false) {
		if b.Name < from.Bucket {
			continue
		}
		after := ""
		if b.Name == from.Bucket {
			after = from.Name
		}
		for {
			recs, err := s.n.store.Records(ctx, b.Name, after, scrubPage)
			if errs.IsCode(err, errs.BucketNotFound) {
				break
			}
			if err != nil {
				return err
			}
			for _, r := range recs {
				if !r.Deleted {
					if err := s.object(ctx, b.Name, r.Name); err != nil {
						return err
					}
				}
				after = r.Name
				if time.Since(saved) > scrubSave {
					s.save(began, cursor{b.Name, after})
					saved = time.Now()
				}
			}
			if len(recs) < scrubPage {
				break
			}
		}
	}
	return ctx.Err()
}

// object reads one object. Its error is one that ends the round.
func (s *scrubber) object(ctx context.Context, bucket, name string) error {
	info, err := s.n.store.Verify(ctx, bucket, name, s.bytes.take)
	bad := errs.IsCode(err, errs.ChecksumMismatch)
	switch {
	case bad:
		s.n.metrics.scrubCorrupt.Inc()
		s.log.Error("scrub: a copy is damaged", "bucket", bucket, "object", name, "err", err)
		s.n.copyIsBad(bucket, name)
	case err == nil:
		s.n.reconciler.repairs.sound(passName{bucket, name})
	case ctx.Err() != nil:
		return ctx.Err()
	case errs.IsCode(err, errs.NotFound), errs.IsCode(err, errs.BucketNotFound), errs.IsCode(err, errs.Unavailable):
		return nil // deleted since, or its disk is away
	default:
		s.log.Warn("scrub: an object can't be read", "bucket", bucket, "object", name, "err", err)
	}
	s.n.metrics.scrubObjects.Inc()
	s.n.metrics.scrubBytes.Add(float64(info.Size))
	s.set(func(t *peer.TaskStatus) {
		t.Objects++
		t.Bytes += uint64(info.Size)
		if err != nil {
			t.Failed++
		}
	})
	return nil
}
