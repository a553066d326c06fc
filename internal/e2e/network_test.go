package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hang is how long anything may take before it counts as hung. No test depends on how
// fast things are.
const hang = 2 * time.Minute

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sheaf-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "sheaf")
	if out, err := exec.Command("go", "build", "-o", binary, "sheaf/cmd/sheaf").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// network is hosts that are each a network namespace, joined by a bridge.
type network struct {
	t     *testing.T
	hub   string
	hosts map[string]string // namespace by host
	home  string            // SHEAF_HOME of every process
}

// address is where a host is: 10.77.0.<number>.
func address(number int) string { return fmt.Sprintf("10.77.0.%d", number) }

// newNetwork makes the namespaces; the i-th host has the address 10.77.0.(i+1).
func newNetwork(t *testing.T, hosts ...string) *network {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Fatal("this test needs the ip command: install iproute2")
	}
	if os.Geteuid() != 0 {
		t.Fatal("this test makes network namespaces: run it as root")
	}
	n := &network{t: t, hub: fmt.Sprintf("sheaf%d-hub", os.Getpid()), hosts: map[string]string{}, home: filepath.Join(t.TempDir(), "home")}
	n.addNamespace(n.hub)
	n.ip("-n", n.hub, "link", "add", "br0", "type", "bridge")
	n.ip("-n", n.hub, "link", "set", "br0", "up")
	for i, h := range hosts {
		ns := fmt.Sprintf("sheaf%d-%s", os.Getpid(), h)
		n.hosts[h] = ns
		n.addNamespace(ns)
		n.ip("-n", n.hub, "link", "add", h, "type", "veth", "peer", "name", "eth0", "netns", ns)
		n.ip("-n", n.hub, "link", "set", h, "master", "br0", "up")
		n.ip("-n", ns, "addr", "add", address(i+1)+"/24", "dev", "eth0")
		n.ip("-n", ns, "link", "set", "eth0", "up")
		n.ip("-n", ns, "link", "set", "lo", "up")
	}
	return n
}

// addNamespace makes a namespace that goes with the test; its links go with it.
func (n *network) addNamespace(name string) {
	n.t.Helper()
	n.ip("netns", "add", name)
	n.t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", name).CombinedOutput(); err != nil {
			n.t.Errorf("ip netns del %s: %v\n%s", name, err, out)
		}
	})
}

func (n *network) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %q: %v\n%s", args, err, out)
	}
}

// cut takes a host's link down, or up again.
func (n *network) cut(host string, down bool) {
	n.t.Helper()
	state := "up"
	if down {
		state = "down"
	}
	n.ip("-n", n.hub, "link", "set", host, state)
}

// command is the program on a host.
func (n *network) command(ctx context.Context, host string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.hosts[host], binary}, args...)...)
	cmd.Env = append(os.Environ(), "SHEAF_HOME="+n.home, "SHEAF_CERTS=", "SHEAF_ENDPOINT=", "LC_ALL=C")
	cmd.Dir = n.t.TempDir()
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// result is what a finished command left.
type result struct {
	out, err string
	status   int // −1: killed by a signal
	took     time.Duration
}

// try runs a command on a host to its end.
func (n *network) try(host string, args ...string) result {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	cmd := n.command(ctx, host, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	start := time.Now()
	err := cmd.Run()
	if ctx.Err() != nil {
		n.t.Fatalf("sheaf %q hangs\n%s", args, errOut.String())
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		n.t.Fatalf("sheaf %q: %v", args, err)
	}
	return result{out: out.String(), err: errOut.String(), status: cmd.ProcessState.ExitCode(), took: time.Since(start)}
}

// run runs a command that must succeed and gives its stdout.
func (n *network) run(host string, args ...string) string {
	n.t.Helper()
	r := n.try(host, args...)
	if r.status != 0 {
		n.t.Fatalf("sheaf %q: status %d\n%s%s", args, r.status, r.out, r.err)
	}
	return r.out
}

// lines keeps what a process writes and tells when a line is whole.
type lines struct {
	mu    sync.Mutex
	buf   bytes.Buffer
	first chan struct{} // closed at the first line's end
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := bytes.IndexByte(l.buf.Bytes(), '\n') < 0
	l.buf.Write(p)
	if before && bytes.IndexByte(l.buf.Bytes(), '\n') >= 0 {
		close(l.first)
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// service is a process that serves until it is stopped.
type service struct {
	cmd         *exec.Cmd
	out, errOut *lines
	gone        chan struct{} // closed when the process has ended
	stopping    sync.Once
}

// serve starts a process on a host and waits for its first line, "ready …".
func (n *network) serve(host string, args ...string) *service {
	n.t.Helper()
	s := &service{cmd: n.command(context.Background(), host, args...), out: &lines{first: make(chan struct{})}, errOut: &lines{first: make(chan struct{})}, gone: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = io.Writer(s.out), s.errOut
	// Should the tests die, it dies with them.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	go func() { // ends with the process, which the cleanup ends
		_ = s.cmd.Wait()
		close(s.gone)
	}()
	n.t.Cleanup(func() {
		s.stop(syscall.SIGKILL)
		if n.t.Failed() {
			n.t.Logf("%s:\n%s", host, s.errOut)
		}
	})
	select {
	case <-s.out.first:
	case <-s.gone:
		n.t.Fatalf("sheaf %q ended: %v\n%s", args, s.cmd.ProcessState, s.errOut)
	case <-time.After(hang):
		n.t.Fatalf("sheaf %q isn't ready\n%s", args, s.errOut)
	}
	return s
}

// stop ends the process and gives its exit status.
func (s *service) stop(sig syscall.Signal) int {
	s.stopping.Do(func() { _ = s.cmd.Process.Signal(sig) })
	select {
	case <-s.gone:
	case <-time.After(hang):
		_ = s.cmd.Process.Kill()
		<-s.gone
	}
	return s.cmd.ProcessState.ExitCode()
}
