package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
)

const configFlag = "config"

// readConfig gives the flags of c that neither the command line nor the environment
// gave the values that the file at path has for them. A line is "flag = value"; a flag
// that may be given several times may stand on several lines; "#" begins a comment line.
func readConfig(c *cli.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	known := map[string]cli.Flag{}
	for _, fl := range c.Command.Flags {
		if name := fl.Names()[0]; name != configFlag {
			known[name] = fl
		}
	}
	given, here := map[string]bool{}, map[string]bool{}
	for name := range known {
		given[name] = c.IsSet(name)
	}
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		bad := func(format string, a ...any) error {
			return errs.New(errs.InvalidArgument, "", fmt.Sprintf("%s:%d: %s", path, n, fmt.Sprintf(format, a...)))
		}
		name, value, ok := strings.Cut(line, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		fl := known[name]
		_, list := fl.(*cli.StringSliceFlag)
		switch {
		case !ok:
			return bad("%q: want flag = value", line)
		case fl == nil:
			return bad("no flag %q", name)
		case here[name] && !list:
			return bad("%s is there twice", name)
		}
		here[name] = true
		if given[name] {
			continue
		}
		if err := c.Set(name, value); err != nil {
			return bad("%s = %s: %v", name, value, err)
		}
	}
	return lines.Err()
}
