package fusefs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
)

// hang is how long anything in these tests may take before it counts as hung. No
// test depends on how fast things are.
const hang = 2 * time.Minute

// TestMain also runs the daemon of the tests that kill one.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SHEAF_TEST_DAEMON"); dir != "" {
		daemon(dir, os.Getenv("SHEAF_TEST_CACHE"))
		return
	}
	goleak.VerifyTestMain(m, testcluster.Leftovers()...)
}

func daemon(dir, cache string) {
	c := newFakeCluster()
	c.put("b", "from", []byte("the first daemon\n"))
	c.put("b", "slow", []byte("x"))
	c.gate("slow")
	_, err := Mount(context.Background(), Options{Mountpoint: dir, CacheDir: cache}, c, c, c)
	fmt.Println("mounted:", err)
	if err == nil {
		select {}
	}
}

// mounted is a live mount of a test.
type mounted struct {
	*FS
	t   *testing.T
	c   *fakeCluster
	dir string
}

// newMount mounts c; the test's end unmounts it whatever happened.
func newMount(t *testing.T, c *fakeCluster, change func(*Options)) *mounted {
	t.Helper()
	o := Options{Mountpoint: t.TempDir(), CacheDir: t.TempDir(), Version: "test", AttrTimeout: time.Minute, EntryTimeout: time.Minute}
	o.Logger = slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if change != nil {
		change(&o)
	}
	f, err := Mount(context.Background(), o, c, c, c)
	if err != nil {
		t.Fatal(err)
	}
	m := &mounted{FS: f, t: t, c: c, dir: o.Mountpoint}
	t.Cleanup(func() {
		if err := f.Unmount(); err != nil {
			t.Errorf("unmount: %v", err)
			if err := f.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		left, err := os.ReadDir(filepath.Join(o.CacheDir, "batches"))
		if err != nil || len(left) != 1 || left[0].Name() != "lock" {
			t.Errorf("left in the cache folder: %v %v", left, err)
		}
	})
	return m
}

// testLog is the test's log, without a line that comes after its end.
type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	if l.t.Context().Err() == nil {
		l.t.Logf("%s", bytes.TrimSpace(p))
	}
	return len(p), nil
}

// command prepares a program that touches the mount: always another process, as a
// blocked call on a mount of its own can stop a Go program for good.
func (m *mounted) command(name string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	m.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "M="+m.dir, "S="+m.dir+"/.sheaf", "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// try runs a shell script ($M is the mount, $S its .sheaf) and gives its output,
// both streams together.
func (m *mounted) try(script string) (string, error) {
	m.t.Helper()
	out, err := m.command("bash", "-c", script).CombinedOutput()
	return string(out), err
}

func (m *mounted) sh(script string) string {
	m.t.Helper()
	out, err := m.try(script)
	if err != nil {
		m.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return out
}

// py runs a Python script with m and s as the paths of the mount and its .sheaf.
func (m *mounted) py(script string) string {
	m.t.Helper()
	out, err := m.command("python3", "-c", pyHead+script).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

const pyHead = `
import os, sys, json, struct, mmap, errno, time, threading
m, s = os.environ["M"], os.environ["S"]
def session(extra=0):
    return os.open(s + "/control", os.O_RDWR | extra)
def send(fd, *cmds):
    for c in cmds:
        os.write(fd, (json.dumps(c) if not isinstance(c, str) else c).encode())
buf = {}
def event(fd):
    while b"\n" not in buf.get(fd, b""):
        d = os.read(fd, 4096)
        assert d, "end of events"
        buf[fd] = buf.get(fd, b"") + d
    l, buf[fd] = buf[fd].split(b"\n", 1)
    return json.loads(l)
def until(fd, kind):
    while True:
        e = event(fd)
        if e["event"] == kind: return e
def fails(code, f, *a):
    try: f(*a)
    except OSError as e:
        assert e.errno == code, (errno.errorcode[e.errno], errno.errorcode[code])
    else: raise AssertionError("no error")
def rows(id):
    t = open(f"{s}/batch/{id}/index", "rb").read()
    magic, head, size, n = struct.unpack_from("<8sIIQ", t)
    assert (magic, head, size) == (b"SHEAFIX1", 64, 32) and len(t) == 64 + 32*n and t[24:64] == bytes(40)
    return [struct.unpack_from("<QQQII", t, 64+32*i) for i in range(n)]
`

func equal(t *testing.T, got, want string) {
	t.Helper()
	if strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestMountpoint(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatal(err)
	}
	c := newFakeCluster()
	m := newMount(t, c, func(o *Options) { o.FsName = "sheaf:test:1" })
	file := filepath.Join(t.TempDir(), "file")
	os.WriteFile(file, nil, 0o600)
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		mountpoint, cache string
		code              errs.Code
		says              string
	}{
		"missing":          {file + "-not", t.TempDir(), errs.NotFound, "no such directory"},
		"a file":           {file, t.TempDir(), errs.InvalidArgument, "not a directory"},
		"taken":            {m.dir, t.TempDir(), errs.Busy, "fuse.sheaf"},
		"taken by another": {"/proc", t.TempDir(), errs.Busy, "type proc"},
		"cache inside":     {dir, dir + "/cache/x", errs.InvalidArgument, "lies in the mountpoint"},
		"inside the cache": {dir, filepath.Dir(dir), errs.InvalidArgument, "lies in the cache folder"},
		"the same":         {dir, dir, errs.InvalidArgument, "cache folder"},
		"nothing":          {"", "", errs.InvalidArgument, "no cache folder"},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := Mount(context.Background(), Options{Mountpoint: tc.mountpoint, CacheDir: tc.cache}, c, c, c)
			if err == nil {
				f.Close()
			}
			if !errs.IsCode(err, tc.code) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want %v with %q", err, tc.code, tc.says)
			}
		})
	}
	st, err := Inspect(m.dir)
	if err != nil || !st.Mounted || st.Type != "fuse.sheaf" || st.Source != "sheaf:test:1" || st.Dead {
		t.Errorf("Inspect: %+v %v", st, err)
	}
	if err := Unmount(dir, false); !errs.IsCode(err, errs.NotFound) {
		t.Errorf("Unmount of nothing: %v", err)
	}
	if err := Unmount("/proc", true); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("Unmount of another's: %v", err)
	}
}

