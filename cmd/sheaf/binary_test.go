package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// hang is how long anything in these tests may take before it counts as hung. No
// test depends on how fast things are.
const hang = 2 * time.Minute

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sheaf-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sheaf")
	args := []string{"build", "-o", binary}
	if raceEnabled {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// user is somebody with a home of their own who runs the binary.
type user struct {
	t    *testing.T
	home string
	env  []string
}

func newUser(t *testing.T) *user {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	u := &user{t: t, home: home}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "SHEAF_") {
			u.env = append(u.env, e)
		}
	}
	u.env = append(u.env, "SHEAF_HOME="+home, "SHEAF="+binary, "LC_ALL=C", "GORACE=atexit_sleep_ms=0") // else each takes a second to end
	return u
}

// with is the same user with further variables in the environment.
func (u *user) with(env ...string) *user {
	v := *u
	v.env = append(append([]string{}, u.env...), env...)
	return &v
}

// result is what a finished command left.
type result struct {
	out, err string
	status   int // −1: killed by a signal
}

// exec runs a program to its end.
func (u *user) exec(stdin io.Reader, name string, args ...string) result {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = u.env
	cmd.Dir = u.t.TempDir()
	cmd.Stdin = stdin
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 10 * time.Second // somebody else holds the pipe: a daemon that mustn't
	err := cmd.Run()
	if ctx.Err() != nil {
		u.t.Fatalf("%s %q hangs\n%s", name, args, errOut.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		u.t.Fatalf("%s %q: %v\n%s", name, args, err, errOut.String())
	}
	return result{out: out.String(), err: errOut.String(), status: cmd.ProcessState.ExitCode()}
}

// try runs sheaf.
func (u *user) try(args ...string) result { u.t.Helper(); return u.exec(nil, binary, args...) }

// run runs sheaf, which must succeed, and gives its stdout.
func (u *user) run(args ...string) string {
	u.t.Helper()
	r := u.try(args...)
	if r.status != 0 {
		u.t.Fatalf("sheaf %q: status %d\n%s%s", args, r.status, r.out, r.err)
	}
	return r.out
}

// pipe is run with text on stdin.
func (u *user) pipe(stdin string, args ...string) string {
	u.t.Helper()
	r := u.exec(strings.NewReader(stdin), binary, args...)
	if r.status != 0 {
		u.t.Fatalf("sheaf %q: status %d\n%s%s", args, r.status, r.out, r.err)
	}
	return r.out
}

// sh runs a shell script, which must succeed, and gives its stdout.
func (u *user) sh(script string, args ...string) string {
	u.t.Helper()
	r := u.exec(nil, "bash", append([]string{"-euo", "pipefail", "-c", script, "sh"}, args...)...)
	if r.status != 0 {
		u.t.Fatalf("%s: status %d\n%s%s", script, r.status, r.out, r.err)
	}
	return r.out
}

// fails runs sheaf, which must exit with status and one line on stderr that has all of
// the words.
func (u *user) fails(status int, words []string, args ...string) {
	u.t.Helper()
	u.t.Run("fails "+strings.Join(args, " "), func(t *testing.T) {
		v := *u
		v.t = t
		v.check(v.try(args...), status, words)
	})
}

func (u *user) check(r result, status int, words []string) {
	u.t.Helper()
	if r.status != status {
		u.t.Errorf("status %d, want %d", r.status, status)
	}
	if !strings.HasPrefix(r.err, "sheaf: ") || strings.Count(r.err, "\n") != 1 {
		u.t.Errorf("want one line that begins with sheaf:")
	}
	for _, w := range words {
		if !strings.Contains(r.err, w) {
			u.t.Errorf("no %q in the message", w)
		}
	}
	if u.t.Failed() {
		u.t.Logf("stdout %.200q, stderr %q", r.out, r.err)
	}
}

// service is a running command.
type service struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines []string // stdout up to the line that began with "ready"
	done  chan struct{}

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// Write implements io.Writer for stderr.
func (s *service) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(p)
}

func (s *service) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// launch starts sheaf without waiting for anything. The test's end ends it.
func (u *user) launch(args ...string) (*service, *bufio.Reader) {
	u.t.Helper()
	s := &service{t: u.t, cmd: exec.Command(binary, args...), done: make(chan struct{})}
	s.cmd.Env, s.cmd.Dir = u.env, u.t.TempDir()
	s.cmd.Stderr = s
	r, w, err := os.Pipe()
	if err != nil {
		u.t.Fatal(err)
	}
	s.cmd.Stdout = w
	if err := s.cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	w.Close()
	go func() { // ends with the process, which the cleanup ends
		_ = s.cmd.Wait()
		close(s.done)
	}()
	u.t.Cleanup(func() {
		s.signal(syscall.SIGTERM)
		if !s.gone(30 * time.Second) {
			s.signal(syscall.SIGKILL)
			s.gone(hang)
			u.t.Errorf("sheaf %q had to be killed", args)
		}
		r.Close()
		if u.t.Failed() {
			u.t.Logf("stderr of sheaf %q:\n%s", args, s.stderr())
		}
	})
	return s, bufio.NewReader(r)
}

// start starts sheaf and waits until it is ready.
func (u *user) start(args ...string) *service {
	u.t.Helper()
	s, out := u.launch(args...)
	ready := make(chan error, 1)
	go func() { // ends with the process's stdout
		for {
			line, err := out.ReadString('\n')
			if err != nil {
				ready <- err
				return
			}
			s.lines = append(s.lines, strings.TrimSuffix(line, "\n"))
			if strings.HasPrefix(line, "ready ") {
				ready <- nil
				return
			}
		}
	}()
	select {
	case err := <-ready:
		if err != nil {
			u.t.Fatalf("sheaf %q ended before it was ready: %v\n%s", args, err, s.stderr())
		}
	case <-time.After(hang):
		u.t.Fatalf("sheaf %q isn't ready", args)
	}
	return s
}

// ready is what the service said behind "ready".
func (s *service) ready() string { return strings.TrimPrefix(s.lines[len(s.lines)-1], "ready ") }

func (s *service) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) }

// gone waits for the process's end.
func (s *service) gone(d time.Duration) bool {
	select {
	case <-s.done:
		return true
	case <-time.After(d):
		return false
	}
}

// stop ends the service by sig and gives its exit status.
func (s *service) stop(sig syscall.Signal) int {
	s.t.Helper()
	s.signal(sig)
	if !s.gone(hang) {
		s.t.Fatal("the process goes on after ", sig)
	}
	return s.cmd.ProcessState.ExitCode()
}

// mountpoint makes a folder to mount on. Whatever is mounted there goes with the test.
func (u *user) mountpoint() string {
	u.t.Helper()
	dir := u.t.TempDir()
	u.t.Cleanup(func() {
		for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		}
	})
	return dir
}

// mounted tells whether something is mounted on dir, without a look into it.
func mounted(t *testing.T, dir string) bool {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(b), " "+dir+" ")
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(hang); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// file writes a file and gives its path.
func (u *user) file(name, content string) string {
	u.t.Helper()
	path := filepath.Join(u.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		u.t.Fatal(err)
	}
	return path
}
