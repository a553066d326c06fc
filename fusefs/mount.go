package fusefs

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// maxWrite is the most a request of the kernel carries; go-fuse's default is less.
const maxWrite = 1 << 20

// closeTimeout is how long Close waits for the kernel to let go.
const closeTimeout = 10 * time.Second

// FS is a live mount.
type FS struct {
	// dependencies
	tree    Tree
	objects Objects
	log     *slog.Logger
	m       *metrics

	// constants
	opt      Options
	id       string // random, names the mount's spool folder and requests
	uid, gid uint32
	started  time.Time
	state    MountState // as mounted

	batches *batches
	spools  *spoolDir
	server  *fuse.Server

	ctx    context.Context // ends with the mount; the owner of every goroutine below it
	cancel context.CancelFunc
	work   sync.WaitGroup // read-ahead; nothing is added once the server has ended
	done   chan struct{}  // closed when all is stopped and removed
}

// Mount mounts the cluster and returns once the kernel has been answered. ctx
// bounds the mounting alone; the mount ends with Unmount, Close or an unmount from
// outside. Errors have code InvalidArgument (the options), NotFound (no
// mountpoint), Busy (something else is mounted there), or that of the system call.
func Mount(ctx context.Context, o Options, tree Tree, objects Objects, batcher Batcher) (*FS, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o.Mountpoint, o.CacheDir = resolve(o.Mountpoint), resolve(o.CacheDir)
	if err := checkMountpoint(o.Mountpoint, o.Logger); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, errs.Wrap(errs.AlreadyExists, "mount", fmt.Errorf("metrics: %w", err))
	}
	f := &FS{
		tree: tree, objects: objects, log: o.Logger, m: m,
		opt: o, id: newMountID(), uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), started: time.Now(),
		done: make(chan struct{}),
	}
	f.spools, err = openSpoolDir(o.CacheDir, f.id, o.Logger)
	if err != nil {
		m.close()
		return nil, err
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.batches = newBatches(f.ctx, batcher, f.spools, m, o, f.id)

	f.server, err = fuse.NewServer(fs.NewNodeFS(newRoot(f), f.nodeOptions()), o.Mountpoint, f.mountOptions())
	if err != nil {
		if st, ierr := Inspect(o.Mountpoint); ierr == nil && st.Type == fsType {
			_ = detach(o.Mountpoint) // mounted, but the kernel's first request couldn't be answered
		}
		f.teardown()
		return nil, errs.Wrap(errs.CodeOf(err), "mount", fmt.Errorf("mountpoint %s: %w", o.Mountpoint, err))
	}
	// Owned by the mount: ends when the kernel has unmounted, and closes done.
	go func() {
		f.server.Serve()
		f.teardown()
	}()
	err = f.server.WaitMount()
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		f.state, err = Inspect(o.Mountpoint)
	}
	if err != nil {
		_ = f.Close()
		return nil, errs.Wrap(errs.CodeOf(err), "mount", fmt.Errorf("mountpoint %s: %w", o.Mountpoint, err))
	}
	o.Logger.Info("mounted", "mountpoint", o.Mountpoint, "source", o.FsName)
	return f, nil
}

func newMountID() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func (f *FS) nodeOptions() *fs.Options {
	o := &fs.Options{
		RootStableAttr: &fs.StableAttr{Ino: 1},
		Logger:         slog.NewLogLogger(f.log.Handler(), slog.LevelWarn),
	}
	// Attribute and entry timeouts are set answer by answer: go-fuse would take a
	// default for a deliberate 0.
	if f.opt.NegativeTimeout > 0 {
		o.NegativeTimeout = &f.opt.NegativeTimeout
	}
	return o
}

func (f *FS) mountOptions() *fuse.MountOptions {
	level := slog.LevelWarn
	if f.opt.Debug {
		level = slog.LevelDebug
	}
	o := &fuse.MountOptions{
		Name: "sheaf", FsName: f.opt.FsName,
		MaxWrite: maxWrite, MaxReadAhead: maxWrite, MaxBackground: 64,
		DirectMount:          true, // fusermount3 is the fallback
		IgnoreSecurityLabels: true,
		// A pipe a read costs more than the copy it saves: 1 to 1.9 GB/s of a batch's
		// data with splice, 2 GB/s with pread into the answer.
		DisableSplice: true,
		// So that a file of a batch that was opened before the batch was done can be
		// mapped into memory too.
		ExtraCapabilities: fuse.CAP_DIRECT_IO_ALLOW_MMAP,
		AllowOther:        f.opt.AllowOther,
		Options:           []string{"nosuid", "nodev"},
		Debug:             f.opt.Debug,
		Logger:            slog.NewLogLogger(f.log.Handler(), level),
	}
	if o.AllowOther {
		// Without it every user would have the rights of the one who mounts.
		o.Options = append(o.Options, "default_permissions")
	}
	return o
}

// teardown stops and removes everything once no request of the kernel runs any
// more.
func (f *FS) teardown() {
	f.cancel()
	f.work.Wait()
	f.batches.close()
	f.spools.close()
	f.m.close()
	close(f.done)
}

// Wait returns when the mount has ended, whoever unmounted it, and all it used is
// given back.
func (f *FS) Wait() { <-f.done }

// Done is closed when Wait would return.
func (f *FS) Done() <-chan struct{} { return f.done }

// Unmount ends the mount. While a process uses it the answer is Busy and nothing
// has changed.
func (f *FS) Unmount() error {
	select {
	case <-f.done:
		return nil
	default:
	}
	if err := Unmount(f.opt.Mountpoint, false); err != nil {
		if errs.IsCode(err, errs.NotFound) { // from outside, in this moment
			<-f.done
			return nil
		}
		return err
	}
	<-f.done
	return nil
}

// Close ends the mount even while processes use it: their calls fail.
func (f *FS) Close() error {
	select {
	case <-f.done:
		return nil
	default:
	}
	// MNT_FORCE aborts the connection, so that nobody waits for answers any more;
	// without the right to it, fusectl does the same.
	err := unix.Unmount(f.opt.Mountpoint, unix.MNT_FORCE|unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EPERM) {
		if err = detach(f.opt.Mountpoint); err == nil {
			_ = abort(f.state) // at worst the last user's close ends it
		}
	}
	t := time.NewTimer(closeTimeout)
	defer t.Stop()
	select {
	case <-f.done:
		return nil
	case <-t.C:
		return errs.Wrap(errs.Busy, "umount", fmt.Errorf("%s: the kernel still holds the mount: %v", f.opt.Mountpoint, err))
	}
}

// Status is a mount's state at one moment.
type Status struct {
	Mountpoint string    `json:"mountpoint"`
	Source     string    `json:"source"`
	Version    string    `json:"version"`
	PID        int       `json:"pid"`
	Started    time.Time `json:"started"`
	Batches    int       `json:"batches"`     // held
	Running    int       `json:"running"`     // of them, not yet ended
	SpoolBytes int64     `json:"spool_bytes"` // their payloads on disk
	Sessions   int       `json:"sessions"`    // open control files
}

// Status gives the mount's state, the same that .sheaf/status shows.
func (f *FS) Status() Status {
	s := Status{
		Mountpoint: f.opt.Mountpoint, Source: f.opt.FsName, Version: f.opt.Version,
		PID: os.Getpid(), Started: f.started,
	}
	f.batches.fill(&s)
	return s
}
