package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemon finds the process that serves a mount. The test's end ends it.
func (u *user) daemon(mnt string) int {
	u.t.Helper()
	var s struct{ PID int }
	if err := json.Unmarshal([]byte(u.sh(`cat "$1/.sheaf/status"`, mnt)), &s); err != nil || s.PID <= 1 {
		u.t.Fatalf("%+v %v", s, err)
	}
	u.t.Cleanup(func() {
		if running(s.PID) {
			_ = syscall.Kill(s.PID, syscall.SIGKILL)
			u.t.Errorf("the mount's process %d went on", s.PID)
		}
	})
	return s.PID
}

// running tells whether pid is a process of the binary under test.
func running(pid int) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && exe == binary
}

func (u *user) unmounted(mnt string, pid int) {
	u.t.Helper()
	waitFor(u.t, "the end of the mount's process", func() bool { return !running(pid) })
	if mounted(u.t, mnt) {
		u.t.Error("still mounted")
	}
}

func TestUpMount(t *testing.T) {
	u := newUser(t)
	mnt := u.mountpoint()
	up := u.start("up", "--nodes", "3", "--listen", "127.0.0.1:0", "--mount", mnt)
	if len(up.lines) != 5 || up.lines[3] != "mount "+mnt {
		t.Errorf("%q", up.lines)
	}
	u.run("bucket", "create", "b")
	content := noise(1, 5_000_001)
	u.run("put", u.file("x", content), "b/dir/x")
	u.run("put", u.file("s.tar", tarOf(t, "m/1", "member")), "b/")
	u.sh(`cmp "$1/b/dir/x" <("$SHEAF" get b/dir/x); test "$(sha256sum <"$1/b/dir/x")" = "$("$SHEAF" get b/dir/x | sha256sum)"`, mnt)
	if got := u.sh(`cat "$1/b/s.tar@/m/1"; ls "$1" "$1/b"`, mnt); got != "member"+mnt+":\nb\n\n"+mnt+"/b:\ndir\ns.tar\n" {
		t.Errorf("%q", got)
	}
	if got := u.sh(`echo '{"id":"t1","bucket":"b","in":[{"objname":"s.tar","archpath":"m/1"},{"objname":"dir/x","start":0,"length":5}]}' > "$1/.sheaf/control"
		cat "$1/.sheaf/batch/t1/data"`, mnt); got != "member"+content[:5] {
		t.Errorf("%q", got)
	}
	// The tar of the mount is the tar of the command line.
	u.sh(`printf 'b/dir/x\nb/s.tar@/m/1\n' >"$2/m"; cmp <("$SHEAF" batch --quiet "$2/m") <({ cat "$2/m"; echo; } >"$1/.sheaf/control"; cat "$1/.sheaf/batch/b1/tar")`, mnt, t.TempDir())

	// The mountpoint is taken.
	other := u.with("SHEAF_HOME="+filepath.Join(t.TempDir(), "other"), "SHEAF_CERTS="+filepath.Join(u.home, "certs"))
	other.fails(4, []string{mnt, "is mounted there"}, "mount", up.ready(), mnt)
	other.fails2(4, []string{mnt, "is mounted there"}, "up", "--listen", "127.0.0.1:0", "--mount", mnt)
	if exists(filepath.Join(u.home, "..", "other", "endpoint")) {
		t.Error("an endpoint is left of a cluster that didn't start")
	}
	if s := up.stop(syscall.SIGINT); s != 0 || mounted(t, mnt) {
		t.Errorf("status %d, mounted: %v\n%s", s, mounted(t, mnt), up.stderr())
	}

	// Unmounted from outside the nodes go on; in use, Ctrl-C ends it all the same.
	up = u.start("up", "--listen", "127.0.0.1:0", "--mount", mnt)
	u.run("umount", mnt)
	u.run("stat", "b/dir/x")
	if s := up.stop(syscall.SIGTERM); s != 0 {
		t.Errorf("status %d", s)
	}
	up = u.start("up", "--listen", "127.0.0.1:0", "--mount", mnt)
	u.busy(mnt)
	if s := up.stop(syscall.SIGINT); s != 0 || mounted(t, mnt) {
		t.Errorf("status %d, mounted: %v\n%s", s, mounted(t, mnt), up.stderr())
	}
}

// busy starts a process that sits in the mount until the test's end.
func (u *user) busy(mnt string) (leave func()) {
	u.t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		u.t.Fatal(err)
	}
	p, err := os.StartProcess("/bin/sh", []string{"sh", "-c", `cd "$1" && echo in && exec sleep 1000`, "sh", mnt}, &os.ProcAttr{Files: []*os.File{nil, w, nil}})
	if err != nil {
		u.t.Fatal(err)
	}
	w.Close()
	left := false
	leave = func() {
		if !left {
			left = true
			_ = p.Kill()
			_, _ = p.Wait()
			r.Close()
		}
	}
	u.t.Cleanup(leave)
	_ = r.SetReadDeadline(time.Now().Add(hang))
	if _, err := r.Read(make([]byte, 8)); err != nil {
		u.t.Fatal(err)
	}
	return leave
}

