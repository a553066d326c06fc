package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sheaf/server"
)

func (p *program) versionCommand() *cli.Command {
	return &cli.Command{
		Name: "version", Usage: "print the version",
		Action: func(c *cli.Context) error {
			if _, err := positional(c, 0, 0, "no arguments"); err != nil {
				return err
			}
			_, err := fmt.Fprintln(p.stdout, "sheaf version", server.Version)
			return err
		},
	}
}