func TestUnmountFromOutside(t *testing.T) {
	m := newMount(t, newFakeCluster(), nil)
	m.sh("umount $M")
	m.Wait()
}

func TestUnmountBusyAndClose(t *testing.T) {
	c := newFakeCluster()
	c.put("b", "slow", []byte("x"))
	t.Cleanup(c.gate("slow"))
	m := newMount(t, c, nil)
	cmd := m.command("bash", "-c", `echo '{"id":"x","in":[{"bucket":"b","objname":"slow"}]}' > $S/control; exec cat $S/batch/x/data`)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	m.eventually(func() bool { return m.opensOf("x") == 1 })
	if err := m.Unmount(); !errs.IsCode(err, errs.Busy) {
		t.Errorf("Unmount while a file is open: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("the reader ended with %v", err)
	}
}

// eventually waits for what another process or goroutine brings about.
func (m *mounted) eventually(cond func() bool) {
	m.t.Helper()
	for end := time.Now().Add(hang); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatal("never came true")
		}
	}
}

func (m *mounted) opensOf(id string) int {
	b := m.batches.get(id)
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opens
}

func TestDeadMountIsReplaced(t *testing.T) {
	dir, cache := t.TempDir(), t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHEAF_TEST_DAEMON="+dir, "SHEAF_TEST_CACHE="+cache)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 64)
	n, _ := out.Read(line)
	if got := string(line[:n]); got != "mounted: <nil>\n" {
		cmd.Process.Kill()
		t.Fatal(got)
	}
	touch := &mounted{t: t, dir: dir}
	equal(t, touch.sh(`cat $M/b/from; echo '{"in":[{"bucket":"b","objname":"slow"}]}' > $S/control; ls $S/batch`), "the first daemon\nb1")
	cmd.Process.Kill()
	cmd.Wait()

	st, err := Inspect(dir)
	if err != nil || !st.Dead {
		t.Fatalf("%+v %v", st, err)
	}
	c := newFakeCluster()
	c.put("b", "from", []byte("the second"))
	m := newMount(t, c, func(o *Options) { o.Mountpoint, o.CacheDir = dir, cache })
	equal(t, m.sh("cat $M/b/from"), "the second")
	m.sh("findmnt -n -o FSTYPE --mountpoint $M | wc -l | grep -qx 1")
	// The end of the test also sees that the dead mount's spool is gone.
}

func TestUnmountOfADeadMount(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHEAF_TEST_DAEMON="+dir, "SHEAF_TEST_CACHE="+t.TempDir())
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 64))
	cmd.Process.Kill()
	cmd.Wait()
	if err := Unmount(dir, false); err != nil {
		t.Error(err)
	}
	if st, err := Inspect(dir); err != nil || st.Mounted {
		t.Errorf("%+v %v", st, err)
	}
}

func TestFindMount(t *testing.T) {
	const table = `22 1 0:20 / /mnt/a rw,nosuid shared:1 - ext4 /dev/a rw
23 1 0:21 / /mnt/with\040space rw - fuse.sheaf sheaf:h\0401 rw
24 1 0:22 / /mnt/a rw - fuse.sheaf sheaf rw
`
	for _, tc := range []struct{ at, typ, source string }{
		{"/mnt/a", "fuse.sheaf", "sheaf"},
		{"/mnt/with space", "fuse.sheaf", "sheaf:h 1"},
		{"/mnt", "", ""},
	} {
		st, err := findMount(strings.NewReader(table), tc.at)
		if err != nil || st.Type != tc.typ || st.Source != tc.source || st.Mounted != (tc.typ != "") {
			t.Errorf("%s: %+v %v", tc.at, st, err)
		}
	}
}
