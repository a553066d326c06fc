package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// readyFlag names the descriptor on which the serving process tells the one that the
// user started how the mount went: "ok", or an exit status and a message.
const readyFlag = "ready-fd"

// mountDaemon starts a process that serves the mount and returns when it works.
func (p *program) mountDaemon(ctx context.Context, o mountOptions) error {
	logPath, err := inHome("", "log", "mount-"+escapePath(o.Mountpoint)+".log")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(logPath), 0o700); err != nil {
		return err
	}
	logFile, err := os.OpenFile(logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd, err := daemonCommand(o, logFile, w)
	if err == nil {
		err = cmd.Start()
	}
	w.Close()
	if err != nil {
		return errs.Wrap(errs.Internal, "start the mount's process", err)
	}
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })()
	answer, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	switch err := parseAnswer(string(answer)); {
	case err == nil:
		return cmd.Process.Release()
	case errors.Is(err, errNoAnswer):
		_ = cmd.Wait()
		return fmt.Errorf("the mount's process ended (%v): see %s", cmd.ProcessState, logPath)
	default:
		_ = cmd.Wait()
		var told *relayed
		if errors.As(err, &told) {
			told.msg += " (log: " + logPath + ")"
		}
		return err
	}
}

// daemonCommand is this program again, serving in a session of its own.
func daemonCommand(o mountOptions, log, ready *os.File) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	args := []string{"mount", "--foreground", "--" + readyFlag, "3", "--endpoint", o.Client.Endpoint, "--certs", o.Client.Certs,
		"--cache-dir", o.CacheDir, "--log-level", o.Log.Level, "--log-format", o.Log.Format}
	if o.AllowOther {
		args = append(args, "--allow-other")
	}
	// What the caller left open, a pipe of its own for one, isn't the daemon's to hold.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, append(args, "--", o.Mountpoint)...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{ready}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, nil
}

// tellParent gives the function by which the serving process answers, once.
func tellParent(fd int) func(error) {
	unix.CloseOnExec(fd)
	f := os.NewFile(uintptr(fd), "ready")
	return func(err error) {
		// A parent that is gone can't be told; the log has it too.
		_, _ = io.WriteString(f, formatAnswer(err))
		_ = f.Close()
	}
}

func formatAnswer(err error) string {
	if err == nil {
		return "ok\n"
	}
	return fmt.Sprintf("%d %s\n", errs.Exit(err), err)
}

var errNoAnswer = errors.New("no answer")

// parseAnswer reads what formatAnswer made.
func parseAnswer(s string) error {
	s, whole := strings.CutSuffix(s, "\n")
	if !whole {
		return errNoAnswer
	}
	if s == "ok" {
		return nil
	}
	status, msg, _ := strings.Cut(s, " ")
	n, err := strconv.Atoi(status)
	if err != nil || n <= 0 {
		return errNoAnswer
	}
	return &relayed{status: n, msg: msg}
}

// maxEscaped keeps a log's name within what a file may be called.
const maxEscaped = 200

// escapePath makes one file name of a path: "/mnt/x" is "mnt-x", and what isn't a
// letter, a digit, "." or "_" is %XX. Of a very long path the end is kept.
func escapePath(path string) string {
	var b strings.Builder
	for i, c := range []byte(strings.Trim(path, "/")) {
		switch {
		case c == '/':
			b.WriteByte('-')
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' && i > 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	s := b.String()
	return s[max(len(s)-maxEscaped, 0):]
}
