package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// home is the folder of what 'sheaf up' keeps for the other commands.
func home() (string, error) {
	if h := os.Getenv("SHEAF_HOME"); h != "" {
		return filepath.Abs(h)
	}
	h, err := os.UserHomeDir()
	if err != nil {
		return "", errs.New(errs.InvalidArgument, "", "neither SHEAF_HOME nor HOME is set")
	}
	return filepath.Join(h, ".config", "sheaf"), nil
}

// inHome is dir when it is set, else name below home.
func inHome(dir string, name ...string) (string, error) {
	if dir != "" {
		return filepath.Abs(dir)
	}
	h, err := home()
	return filepath.Join(append([]string{h}, name...)...), err
}

const endpointName = "endpoint"

// readEndpoint gives what writeEndpoint wrote.
func readEndpoint() (string, error) {
	h, err := home()
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join(h, endpointName))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errs.New(errs.Unavailable, "", "no cluster: start one with 'sheaf up' or name one with --endpoint")
	case err != nil:
		return "", errs.Wrap(errs.CodeOf(err), "read endpoint", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// writeEndpoint makes endpoint the default of the client commands. The returned
// function takes it back, unless another cluster has taken its place.
func writeEndpoint(endpoint string) (remove func(), err error) {
	h, err := home()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(h, 0o700); err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "write endpoint", err)
	}
	path := filepath.Join(h, endpointName)
	out, err := createOutput(path)
	if err == nil {
		_, err = fmt.Fprintln(out, endpoint)
		err = out.finish(err)
	}
	if err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "write endpoint", err)
	}
	return func() {
		if now, err := readEndpoint(); err == nil && now == endpoint {
			_ = os.Remove(path)
		}
	}, nil
}

// ensureCerts makes what a certificate folder lacks: the CA, a node's certificate, a
// writer's. A lock on the folder keeps two processes from making two CAs.
func ensureCerts(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return errs.Wrap(errs.CodeOf(err), "make certificate folder", err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return errs.Wrap(errs.CodeOf(err), "open certificate folder", err)
	}
	defer d.Close()
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		return errs.Wrap(errs.CodeOf(err), "lock certificate folder", err)
	}
	fresh := !exists(filepath.Join(dir, peer.CACert))
	if fresh {
		if err := peer.InitCA(dir); err != nil {
			return err
		}
	}
	for _, c := range []struct {
		file string
		role peer.Role
	}{{peer.NodeName, peer.NodeRole}, {peer.ClientName, peer.Admin}} {
		if !fresh && exists(filepath.Join(dir, c.file+".crt")) {
			continue
		}
		if err := peer.Issue(dir, dir, c.file, c.file, c.role); err != nil {
			return err
		}
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
