package fusefs

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/errs"
)

// Options say where and how to mount. Mountpoint and CacheDir are required.
type Options struct {
	Mountpoint string // an existing folder
	CacheDir   string // batch payloads lie below it; made when missing
	// FsName is shown by df and mount; default "sheaf".
	FsName string
	// AllowOther lets other users in; the kernel then checks permissions.
	AllowOther bool

	// How long the kernel may trust attributes, names, and the absence of a name.
	// 0: 1 s, 1 s, and not at all; negative: not at all.
	AttrTimeout, EntryTimeout, NegativeTimeout time.Duration

	BatchTTL   time.Duration // of a batch that names none, after its end and last use; default 10 min
	MaxBatches int           // batches held at a time; default 256

	Version    string                // shown in .sheaf/version
	Logger     *slog.Logger          // default: silence
	Registerer prometheus.Registerer // gets the mount's metrics; nil: only .sheaf/stats shows them
	Debug      bool                  // log every request of the kernel
}

// maxTTL keeps a manifest from holding disk for longer than a day.
const maxTTL = 24 * time.Hour

func (o Options) withDefaults() Options {
	if o.FsName == "" {
		o.FsName = "sheaf"
	}
	o.AttrTimeout = timeout(o.AttrTimeout, time.Second)
	o.EntryTimeout = timeout(o.EntryTimeout, time.Second)
	o.NegativeTimeout = timeout(o.NegativeTimeout, 0)
	if o.BatchTTL == 0 {
		o.BatchTTL = 10 * time.Minute
	}
	if o.MaxBatches == 0 {
		o.MaxBatches = 256
	}
	if o.Version == "" {
		o.Version = "unknown"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

func timeout(d, def time.Duration) time.Duration {
	switch {
	case d == 0:
		return def
	case d < 0:
		return 0
	}
	return d
}

// Validate lists everything that is wrong with the options.
func (o Options) Validate() error {
	var faults []string
	addf := func(format string, a ...any) { faults = append(faults, fmt.Sprintf(format, a...)) }
	if o.Mountpoint == "" {
		addf("no mountpoint")
	}
	if o.CacheDir == "" {
		addf("no cache folder")
	}
	if o.Mountpoint != "" && o.CacheDir != "" {
		m, c := resolve(o.Mountpoint), resolve(o.CacheDir)
		switch {
		case within(c, m):
			addf("the cache folder %s lies in the mountpoint %s", c, m)
		case within(m, c):
			addf("the mountpoint %s lies in the cache folder %s", m, c)
		}
	}
	if strings.ContainsAny(o.FsName, ",\n\x00") {
		addf("name %q: no comma, newline or NUL allowed", o.FsName)
	}
	if o.BatchTTL < 0 || o.BatchTTL > maxTTL {
		addf("time to live of batches %v: want 0 to %v", o.BatchTTL, maxTTL)
	}
	if o.MaxBatches < 0 {
		addf("%d batches: want 0 or more", o.MaxBatches)
	}
	if len(faults) > 0 {
		return errs.New(errs.InvalidArgument, "mount", strings.Join(faults, "; "))
	}
	return nil
}

// resolve makes a path absolute and free of links as far as it exists, without a
// look at its last component: that may be a dead mount, where every look fails.
func resolve(p string) string {
	abs, err := filepath.Abs(p)
	if err != nil {
		return filepath.Clean(p)
	}
	for range 40 { // the kernel's own limit on links
		dir, base := filepath.Split(abs)
		if base == "" {
			return abs
		}
		abs = filepath.Join(resolveDir(filepath.Clean(dir)), base)
		to, err := os.Readlink(abs)
		if err != nil {
			return abs
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(abs), to)
		}
		abs = filepath.Clean(to)
	}
	return abs
}

func resolveDir(dir string) string {
	rest := ""
	for d := dir; ; {
		if r, err := filepath.EvalSymlinks(d); err == nil {
			return filepath.Join(r, rest)
		}
		parent := filepath.Dir(d)
		if parent == d {
			return dir
		}
		rest = filepath.Join(filepath.Base(d), rest)
		d = parent
	}
}

// within tells whether p is dir or lies below it; both are clean and absolute.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}
