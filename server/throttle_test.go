package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

// counted is a limiter that counts.
type counted struct{ took []int }

func (c *counted) WaitN(ctx context.Context, n int) error {
	c.took = append(c.took, n)
	return ctx.Err()
}

func TestThrottle(t *testing.T) {
	var c counted
	th := &throttle{bucket: &c, burst: 100}
	if err := th.take(t.Context(), 250); err != nil || !slices.Equal(c.took, []int{100, 100, 50}) {
		t.Errorf("250 units were taken as %v, %v: no more than a burst may be asked for at once", c.took, err)
	}
	c.took = nil
	r := &throttled{t.Context(), strings.NewReader(strings.Repeat("x", 777)), th}
	sum := 0
	for b := make([]byte, 64); ; {
		n, err := r.Read(b)
		if sum += n; err != nil {
			break
		}
	}
	took := 0
	for _, k := range c.took {
		took += k
	}
	if sum != 777 || took != sum {
		t.Errorf("%d bytes were read for %d units", sum, took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for what, th := range map[string]*throttle{"a throttle": th, "none": newThrottle(-1, 1)} {
		if err := th.take(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%s when canceled: %v", what, err)
		}
	}
	if th := newThrottle(10, 4096); th.burst != 4096 {
		t.Errorf("a burst of %d: what is taken at once must fit", th.burst)
	}
}
