package backend

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Options are what a node allows, and how long it is patient.
type Options struct {
	// Roots are the folders that file:// backends must lie in; empty refuses them all.
	Roots []string
	// AnyFolder lets a file:// backend be any folder of this machine.
	AnyFolder bool

	Attempts   int           // tries of one request, the first included; default 4
	MaxBackoff time.Duration // longest wait between two tries, default 5 s; each is a random part of what is due
	Idle       time.Duration // longest wait for a connection on which no byte moves, default 30 s
}

func (o Options) withDefaults() Options {
	if o.Attempts == 0 {
		o.Attempts = 4
	}
	if o.MaxBackoff == 0 {
		o.MaxBackoff = 5 * time.Second
	}
	if o.Idle == 0 {
		o.Idle = 30 * time.Second
	}
	return o
}

// Validate lists every fault at once.
func (o Options) Validate() error {
	var faults []error
	for _, r := range o.Roots {
		if !filepath.IsAbs(r) {
			faults = append(faults, fmt.Errorf("backend root %q isn't an absolute path", r))
		}
	}
	if o.Attempts < 0 || o.MaxBackoff < 0 || o.Idle < 0 {
		faults = append(faults, errors.New("a backend's attempts, backoff or idle time is negative"))
	}
	return errors.Join(faults...)
}
