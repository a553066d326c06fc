package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// arrange rewrites argv so that flags may stand anywhere: cli stops at the first
// argument that isn't one. The result is
//
//	sheaf [root's own flags] command [subcommand] [flags] [-- arguments]
//
// A flag of the root may stand after the command, one of the command's that the root
// has too before it. "--" ends the flags; a lone "-" is an argument; "sheaf help X" is
// "sheaf X --help". Flags are long or one letter, with one or two dashes. The error
// is a *usageError.
func arrange(root []cli.Flag, commands []*cli.Command, argv []string) ([]string, error) {
	if len(argv) == 0 {
		return argv, nil
	}
	a := &arranger{root: kinds(root, "version", "v"), commands: commands}
	a.here = a.root
	rest := argv[1:]
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		switch {
		case arg == "--":
			for _, word := range rest {
				if err := a.word(word); err != nil {
					return nil, err
				}
			}
			rest = nil
		case len(arg) > 1 && arg[0] == '-':
			used, err := a.flag(arg, rest)
			if err != nil {
				return nil, err
			}
			rest = rest[used:]
		default:
			if err := a.word(arg); err != nil {
				return nil, err
			}
		}
	}
	return a.result(argv[0])
}

// kinds maps the names of flags to whether they take a value; help is one everywhere.
func kinds(flags []cli.Flag, more ...string) map[string]bool {
	m := map[string]bool{"help": false, "h": false}
	for _, n := range more {
		m[n] = false
	}
	for _, f := range flags {
		d, ok := f.(cli.DocGenerationFlag)
		for _, n := range f.Names() {
			m[n] = ok && d.TakesValue()
		}
	}
	return m
}

// arranger sorts the words of a command line. It goes down the command tree as it
// meets commands' names.
type arranger struct {
	root map[string]bool // flags of sheaf itself

	commands []*cli.Command  // what the next word may name; nil below a command without subcommands
	here     map[string]bool // flags of the command so far
	path     []string
	help     bool

	before []option // flags of the root that came before the command's name
	flags  []option
	words  []string
}

// option is a flag with its value, as it was written.
type option struct {
	name string
	args []string
}

func (a *arranger) usage(format string, args ...any) error {
	return &usageError{command: strings.Join(a.path, " "), msg: fmt.Sprintf(format, args...)}
}

// flag takes one flag and tells how many further arguments it used up.
func (a *arranger) flag(arg string, rest []string) (used int, err error) {
	name, _, inline := strings.Cut(strings.TrimPrefix(arg[1:], "-"), "=")
	value, known := a.here[name]
	if !known && len(a.commands) > 0 && name != "version" && name != "v" {
		value, known = a.root[name]
	}
	if !known {
		return 0, a.usage("unknown flag %s", strings.SplitN(arg, "=", 2)[0])
	}
	o := option{name: name, args: []string{arg}}
	if value && !inline {
		if len(rest) == 0 {
			return 0, a.usage("flag %s needs a value", arg)
		}
		o.args, used = append(o.args, rest[0]), 1
	}
	if len(a.path) == 0 {
		a.before = append(a.before, o)
	} else {
		a.flags = append(a.flags, o)
	}
	return used, nil
}

// word takes a word that isn't a flag: the name of a command, or an argument.
func (a *arranger) word(word string) error {
	if len(a.commands) == 0 && len(a.path) > 0 {
		a.words = append(a.words, word)
		return nil
	}
	if word == "help" && len(a.path) == 0 && !a.help {
		a.help = true
		return nil
	}
	for _, c := range a.commands {
		if c.HasName(word) {
			a.path = append(a.path, c.Name)
			a.commands, a.here = c.Subcommands, kinds(c.Flags)
			return nil
		}
	}
	return a.usage("unknown command %q", word)
}

func (o option) is(names ...string) bool { return slices.Contains(names, o.name) }

func (a *arranger) result(name string) ([]string, error) {
	help := func(o option) bool { return o.is("help", "h") }
	here := a.help || slices.ContainsFunc(a.flags, help) // help about the command itself
	root := slices.ContainsFunc(a.before, func(o option) bool { return help(o) || o.is("version", "v") })
	if len(a.commands) > 0 && !here && !root {
		var names []string
		for _, c := range a.commands {
			names = append(names, c.Name)
		}
		return nil, a.usage("want a command: %s", strings.Join(names, ", "))
	}
	out := []string{name}
	var inner []string
	for _, o := range a.before {
		// A flag that the command doesn't know says nothing to it: it stays with sheaf.
		if _, ok := a.here[o.name]; ok && len(a.path) > 0 && !help(o) {
			inner = append(inner, o.args...)
		} else {
			out = append(out, o.args...)
		}
	}
	out = append(append(out, a.path...), inner...)
	for _, o := range a.flags {
		if _, ok := a.here[o.name]; ok {
			out = append(out, o.args...)
		}
	}
	if a.help {
		out = append(out, "--help")
	}
	if len(a.words) > 0 && !here { // with help cli would take them for topics
		out = append(append(out, "--"), a.words...)
	}
	return out, nil
}
