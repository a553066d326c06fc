package crash

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

	"sheaf/peer"
)

// hang is how long anything may take before it counts as hung.
const hang = 3 * time.Minute

// program is the program under test, built once.
var program string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "sheaf-crash-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "sheaf")
	if out, err := exec.Command("go", "build", "-o", program, "sheaf/cmd/sheaf").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// tail keeps the end of what a process writes.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (l *tail) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf = append(l.buf, p...); len(l.buf) > 128<<10 {
		l.buf = append(l.buf[:0], l.buf[len(l.buf)-(64<<10):]...)
	}
	return len(p), nil
}

func (l *tail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.Clone(l.buf))
}

// process is one storage node, which is killed and started again on the same folders
// and at the same address.
type process struct {
	name   string
	dirs   []string
	listen string // after the first start the address that it got
	join   string
	home   string
	log    tail

	mu    sync.Mutex
	cmd   *exec.Cmd // nil: not running
	ended chan struct{}
}

// start starts the node; the channel gives nil when it serves, or why it never will.
func (p *process) start() (<-chan error, error) {
	args := []string{"serve", "--name", p.name, "--listen", p.listen}
	for _, d := range p.dirs {
		args = append(args, "--dir", d)
	}
	if p.join != "" {
		args = append(args, "--join", p.join)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "SHEAF_HOME="+p.home, "SHEAF_CERTS=", "SHEAF_ENDPOINT=", "LC_ALL=C")
	cmd.Stderr = &p.log
	// Should the tests die, it dies with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended, ready := make(chan struct{}), make(chan error, 1)
	p.mu.Lock()
	p.cmd, p.ended = cmd, ended
	p.mu.Unlock()
	go func() { // ends with the process
		defer close(ended)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadString('\n')
			if addr, ok := strings.CutPrefix(line, "ready "); ok {
				p.mu.Lock()
				p.listen = strings.TrimSpace(addr)
				p.mu.Unlock()
				ready <- nil
				break
			}
			if err != nil {
				ready <- fmt.Errorf("%s ended before it was ready", p.name)
				break
			}
		}
		_, _ = io.Copy(io.Discard, r)
		_ = cmd.Wait()
	}()
	return ready, nil
}

// kill ends the process at once and waits for its end.
func (p *process) kill() {
	p.mu.Lock()
	cmd, ended := p.cmd, p.ended
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	<-ended
}

func (p *process) addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listen
}

// cluster is the nodes as processes, and a client.
type cluster struct {
	nodes []*process
	ep    *peer.Endpoint
	peer  *peer.Client
}

func startCluster(t *testing.T, nodes int) *cluster {
	t.Helper()
	home := filepath.Join(t.TempDir(), "home")
	if out, err := command(t.Context(), home, "cert", "init"); err != nil {
		t.Fatalf("cert init: %v\n%s", err, out)
	}
	c := &cluster{}
	t.Cleanup(func() {
		for _, p := range c.nodes {
			p.kill()
			if t.Failed() {
				t.Logf("%s:\n%s", p.name, p.log.String())
			}
		}
	})
	for i := range nodes {
		p := &process{name: fmt.Sprint("n", i+1), dirs: []string{t.TempDir(), t.TempDir()}, listen: "127.0.0.1:0", home: home}
		if i > 0 {
			p.join = c.nodes[0].addr()
		}
		c.nodes = append(c.nodes, p)
		if err := c.up(p); err != nil {
			t.Fatalf("%v\n%s", err, p.log.String())
		}
	}
	id, err := peer.LoadIdentity(filepath.Join(home, "certs"), peer.ClientName)
	if err != nil {
		t.Fatal(err)
	}
	if c.ep, err = peer.NewEndpoint(peer.EndpointOptions{Identity: id}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.ep.Close() })
	var seeds []string
	for _, p := range c.nodes {
		seeds = append(seeds, p.addr())
	}
	if c.peer, err = peer.NewClient(t.Context(), c.ep, seeds...); err != nil {
		t.Fatal(err)
	}
	return c
}

func command(ctx context.Context, home string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "SHEAF_HOME="+home, "SHEAF_CERTS=", "SHEAF_ENDPOINT=", "LC_ALL=C")
	return cmd.CombinedOutput()
}

// up starts a node and waits until it serves.
func (c *cluster) up(p *process) error {
	ready, err := p.start()
	if err != nil {
		return err
	}
	select {
	case err := <-ready:
		return err
	case <-time.After(hang):
		return errors.New(p.name + " doesn't come up")
	}
}

// settle waits until every node says that all is where it belongs.
func (c *cluster) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hang)
	defer cancel()
	for {
		var last error
		for _, p := range c.nodes {
			one, stop := context.WithTimeout(ctx, 10*time.Second)
			st, err := c.peer.Status(one, p.addr())
			stop()
			if err == nil && !st.Settled {
				err = fmt.Errorf("%s isn't settled", p.name)
			}
			if err != nil {
				last = err
			}
		}
		if last == nil {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return last
		}
	}
}

// workFiles lists what lies in the folders for work files.
func (c *cluster) workFiles() ([]string, error) {
	var found []string
	for _, p := range c.nodes {
		for _, d := range p.dirs {
			err := filepath.WalkDir(d, func(path string, e os.DirEntry, err error) error {
				if err == nil && !e.IsDir() && strings.Contains(path, "/%wk/") {
					found = append(found, path)
				}
				if errors.Is(err, os.ErrNotExist) {
					return nil
				}
				return err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}
