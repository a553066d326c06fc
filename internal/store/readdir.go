package store

import (
	"context"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readDir calls f for each entry of a folder, in no order. A folder that isn't there,
// or isn't one, has none.
func readDir(ctx context.Context, dir string, f func(os.DirEntry) error) error {
	d, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ENAMETOOLONG) || errors.Is(err, unix.ELOOP) {
		return nil
	} else if err != nil {
		return err
	}
	defer d.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := d.ReadDir(1024)
		for _, e := range entries {
			if err := f(e); err != nil {
				return err
			}
		}
		if err == io.EOF || errors.Is(err, unix.ENOENT) {
			return nil
		} else if err != nil {
			return err
		}
	}
}
