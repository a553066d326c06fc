package store

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"
)

// maxDir bounds the path of a mountpath in bytes, so that with the longest bucket
// and object path it stays under PATH_MAX.
const maxDir = 1024

// Options says where a Store keeps its objects.
type Options struct {
	Dirs   []string         // the mountpaths; made when missing
	Logger *slog.Logger     // default: nothing is logged
	Now    func() time.Time // default: time.Now; versions come from it

	// OnMountpathFault is told when a mountpath was disabled because its disk fails. It is
	// called by a goroutine of its own, which Close waits for.
	OnMountpathFault func(dir string, err error)
}

// withDefaults fills what was left out.
func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Validate lists every fault that can be seen without touching the disk.
func (o Options) Validate() error {
	var faults []error
	bad := func(format string, a ...any) { faults = append(faults, fmt.Errorf(format, a...)) }
	if len(o.Dirs) == 0 {
		bad("no folder is given")
	}
	abs := make([]string, len(o.Dirs))
	for i, d := range o.Dirs {
		if d == "" {
			bad("folder %d: the path is empty", i)
			continue
		}
		var err error
		if abs[i], err = filepath.Abs(d); err != nil {
			bad("folder %q: %w", d, err)
			continue
		}
		if len(abs[i]) > maxDir {
			bad("folder %q: the path has %d bytes, the limit is %d", d, len(abs[i]), maxDir)
		}
	}
	return errors.Join(append(faults, overlaps(abs)...)...)
}

// overlaps names each pair of folders of which one is, or lies in, the other.
func overlaps(dirs []string) (faults []error) {
	for i, a := range dirs {
		for j, b := range dirs {
			switch {
			case a == "" || b == "" || i == j:
			case a == b:
				if i < j {
					faults = append(faults, fmt.Errorf("folder %q is given twice", a))
				}
			case strings.HasPrefix(b, strings.TrimSuffix(a, "/")+"/"):
				faults = append(faults, fmt.Errorf("folder %q lies in folder %q", b, a))
			}
		}
	}
	return faults
}
