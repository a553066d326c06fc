package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	readyWait = 60 * time.Second // for the line that says ready
	stopWait  = 20 * time.Second // for the end after SIGINT; then SIGKILL
)

// Service is a running `sheaf up` or `sheaf serve`.
type Service struct {
	name     string
	cmd      *exec.Cmd
	lines    []string // stdout up to the line that began with "ready"
	done     chan struct{}
	stopOnce sync.Once
	stopErr  error

	mu      sync.Mutex
	log     []byte // the end of stderr
	waitErr error
}

// Start starts a service and waits until it is ready. When ctx ends, the service is
// stopped, and with it whatever waits for its mount.
func (h *Home) Start(ctx context.Context, args ...string) (*Service, error) {
	s := &Service{name: "sheaf " + args[0], cmd: exec.Command(h.binary, args...), done: make(chan struct{})}
	s.cmd.Env, s.cmd.Dir, s.cmd.Stderr = h.env, h.dir, s
	// A group of its own: Ctrl-C on a terminal reaches us alone, and we stop the service in
	// our order. If we are killed, it ends as well (with the thread that started it, and Go
	// ends threads only when a goroutine ends that was locked to one).
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan bool, 1)
	go func() { // ends with the process, which Stop ends
		defer close(s.done)
		r := bufio.NewReader(out)
		ready <- s.readLines(r)
		_, _ = io.Copy(io.Discard, r)
		err := s.cmd.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waitErr = err
	}()
	context.AfterFunc(ctx, func() { _ = s.Stop() })
	select {
	case ok := <-ready:
		if !ok {
			if err := s.Stop(); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("%s ended before it was ready: %s", s.name, s.stderr())
		}
		h.services = append(h.services, s)
		return s, nil
	case <-time.After(readyWait):
		return nil, errors.Join(fmt.Errorf("%s is not ready after %v", s.name, readyWait), s.Stop())
	}
}

// readLines reads up to the line that says ready.
func (s *Service) readLines(r *bufio.Reader) bool {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return false
		}
		s.lines = append(s.lines, strings.TrimSuffix(line, "\n"))
		if strings.HasPrefix(line, "ready ") {
			return true
		}
	}
}

// Endpoint is what the service said behind "ready".
func (s *Service) Endpoint() string { return strings.TrimPrefix(s.lines[len(s.lines)-1], "ready ") }

// Lines are what the service said until it was ready.
func (s *Service) Lines() []string { return s.lines }

// PID is the process.
func (s *Service) PID() int { return s.cmd.Process.Pid }

// Write keeps the end of stderr; it implements io.Writer.
func (s *Service) Write(p []byte) (int, error) {
	const most = 4 << 10
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, p...)
	s.log = s.log[max(0, len(s.log)-most):]
	return len(p), nil
}

func (s *Service) stderr() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.TrimSpace(string(s.log))
}

// Stop ends the service as Ctrl-C does and waits; one that doesn't end is killed, which
// is an error, as is an exit status other than 0. Further calls return the same.
func (s *Service) Stop() error {
	s.stopOnce.Do(func() {
		_ = s.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-s.done:
		case <-time.After(stopWait):
			_ = s.cmd.Process.Kill()
			<-s.done
			s.stopErr = fmt.Errorf("%s had to be killed", s.name)
			return
		}
		s.mu.Lock()
		err := s.waitErr
		s.mu.Unlock()
		if err != nil {
			s.stopErr = fmt.Errorf("%s: %w: %s", s.name, err, s.stderr())
		}
	})
	return s.stopErr
}
