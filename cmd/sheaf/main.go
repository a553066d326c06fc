package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// quic-go prints a hint about the kernel's buffer sizes to stderr, which belongs to
	// the user's errors.
	_ = os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")

	// A reader of stdout that goes away is an error like any other (see report): a client
	// hangs up first, and a mount or a node lives on.
	signal.Ignore(syscall.SIGPIPE)

	stops := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		stops = append(stops, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stops...)
	// After the first signal the default is back: a second one ends the process at once.
	context.AfterFunc(ctx, stop)

	p := &program{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	os.Exit(p.run(ctx, os.Args))
}
