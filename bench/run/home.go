package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Home is a temporary folder with the clusters that run in it: SHEAF_HOME of every
// command. Not safe for concurrent use.
type Home struct {
	dir      string
	binary   string // absolute
	env      []string
	services []*Service // in the order of their start
}

// NewHome makes a Home below parent ("" for the system's temporary folder) for the
// program at binary. Close must follow.
func NewHome(binary, parent string) (*Home, error) {
	binary, err := filepath.Abs(binary)
	if err != nil {
		return nil, err
	}
	if fi, err := os.Stat(binary); err != nil || fi.IsDir() {
		return nil, fmt.Errorf("no program at %s: build it with `go build -o bin/sheaf ./cmd/sheaf`", binary)
	}
	dir, err := os.MkdirTemp(parent, "sheaf-")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil { // as the kernel names mounts
		return nil, err
	}
	h := &Home{dir: dir, binary: binary}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SHEAF_") {
			h.env = append(h.env, v)
		}
	}
	h.env = append(h.env, "SHEAF_HOME="+h.Path("home"))
	return h, nil
}

// Path names something in the folder.
func (h *Home) Path(elem ...string) string {
	return filepath.Join(append([]string{h.dir}, elem...)...)
}

// Certs is the folder of the certificates that the commands use.
func (h *Home) Certs() string { return h.Path("home", "certs") }

// MakeDir makes a folder and gives its path.
func (h *Home) MakeDir(elem ...string) (string, error) {
	dir := h.Path(elem...)
	return dir, os.MkdirAll(dir, 0o755)
}

// Sheaf runs a command to its end and gives its stdout.
func (h *Home) Sheaf(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, h.binary, args...)
	cmd.Env, cmd.Dir = h.env, h.dir
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("sheaf %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.Bytes(), nil
}

// Close stops all services, the last one first, and removes the folder. An error says
// what was not left as it should be: a service that failed, a mount that stayed.
func (h *Home) Close() error {
	var all []error
	for _, s := range slices.Backward(h.services) {
		all = append(all, s.Stop())
	}
	h.services = nil
	left, err := MountsBelow(h.dir)
	all = append(all, err)
	for _, m := range left {
		all = append(all, fmt.Errorf("still mounted: %s", m), detach(m))
	}
	return errors.Join(append(all, os.RemoveAll(h.dir))...)
}
