package main

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// condition says what must hold of an object for it to be written.
type condition struct {
	Absent  bool
	Version uint64 // 0: any
}

// conditionFlags are those of the commands that write objects.
func conditionFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "if-absent", Usage: "only when there is no such object yet"},
		versionFlag("only when the object has version `N`, as sheaf stat tells it"),
	}
}

func versionFlag(usage string) cli.Flag { return &cli.Uint64Flag{Name: "if-version", Usage: usage} }

func conditionOf(c *cli.Context) (condition, error) {
	o := condition{Absent: c.Bool("if-absent"), Version: c.Uint64("if-version")}
	switch {
	case c.IsSet("if-version") && o.Version == 0:
		return o, usagef(c, "--if-version 0: want a version, as 'sheaf stat' tells it, or --if-absent")
	case o.Absent && o.Version != 0:
		return o, usagef(c, "--if-absent and --if-version can't both hold")
	}
	return o, nil
}

// attrsOf reads the values of --attr.
func attrsOf(c *cli.Context) (map[string]string, error) {
	list := c.StringSlice("attr")
	if len(list) == 0 {
		return nil, nil
	}
	attrs := make(map[string]string, len(list))
	for _, s := range list {
		k, v, ok := strings.Cut(s, "=")
		if !ok || k == "" {
			return nil, usagef(c, "attribute %q: want KEY=VALUE", s)
		}
		if _, there := attrs[k]; there {
			return nil, usagef(c, "attribute %q is given twice", k)
		}
		attrs[k] = v
	}
	return attrs, nil
}

// onlyWhole refuses flags that say something of one object when -r names many.
func onlyWhole(c *cli.Context, flags ...string) error {
	if !c.Bool("r") {
		return nil
	}
	for _, f := range flags {
		if c.IsSet(f) {
			return usagef(c, "--%s is about one object: it doesn't go with -r", f)
		}
	}
	return nil
}
