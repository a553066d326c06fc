package main

import "github.com/urfave/cli/v2"

func (p *program) mvCommand() *cli.Command {
	return p.copyCommand("mv", "rename an object, or with -r all below a prefix", true,
		`A reader of DST finds the object that was there before, or SRC's, and never a part of
one; SRC is there until DST is. When SRC is written to meanwhile both are there, and it
fails. DST as in BUCKET/ or BUCKET/dir/ takes SRC's own name behind it.

With -r SRC and DST are prefixes, as for 'sheaf rm': SRC/x becomes DST/x, one object after
the other, so when it fails some are moved and others aren't. Neither may lie in the other.

With --json one object as 'sheaf stat --json' gives it.`)
}
