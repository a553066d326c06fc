package server

import (
	"context"
	"time"

	"sheaf/internal/backend"
	"sheaf/internal/errs"
	"sheaf/peer"
)

// measured counts a call and its time by its outcome.
func (n *Node) measured(op string, h peer.HandlerFunc) peer.HandlerFunc {
	return func(ctx context.Context, c *peer.ServerCall) error {
		start := time.Now()
		err := n.ready(ctx)
		if err == nil {
			err = h(ctx, c)
		}
		if err != nil && ctx.Err() != nil {
			err = errs.Wrap(errs.Canceled, op, err) // the caller went away: whatever failed, that is why
		}
		if wait := backend.RetryAfter(err); wait > 0 {
			c.End.Retry = uint64(wait.Milliseconds())
		}
		n.metrics.called(op, start, err)
		if code := errs.CodeOf(err); code == errs.Internal || code == errs.ChecksumMismatch || code == errs.NoSpace {
			n.log.Error("call failed", "op", op, "from", c.Name, "err", err)
		}
		return err
	}
}
