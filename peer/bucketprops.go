package peer

import (
	"fmt"
	"strings"

	"sheaf/internal/errs"
)

// How a PUT is made durable before it is acknowledged.
const (
	Sync    = "sync"    // on disk, synced
	Relaxed = "relaxed" // with the operating system; a power cut may take the last writes
)

// MaxCopies is the most copies a bucket may ask for.
const MaxCopies = 64

// maxBackend bounds a backend's URL.
const maxBackend = 2048

// BucketProps are what is set of a bucket.
type BucketProps struct {
	Copies     int    `json:"copies"`             // nodes that hold each object; 0 stands for 1
	Durability string `json:"durability"`         // Sync or Relaxed; "" stands for Sync
	Backend    string `json:"backend,omitempty"`  // URL of the store behind the bucket; "" for none
	Validate   bool   `json:"validate,omitempty"` // a GET of what is kept asks the backend whether it is still current
}

// WithDefaults fills in what was left out.
func (p BucketProps) WithDefaults() BucketProps {
	if p.Copies == 0 {
		p.Copies = 1
	}
	if p.Durability == "" {
		p.Durability = Sync
	}
	return p
}

// Check lists every fault of properties that are whole.
func (p BucketProps) Check() error {
	var faults []string
	if p.Copies < 1 || p.Copies > MaxCopies {
		faults = append(faults, fmt.Sprintf("copies is %d: want 1 to %d", p.Copies, MaxCopies))
	}
	if p.Durability != Sync && p.Durability != Relaxed {
		faults = append(faults, fmt.Sprintf("durability is %q: want %s or %s", p.Durability, Sync, Relaxed))
	}
	if len(p.Backend) > maxBackend {
		faults = append(faults, fmt.Sprintf("backend is a URL of %d bytes: the limit is %d", len(p.Backend), maxBackend))
	}
	if p.Backend != "" && p.Copies > 1 {
		faults = append(faults, "a bucket with a backend keeps one copy: the backend has the object")
	}
	if p.Validate && p.Backend == "" {
		faults = append(faults, "validate needs a backend")
	}
	if len(faults) == 0 {
		return nil
	}
	return errs.New(errs.InvalidArgument, "bucket properties", strings.Join(faults, "; "))
}

// BucketChange says what is to change of a bucket's properties; nil leaves one as it is.
type BucketChange struct {
	Copies     *int
	Durability *string
	Backend    *string
	Validate   *bool
}

// Apply gives the properties with the change made.
func (ch BucketChange) Apply(p BucketProps) BucketProps {
	if ch.Copies != nil {
		p.Copies = *ch.Copies
	}
	if ch.Durability != nil {
		p.Durability = *ch.Durability
	}
	if ch.Backend != nil {
		p.Backend = *ch.Backend
	}
	if ch.Validate != nil {
		p.Validate = *ch.Validate
	}
	return p
}
