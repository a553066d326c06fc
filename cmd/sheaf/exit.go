package main

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
)

// usageError is a command line that can't be understood.
type usageError struct {
	command string // "bucket create"; "" for sheaf itself
	msg     string
}

func (e *usageError) Error() string {
	full := "sheaf"
	prefix := ""
	if e.command != "" {
		full += " " + e.command
		prefix = e.command + ": "
	}
	return fmt.Sprintf("%s%s; see '%s --help'", prefix, e.msg, full)
}

// usagef makes the usage error of the command that c belongs to.
func usagef(c *cli.Context, format string, a ...any) error {
	return &usageError{command: commandPath(c), msg: fmt.Sprintf(format, a...)}
}

func commandPath(c *cli.Context) string {
	path := ""
	for _, l := range c.Lineage() {
		if l.Command == nil || l.Command.Name == "" || l.Command.Name == c.App.Name {
			continue
		}
		if path != "" {
			path = " " + path
		}
		path = l.Command.Name + path
	}
	return path
}

// relayed is the failure of another process, with the status it chose.
type relayed struct {
	status int
	msg    string
}

func (e *relayed) Error() string { return e.msg }

// exitPipe is how a shell shows a program that died of SIGPIPE.
const exitPipe = 128 + int(syscall.SIGPIPE)

// report tells the user why a command failed and gives the exit status: the only
// place where an error becomes one.
func (p *program) report(ctx context.Context, err error) int {
	if err == nil {
		return errs.ExitOK
	}
	var usage *usageError
	var other *relayed
	switch {
	case errors.As(err, &usage):
		p.errorf("%v", usage)
		return errs.ExitUsage
	case errors.As(err, &other):
		p.errorf("%s", other.msg)
		return other.status
	case errors.Is(err, syscall.EPIPE):
		return exitPipe // as with cat and head, nobody wants to read of it
	case ctx.Err() != nil && errs.IsCode(err, errs.Canceled):
		p.errorf("interrupted")
	default:
		p.errorf("%v", err)
	}
	return errs.Exit(err)
}

// errorf writes one line to stderr.
func (p *program) errorf(format string, a ...any) {
	fmt.Fprintf(p.stderr, "sheaf: "+format+"\n", a...)
}

// rootCause gives the text of the innermost cause, without the codes around it.
func rootCause(err error) string {
	var e *errs.Error
	for errors.As(err, &e) {
		if e.Err == nil {
			if e.Msg != "" {
				return e.Msg
			}
			break
		}
		err = e.Err
	}
	return err.Error()
}
