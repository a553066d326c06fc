package fusefs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// fsType is the type of a mount of ours in /proc/self/mountinfo.
const fsType = "fuse.sheaf"

// MountState is what lies on a mountpoint.
type MountState struct {
	Mounted bool
	Type    string // "fuse.sheaf" for a mount of Sheaf
	Source  string // the FsName it was mounted with
	Dead    bool   // its process is gone: every use gives ENOTCONN
	dev     string // major:minor; the minor number names the connection in fusectl
}

// Inspect tells what is mounted on a folder. It asks a FUSE mount for a sign of life.
func Inspect(mountpoint string) (MountState, error) {
	mountpoint = resolve(mountpoint)
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return MountState{}, errs.Wrap(errs.CodeOf(err), "mount", err)
	}
	defer f.Close()
	st, err := findMount(f, mountpoint)
	if err != nil {
		return MountState{}, errs.Wrap(errs.Internal, "mount", err)
	}
	if st.Mounted && strings.HasPrefix(st.Type, "fuse") {
		// Not stat: for as long as it trusts the attributes it has, the kernel answers
		// that even for a dead mount.
		var sb unix.Statfs_t
		st.Dead = errors.Is(unix.Statfs(mountpoint, &sb), unix.ENOTCONN)
	}
	return st, nil
}

// findMount reads a mountinfo table (proc_pid_mountinfo(5)). Of several mounts on
// one folder the last is the one on top.
func findMount(r io.Reader, mountpoint string) (MountState, error) {
	var st MountState
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		head, tail, ok := strings.Cut(sc.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if !ok || len(h) < 5 || len(t) < 2 || unescape(h[4]) != mountpoint {
			continue
		}
		st = MountState{Mounted: true, Type: t[0], Source: unescape(t[1]), dev: h[2]}
	}
	return st, sc.Err()
}

// unescape undoes the kernel's \ooo for space, tab, newline and backslash.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			var c int
			if n, _ := fmt.Sscanf(s[i+1:i+4], "%03o", &c); n == 1 {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// checkMountpoint makes sure that something can be mounted here, detaching what a
// killed mount left behind.
func checkMountpoint(mountpoint string, log *slog.Logger) error {
	for {
		st, err := Inspect(mountpoint)
		if err != nil {
			return err
		}
		if !st.Mounted {
			break
		}
		if !st.Dead {
			return errs.New(errs.Busy, "mount", fmt.Sprintf("mountpoint %s: %s (type %s) is mounted there", mountpoint, st.Source, st.Type))
		}
		if err := detach(mountpoint); err != nil {
			return errs.Wrap(errs.Busy, "mount", fmt.Errorf("mountpoint %s: a dead mount can't be removed: %w", mountpoint, err))
		}
		log.Warn("removed what a dead mount left behind", "mountpoint", mountpoint, "type", st.Type, "source", st.Source)
	}
	fi, err := os.Stat(mountpoint)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return errs.New(errs.NotFound, "mount", fmt.Sprintf("mountpoint %s: no such directory", mountpoint))
	case err != nil:
		return errs.Wrap(errs.CodeOf(err), "mount", err)
	case !fi.IsDir():
		return errs.New(errs.InvalidArgument, "mount", fmt.Sprintf("mountpoint %s: not a directory", mountpoint))
	}
	return nil
}

// detach takes a mount out of the tree at once, whoever still uses it.
func detach(mountpoint string) error {
	err := unix.Unmount(mountpoint, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EPERM) {
		return fusermount("-uz", mountpoint)
	}
	return err
}

// fusermount is how someone who isn't root unmounts.
func fusermount(flag, mountpoint string) error {
	out, err := exec.Command("fusermount3", flag, mountpoint).CombinedOutput()
	switch {
	case err == nil:
		return nil
	case strings.Contains(string(out), "busy"): // its only report: there is no exit status for it
		return unix.EBUSY
	case len(out) > 0:
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return err
}

// Unmount removes a mount of Sheaf, also one whose process is dead. With lazy it
// leaves the tree at once and ends when the last user has closed its files;
// without, a mount in use is Busy.
func Unmount(mountpoint string, lazy bool) error {
	mountpoint = resolve(mountpoint)
	st, err := Inspect(mountpoint)
	switch {
	case err != nil:
		return err
	case !st.Mounted:
		return errs.New(errs.NotFound, "umount", fmt.Sprintf("%s: not mounted", mountpoint))
	case st.Type != fsType:
		return errs.New(errs.InvalidArgument, "umount", fmt.Sprintf("%s: a mount of type %s, not of Sheaf", mountpoint, st.Type))
	}
	flags, flag := unix.UMOUNT_NOFOLLOW, "-u"
	if lazy || st.Dead {
		flags, flag = flags|unix.MNT_DETACH, "-uz"
	}
	err = unix.Unmount(mountpoint, flags)
	if errors.Is(err, unix.EPERM) {
		err = fusermount(flag, mountpoint)
	}
	switch {
	case errors.Is(err, unix.EBUSY):
		return errs.New(errs.Busy, "umount", mountpoint+": in use")
	case err != nil:
		return errs.Wrap(errs.CodeOf(err), "umount", fmt.Errorf("%s: %w", mountpoint, err))
	}
	return nil
}

// abort makes the kernel drop a mount's connection: every call that waits for it
// fails. The mount must have been detached already.
func abort(st MountState) error {
	_, minor, ok := strings.Cut(st.dev, ":")
	if !ok {
		return syscall.ENODEV
	}
	return os.WriteFile("/sys/fs/fuse/connections/"+minor+"/abort", []byte("1"), 0o200)
}
