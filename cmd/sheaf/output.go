package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"sheaf/internal/errs"
)

// output is a file being written. A regular file is written under another name beside
// its own, which it gets when it is whole; anything else (a device, a pipe) is
// written as it is.
type output struct {
	f    *os.File
	path string
	tmp  string // "" when f is the file itself
}

// createOutput begins to write the file at path. finish must follow.
func createOutput(path string) (*output, error) {
	if to, err := filepath.EvalSymlinks(path); err == nil {
		path = to // what a link names is replaced, not the link
	}
	mode := fs.FileMode(0o666) // less the umask
	fi, err := os.Stat(path)
	switch {
	case err == nil && fi.IsDir():
		return nil, errs.New(errs.IsDirectory, "write", path)
	case err == nil && !fi.Mode().IsRegular():
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return nil, err
		}
		return &output{f: f, path: path}, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	tmp := filepath.Join(filepath.Dir(path), fmt.Sprintf(".sheaf-%s.part", rand.Text()))
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	if fi != nil {
		_ = f.Chmod(fi.Mode().Perm()) // at worst the file has a new one's rights
	}
	return &output{f: f, path: path, tmp: tmp}, nil
}

// Write implements io.Writer.
func (o *output) Write(p []byte) (int, error) { return o.f.Write(p) }

// finish ends the file: with the error that its writer met, nothing of it stays.
func (o *output) finish(err error) error {
	if e := o.f.Close(); err == nil {
		err = e
	}
	if o.tmp == "" {
		return err
	}
	if err == nil {
		err = os.Rename(o.tmp, o.path)
	}
	if err != nil {
		_ = os.Remove(o.tmp)
	}
	return err
}

// write hands the command's destination to fn: stdout for "" and "-", else a file.
func (p *program) write(path string, fn func(f *os.File) error) error {
	if path == "" || path == "-" {
		return fn(p.stdout)
	}
	out, err := createOutput(path)
	if err != nil {
		return err
	}
	return out.finish(fn(out.f))
}
