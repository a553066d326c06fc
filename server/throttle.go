package server

import (
	"context"

	"golang.org/x/time/rate"
)

// throttle holds background work back to so many units a second. nil lets everything pass.
type throttle struct {
	bucket limiter
	burst  int
}

// limiter is the part of rate.Limiter that a throttle uses.
type limiter interface {
	WaitN(ctx context.Context, n int) error
}

var _ limiter = (*rate.Limiter)(nil)

// newThrottle makes one of perSecond units; below 0 it is none. A burst is at most a
// quarter of a second's worth, and at least least units.
func newThrottle(perSecond int64, least int) *throttle {
	if perSecond < 0 {
		return nil
	}
	burst := int(max(min(perSecond/4, 1<<30), int64(least)))
	return &throttle{bucket: rate.NewLimiter(rate.Limit(perSecond), burst), burst: burst}
}

// take waits until n units may be used.
func (t *throttle) take(ctx context.Context, n int) error {
	if t == nil {
		return ctx.Err()
	}
	for n > 0 {
		k := min(n, t.burst)
		if err := t.bucket.WaitN(ctx, k); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		n -= k
	}
	return ctx.Err()
}
