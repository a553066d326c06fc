package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/batching"
	"sheaf/fusefs"
	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/server"
)

func (p *program) mountCommand() *cli.Command {
	return &cli.Command{
		Name: "mount", Usage: "show the cluster as a file tree",
		ArgsUsage: "[ENDPOINT] MOUNTPOINT",
		Description: `Returns when the mount works, leaving a process behind that serves it and logs to
$SHEAF_HOME/log/mount-<mountpoint>.log. 'sheaf umount', SIGTERM to that process, or
umount(8) ends it. With --foreground it stays, prints "ready MOUNTPOINT", tells systemd
and logs to stderr. What a killed mount left behind is removed first.

-o takes options with commas between, as mount(8) does: allow_other, cache_dir=DIR,
certs=DIR, and what only matters to others (ro, rw, defaults, noatime, …). The mount is
read-only.`,
		Flags: withClient(append([]cli.Flag{
			&cli.BoolFlag{Name: "foreground", Usage: "stay and serve"},
			&cli.BoolFlag{Name: "allow-other", Usage: "let other users in"},
			&cli.BoolFlag{Name: "read-only", Usage: "as every mount of this version is"},
			&cli.StringFlag{Name: "cache-dir", Usage: "`DIR` of batch payloads (default $SHEAF_HOME/cache)"},
			&cli.StringSliceFlag{Name: "o", Usage: "`OPTS` as mount(8) takes them"},
			&cli.IntFlag{Name: readyFlag, Hidden: true},
		}, logFlags("info")...)...),
		Action: func(c *cli.Context) error {
			o, err := mountOptionsOf(c)
			switch {
			case err != nil:
				return err
			case !o.Foreground:
				return p.mountDaemon(c.Context, o)
			}
			return p.mountHere(c.Context, o)
		},
	}
}

// mountOptions say what is mounted, where and how.
type mountOptions struct {
	Client     clientOptions
	Mountpoint string
	AllowOther bool
	CacheDir   string // "" for the one in home
	Logger     *slog.Logger

	Foreground bool
	ReadyFD    int // 0, or where mountDaemon waits to hear of the mount
	Log        logOptions
}

func mountOptionsOf(c *cli.Context) (o mountOptions, err error) {
	a, err := positional(c, 1, 2, "[ENDPOINT] MOUNTPOINT")
	if err != nil {
		return o, err
	}
	o = mountOptions{
		Client: clientOptionsOf(c), AllowOther: c.Bool("allow-other"), CacheDir: c.String("cache-dir"),
		Foreground: c.Bool("foreground"), ReadyFD: c.Int(readyFlag), Log: logOptionsOf(c),
	}
	if len(a) == 2 {
		o.Client.Endpoint = a[0]
	}
	for _, opts := range c.StringSlice("o") {
		for opt := range strings.SplitSeq(opts, ",") {
			if !o.apply(opt) {
				return o, usagef(c, "unknown mount option %q", opt)
			}
		}
	}
	if o.Mountpoint, err = filepath.Abs(a[len(a)-1]); err != nil {
		return o, err
	}
	if o.CacheDir, err = inHome(o.CacheDir, "cache"); err != nil {
		return o, err
	}
	o.Client, err = o.Client.resolve()
	return o, err
}

// apply takes one option of -o, telling whether it is one.
func (o *mountOptions) apply(opt string) bool {
	switch name, value, _ := strings.Cut(opt, "="); name {
	case "allow_other":
		o.AllowOther = true
	case "cache_dir":
		o.CacheDir = value
	case "certs":
		o.Client.Certs = value
	case "", "ro", "rw", "defaults", "nosuid", "nodev", "noatime", "relatime", "noauto", "nofail", "user", "users", "_netdev":
	default:
		return strings.HasPrefix(name, "x-") // comments for others, fstab(5)
	}
	return true
}

// mountTimeout bounds what comes between the cluster's answer and the kernel's.
const mountTimeout = 30 * time.Second

// liveMount is a mount with its connection to the cluster.
type liveMount struct {
	fs  *fusefs.FS
	c   *cluster
	log *slog.Logger
}

// startMount mounts the cluster. stop must follow.
func startMount(ctx context.Context, o mountOptions) (*liveMount, error) {
	var err error
	if o.CacheDir, err = inHome(o.CacheDir, "cache"); err != nil {
		return nil, err
	}
	o.Client.Logger = o.Logger
	c, err := connect(ctx, o.Client)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, mountTimeout)
	defer cancel()
	first, _, _ := strings.Cut(c.endpoint, ",")
	f, err := fusefs.Mount(ctx, fusefs.Options{
		Mountpoint: o.Mountpoint, CacheDir: o.CacheDir, FsName: "sheaf:" + first, AllowOther: o.AllowOther,
		Version: server.Version, Logger: o.Logger,
	}, c, c, batcher{batching.NewClient(c.Client)})
	if err != nil {
		c.Close()
		return nil, err
	}
	return &liveMount{fs: f, c: c, log: o.Logger}, nil
}

// stop unmounts, waiting for nobody who still uses the mount.
func (m *liveMount) stop() {
	err := m.fs.Unmount()
	if errs.IsCode(err, errs.Busy) {
		m.log.Warn("the mount is in use: the calls of those who use it will fail")
		err = m.fs.Close()
	}
	if err != nil {
		m.log.Error("unmount", "err", err)
	}
	m.c.Close()
}

var (
	_ fusefs.Tree    = (*peer.Client)(nil)
	_ fusefs.Objects = (*peer.Client)(nil)
	_ fusefs.Batcher = batcher{}
)

// batcher is a batching.Client as the mount uses it.
type batcher struct{ c *batching.Client }

// GetBatch implements fusefs.Batcher.
func (b batcher) GetBatch(ctx context.Context, req *batching.Request) (fusefs.Entries, error) {
	s, err := b.c.GetBatch(ctx, req)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// mountHere serves the mount in this process until it ends.
func (p *program) mountHere(ctx context.Context, o mountOptions) (err error) {
	ready := func(err error) {
		if err == nil {
			fmt.Fprintf(p.stdout, "ready %s\n", o.Mountpoint)
		}
	}
	if o.ReadyFD != 0 {
		ready = tellParent(o.ReadyFD)
	}
	if o.Logger, err = o.Log.logger(p.stderr); err != nil {
		ready(err)
		return err
	}
	m, err := startMount(ctx, o)
	ready(err)
	if err != nil {
		return err
	}
	notifySystemd("READY=1", o.Logger)
	select {
	case <-ctx.Done():
		notifySystemd("STOPPING=1", o.Logger)
		o.Logger.Info("stopping")
	case <-m.fs.Done():
		o.Logger.Info("unmounted from outside")
	}
	m.stop()
	return nil
}
