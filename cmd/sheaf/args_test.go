package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestArrange(t *testing.T) {
	str := func(name string, alias ...string) cli.Flag { return &cli.StringFlag{Name: name, Aliases: alias} }
	root := []cli.Flag{str("endpoint"), str("certs")}
	commands := []*cli.Command{
		{Name: "get", Flags: []cli.Flag{str("endpoint"), str("certs"), str("range"), str("o"), &cli.BoolFlag{Name: "q"}, &cli.IntFlag{Name: "n", Aliases: []string{"count"}}}},
		{Name: "bucket", Subcommands: []*cli.Command{
			{Name: "rm", Flags: []cli.Flag{str("endpoint"), &cli.BoolFlag{Name: "force"}}},
			{Name: "ls", Aliases: []string{"list"}, Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}}},
		}},
		{Name: "version"},
	}
	for _, c := range []struct{ in, want string }{
		{"get b/x", "get -- b/x"},
		{"get b/x -o f", "get -o f -- b/x"},
		{"get b/x -o=f --q", "get -o=f --q -- b/x"},
		{"get --q b/x", "get --q -- b/x"},
		{"get -q b/x y", "get -q -- b/x y"},
		{"get b/x --range -1:5", "get --range -1:5 -- b/x"},
		{"get b/x --count 3", "get --count 3 -- b/x"},
		{"get -", "get -- -"},
		{"get -o - -", "get -o - -- -"},
		{"get -o -- b/x", "get -o -- -- b/x"},
		{"get -- -q b/x", "get -- -q b/x"},
		{"get b/x -- --help", "get -- b/x --help"},
		{"get", "get"},
		{"get --help", "get --help"},
		{"get b/x -h", "get -h"},
		{"get help", "get -- help"},
		{"get bucket rm", "get -- bucket rm"},
		{"--endpoint a:1 get b/x", "get --endpoint a:1 -- b/x"},
		{"-endpoint=a:1 --certs d get b/x", "get -endpoint=a:1 --certs d -- b/x"},
		{"--endpoint a:1 get --endpoint c:2 b/x", "get --endpoint a:1 --endpoint c:2 -- b/x"},
		{"--endpoint a:1 bucket rm b --force", "bucket rm --endpoint a:1 --force -- b"},
		{"bucket --endpoint a:1 rm b", "bucket rm --endpoint a:1 -- b"},
		{"--endpoint a:1 bucket ls", "--endpoint a:1 bucket ls"},
		{"bucket --endpoint a:1 ls", "bucket ls"},
		{"bucket list --json", "bucket ls --json"},
		{"bucket --help", "bucket --help"},
		{"bucket rm --help", "bucket rm --help"},
		{"--endpoint a:1 version", "--endpoint a:1 version"},
		{"--help", "--help"},
		{"-h", "-h"},
		{"--version", "--version"},
		{"-v", "-v"},
		{"help", "--help"},
		{"help get", "get --help"},
		{"help bucket rm", "bucket rm --help"},
	} {
		got, err := arrange(root, commands, append([]string{"sheaf"}, strings.Fields(c.in)...))
		if want := append([]string{"sheaf"}, strings.Fields(c.want)...); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q, %v; want %q", c.in, got, err, want)
		}
	}
	for _, c := range []struct{ in, want string }{
		{"", `want a command: get, bucket, version; see 'sheaf --help'`},
		{"nope", `unknown command "nope"; see 'sheaf --help'`},
		{"bucket", `bucket: want a command: rm, ls; see 'sheaf bucket --help'`},
		{"bucket nope", `bucket: unknown command "nope"; see 'sheaf bucket --help'`},
		{"help nope", `unknown command "nope"; see 'sheaf --help'`},
		{"-- nope", `unknown command "nope"; see 'sheaf --help'`},
		{"get --nope", `get: unknown flag --nope; see 'sheaf get --help'`},
		{"get -x=1 b", `get: unknown flag -x; see 'sheaf get --help'`},
		{"get ---o f", `get: unknown flag ---o; see 'sheaf get --help'`},
		{"get b -o", `get: flag -o needs a value; see 'sheaf get --help'`},
		{"get --version", `get: unknown flag --version; see 'sheaf get --help'`},
		{"bucket --version", `bucket: unknown flag --version; see 'sheaf bucket --help'`},
		{"bucket --force rm b", `bucket: unknown flag --force; see 'sheaf bucket --help'`},
		{"--endpoint", `flag --endpoint needs a value; see 'sheaf --help'`},
		{"--q get b", `unknown flag --q; see 'sheaf --help'`},
	} {
		_, err := arrange(root, commands, append([]string{"sheaf"}, strings.Fields(c.in)...))
		var u *usageError
		if !errors.As(err, &u) || err.Error() != c.want {
			t.Errorf("%q: %v, want %s", c.in, err, c.want)
		}
	}
}

// Every flag of every command must be known to arrange with the right shape.
func TestArrangeKnowsAllFlags(t *testing.T) {
	p := &program{}
	a := p.app()
	var walk func(path []string, cmds []*cli.Command)
	walk = func(path []string, cmds []*cli.Command) {
		for _, c := range cmds {
			here := append(slices.Clone(path), c.Name)
			walk(here, c.Subcommands)
			if len(c.Subcommands) > 0 {
				continue
			}
			for _, f := range c.Flags {
				_, isBool := f.(*cli.BoolFlag)
				for _, n := range f.Names() {
					in := append(slices.Clone(here), "word", "--"+n)
					want := append(slices.Clone(here), "--"+n)
					if !isBool {
						in, want = append(in, "value"), append(want, "value")
					}
					want = append(want, "--", "word")
					got, err := arrange(a.Flags, a.Commands, append([]string{"sheaf"}, in...))
					if err != nil || !slices.Equal(got[1:], want) {
						t.Errorf("%q: %q, %v; want %q", in, got, err, want)
					}
				}
			}
		}
	}
	walk(nil, a.Commands)
}