func TestMountDaemon(t *testing.T) {
	u := newUser(t)
	up := u.start("up", "--listen", "127.0.0.1:0")
	u.run("bucket", "create", "b")
	u.pipe("hello", "put", "-", "b/x")

	// mount returns when it works, though its output is a pipe that it might hold.
	mnt := u.mountpoint()
	if got := u.run("mount", mnt); got != "" {
		t.Errorf("%q", got)
	}
	pid := u.daemon(mnt)
	if got := u.sh(`cat "$1/b/x"; stat -fc %T "$1"`, mnt); got != "hellofuseblk\n" && got != "hellofuse\n" {
		t.Errorf("%q", got)
	}
	if sid, err := unix.Getsid(pid); err != nil || sid != pid {
		t.Errorf("session %d of process %d: %v", sid, pid, err)
	}
	for fd, want := range map[string]string{"0": "/dev/null", "cwd": "/"} {
		link := fmt.Sprintf("/proc/%d/fd/%s", pid, fd)
		if fd == "cwd" {
			link = fmt.Sprintf("/proc/%d/cwd", pid)
		}
		if got, err := os.Readlink(link); err != nil || got != want {
			t.Errorf("%s: %s %v", fd, got, err)
		}
	}
	// A second mount beside it, named by endpoint, with options; the log is where it should be.
	mnt2 := u.mountpoint()
	u.run("mount", up.ready(), mnt2, "-o", "ro,noatime", "--cache-dir", t.TempDir())
	pid2 := u.daemon(mnt2)
	if got := u.sh(`cat "$1/b/x"`, mnt2); got != "hello" {
		t.Errorf("%q", got)
	}
	log := filepath.Join(u.home, "log", "mount-"+escapePath(mnt)+".log")
	if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "mounted") {
		t.Errorf("%q %v", b, err)
	}
	// A third with the cache folder of the first.
	mnt3 := u.mountpoint()
	u.run("mount", mnt3)
	pid3 := u.daemon(mnt3)

	leave := u.busy(mnt)
	u.fails(4, []string{mnt, "in use"}, "umount", mnt)
	leave()
	waitFor(t, "the end of who used the mount", func() bool { return u.try("umount", mnt).status == 0 })
	u.unmounted(mnt, pid)
	u.fails(1, []string{mnt, "not mounted"}, "umount", mnt)

	u.sh(`umount "$1"`, mnt2)
	u.unmounted(mnt2, pid2)
	_ = syscall.Kill(pid3, syscall.SIGTERM)
	u.unmounted(mnt3, pid3)

	// Killed, it leaves a dead mount, which the next one clears away.
	u.run("mount", mnt)
	_ = syscall.Kill(u.daemon(mnt), syscall.SIGKILL)
	waitFor(t, "the mount's death", func() bool { return u.exec(nil, "cat", mnt+"/b/x").status != 0 })
	u.run("mount", mnt)
	pid = u.daemon(mnt)
	if got := u.sh(`cat "$1/b/x"`, mnt); got != "hello" {
		t.Errorf("%q", got)
	}
	u.run("umount", mnt)
	u.unmounted(mnt, pid)

	u.fails(3, []string{"/nonexistent", "no such directory", "log: "}, "mount", "/nonexistent")
	u.fails(2, []string{"not a directory"}, "mount", u.file("f", ""))
	u.fails(1, []string{"/proc"}, "umount", "/proc")
	u.fails(5, []string{"no cluster answers at 127.0.0.1:1"}, "mount", "127.0.0.1:1", mnt)
	u.fails(3, []string{"certificate"}, "mount", mnt, "--certs", t.TempDir())
	u.fails(2, []string{"mountpoint", "cache folder"}, "mount", mnt, "--cache-dir", filepath.Join(mnt, "c"))
	u.with("SHEAF_HOME="+t.TempDir()).fails(5, []string{"no cluster: "}, "mount", mnt)
	if mounted(t, mnt) {
		t.Error("a mount that failed is there")
	}
}

func TestMountForeground(t *testing.T) {
	u := newUser(t)
	u.start("up", "--listen", "127.0.0.1:0")
	u.run("bucket", "create", "b")
	u.pipe("hello", "put", "-", "b/x")
	mnt := u.mountpoint()
	for _, end := range []struct {
		how string
		do  func(m *service)
	}{
		{"SIGTERM", func(m *service) { m.signal(syscall.SIGTERM) }},
		{"SIGINT", func(m *service) { m.signal(syscall.SIGINT) }},
		{"umount", func(*service) { u.sh(`umount "$1"`, mnt) }},
		{"sheaf umount", func(*service) { u.run("umount", mnt) }},
	} {
		m := u.start("mount", mnt, "--foreground", "--allow-other")
		if m.ready() != mnt {
			t.Errorf("%q", m.lines)
		}
		if got := u.sh(`cat "$1/b/x"`, mnt); got != "hello" {
			t.Errorf("%q", got)
		}
		end.do(m)
		if !m.gone(hang) || m.cmd.ProcessState.ExitCode() != 0 || mounted(t, mnt) {
			t.Errorf("%s: %v, mounted: %v\n%s", end.how, m.cmd.ProcessState, mounted(t, mnt), m.stderr())
		}
	}
	u.fails2(3, []string{"no such directory"}, "mount", "--foreground", "/nonexistent")
}
