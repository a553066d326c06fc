package backend

import (
	"errors"
	"time"
)

// throttled is the cause inside an error that the backend itself asked to try again
// later, or that is likely to pass.
type throttled struct{ after time.Duration }

func (t *throttled) Error() string { return "try again after " + t.after.String() }

// RetryAfter tells how long to wait before trying again what failed with err; 0 when
// the backend said nothing of the kind.
func RetryAfter(err error) time.Duration {
	var t *throttled
	if errors.As(err, &t) {
		return t.after
	}
	return 0
}
