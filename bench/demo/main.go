// Command demo shows Sheaf at work on files of this machine, and checks what it shows:
//
//	sources.go ──▶ load.go ──▶ compare.go            ──▶ mixed.go
//	real files     sheaf put   one by one, one batch     objects, members, ranges
//
// It runs `sheaf up` as a process of its own and uses it as anybody would: by commands
// and through the mount. Invariants: every byte that comes back is compared with the
// file it came from; what was started, mounted or written is gone at the end, also
// after a failure or Ctrl-C; exit status 0 means that every check passed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sheaf/bench/run"
)

// longest is how long the whole may take before it is stopped as hanging.
const longest = 5 * time.Minute

func main() {
	binary := flag.String("sheaf", "bin/sheaf", "the `program` to show")
	dir := flag.String("dir", "", "`folder` for temporary data (default: the system's)")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, longest)
	err := show(ctx, *binary, *dir)
	if ctx.Err() != nil {
		err = errors.Join(fmt.Errorf("stopped: %w", context.Cause(ctx)), err)
	}
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is one run.
type demo struct {
	home  *run.Home
	mount run.Mount
	src   *sources
}

func show(ctx context.Context, binary, dir string) (err error) {
	h, err := run.NewHome(binary, dir)
	if err != nil {
		return err
	}
	clean := func() error {
		if err := h.Close(); err != nil {
			return fmt.Errorf("cleaning up: %w", err)
		}
		return nil
	}
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, clean())
		}
	}()
	d := &demo{home: h}
	if err := d.start(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{d.load, d.look, d.compare, d.mixed} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	closed = true
	if err := clean(); err != nil {
		return err
	}
	fmt.Println("\nStopped; nothing is mounted and no file is left. Every check passed.")
	hints(binary)
	return nil
}

// start runs the cluster with its mount.
func (d *demo) start(ctx context.Context) error {
	mnt, err := d.home.MakeDir("mnt")
	if err != nil {
		return err
	}
	began := time.Now()
	s, err := d.home.Start(ctx, "up", "--nodes", "3", "--mount", mnt, "--dir", d.home.Path("data"), "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	d.mount = run.Mount{Path: mnt}
	fmt.Printf("A cluster of 3 nodes at %s, mounted after %v at MNT = %s\n", s.Endpoint(), round(time.Since(began)), mnt)
	return nil
}

// look opens the first view: what ls shows.
func (d *demo) look(context.Context) error {
	fmt.Println("\nThe mount, as ls shows it:")
	for _, p := range []string{"", "files", "shards", "shards/" + shardName(0) + "@"} {
		f, err := run.Open(filepath.Join(d.mount.Path, p), syscall.O_RDONLY|syscall.O_DIRECTORY)
		if err != nil {
			return err
		}
		names, err := f.Readdirnames(-1)
		f.Close()
		if err != nil {
			return err
		}
		fmt.Printf("  %-22s %s\n", "MNT/"+p, few(names, 4))
	}
	return nil
}

// few lists the first names and how many follow.
func few(names []string, n int) string {
	more := ""
	if len(names) > n {
		names, more = names[:n], fmt.Sprintf(" … (%d)", len(names))
	}
	return strings.Join(names, "  ") + more
}

func hints(binary string) {
	fmt.Printf(`Try it on your own files, the first line in another terminal:
  mkdir -p /tmp/mnt && %[1]s up --nodes 3 --mount /tmp/mnt
  %[1]s bucket create b && %[1]s put -r DIR b && ls /tmp/mnt/b
  printf 'b/FILE\nb/FILE\n\n' > /tmp/mnt/.sheaf/control && cat /tmp/mnt/.sheaf/batch/b1/status
  printf 'b/FILE\nb/FILE\n' | %[1]s batch - | tar tvf -
`, binary)
}

// round keeps three figures or so of a duration.
func round(d time.Duration) time.Duration {
	switch {
	case d > 10*time.Second:
		return d.Round(100 * time.Millisecond)
	case d > time.Second:
		return d.Round(10 * time.Millisecond)
	case d > 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Microsecond)
}
