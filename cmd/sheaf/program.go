package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v2"

	"sheaf/server"
)

// program is one run of the command line.
type program struct {
	stdin, stdout, stderr *os.File
}

const description = `Every client command finds the cluster by --endpoint (or SHEAF_ENDPOINT), else by
the file that 'sheaf up' wrote to $SHEAF_HOME/endpoint, and its certificate in
--certs (or SHEAF_CERTS), else in $SHEAF_HOME/certs. SHEAF_HOME is ~/.config/sheaf
unless set. Flags may stand before or after a command's arguments.

Exit status: 0 fine, 1 failed, 2 usage, 3 not found, 4 refused, 5 unavailable.`

// app builds the command tree anew: cli changes it as it runs.
func (p *program) app() *cli.App {
	a := &cli.App{
		Name:        "sheaf",
		Usage:       "a storage cluster that serves training batches",
		Description: description,
		Version:     server.Version,
		Flags:       clientFlags(),
		Commands: []*cli.Command{
			p.upCommand(), p.serveCommand(), p.mountCommand(), p.umountCommand(),
			p.bucketCommand(), p.putCommand(), p.getCommand(), p.lsCommand(), p.statCommand(), p.cpCommand(), p.mvCommand(), p.rmCommand(), p.evictCommand(),
			p.batchCommand(), p.clusterCommand(), p.certCommand(), p.versionCommand(),
		},
		Writer:                    p.stdout,
		ErrWriter:                 p.stderr,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true, // a folder's name may contain a comma
		ExitErrHandler:            func(*cli.Context, error) {},
	}
	usage := func(c *cli.Context, err error, _ bool) error { return usagef(c, "%v", err) }
	a.OnUsageError = usage
	prepare(a.Commands, "sheaf", usage)
	return a
}

// prepare completes the commands below the one called path.
func prepare(cmds []*cli.Command, path string, usage cli.OnUsageErrorFunc) {
	for _, c := range cmds {
		c.OnUsageError = usage
		c.HideHelpCommand = true
		if len(c.Subcommands) > 0 {
			c.UsageText = path + " " + c.Name + " command [command options]"
		}
		prepare(c.Subcommands, path+" "+c.Name, usage)
	}
}

// run executes argv and gives the exit status.
func (p *program) run(ctx context.Context, argv []string) int {
	a := p.app()
	argv, err := arrange(a.Flags, a.Commands, argv)
	if err == nil {
		err = a.RunContext(ctx, argv)
	}
	return p.report(ctx, err)
}

// positional gives a command's arguments when there are least to most of them.
func positional(c *cli.Context, least, most int, want string) ([]string, error) {
	if n := c.NArg(); n < least || n > most {
		return nil, usagef(c, "want %s", want)
	}
	return c.Args().Slice(), nil
}
