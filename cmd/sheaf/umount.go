package main

import (
	"errors"

	"github.com/urfave/cli/v2"

	"sheaf/fusefs"
	"sheaf/internal/errs"
)

func (p *program) umountCommand() *cli.Command {
	return &cli.Command{
		Name: "umount", Usage: "end a mount, also one whose process is dead",
		ArgsUsage:   "MOUNTPOINT",
		Description: `Refuses while a process uses the mount.`,
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "one MOUNTPOINT")
			if err != nil {
				return err
			}
			err = fusefs.Unmount(a[0], false)
			if errs.IsCode(err, errs.NotFound) || errs.IsCode(err, errs.InvalidArgument) {
				// The folder is there, or needn't be, and the usage is right: it failed.
				return errors.New(rootCause(err))
			}
			return err
		},
	}
}
