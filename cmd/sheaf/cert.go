package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func (p *program) certCommand() *cli.Command {
	return &cli.Command{
		Name: "cert", Usage: "make a cluster's certificates",
		Subcommands: []*cli.Command{{
			Name: "init", Usage: "make a cluster CA, with a node's and a writer's certificate",
			Description: `Writes ca.crt, ca.key, node.crt, node.key, client.crt and client.key. Whoever has
ca.key can make certificates: keep it where nodes and clients aren't.`,
			Flags: []cli.Flag{certsFlag()},
			Action: func(c *cli.Context) error {
				if _, err := positional(c, 0, 0, "no arguments"); err != nil {
					return err
				}
				dir, err := inHome(c.String("certs"), "certs")
				if err != nil {
					return err
				}
				return p.certInit(dir)
			},
		}, {
			Name: "issue", Usage: "make one more certificate",
			Description: `Writes ca.crt and node.crt, node.key for a node, client.crt, client.key for a writer or
reader, to a folder that --certs of the other commands can name.`,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "role", Usage: "`ROLE` that it entitles to: reader, writer or node"},
				&cli.StringFlag{Name: "name", Usage: "`NAME` of its holder, for logs"},
				&cli.StringFlag{Name: "out", Usage: "`DIR` to write to"},
				&cli.StringFlag{Name: "certs", Usage: "`DIR` of the CA (default $SHEAF_HOME/certs)", EnvVars: []string{"SHEAF_CERTS"}},
			},
			Action: func(c *cli.Context) error {
				if _, err := positional(c, 0, 0, "no arguments"); err != nil {
					return err
				}
				for _, f := range []string{"role", "name", "out"} {
					if c.String(f) == "" {
						return usagef(c, "want --%s", f)
					}
				}
				o := certOptions{Name: c.String("name")}
				var err error
				if o.Role, err = peer.ParseRole(c.String("role")); err != nil {
					return usagef(c, "role %q: want reader, writer or node", c.String("role"))
				}
				if o.Out, err = filepath.Abs(c.String("out")); err != nil {
					return err
				}
				if o.CA, err = inHome(c.String("certs"), "certs"); err != nil {
					return err
				}
				return p.certIssue(o)
			},
		}},
	}
}

func (p *program) certInit(dir string) error {
	if ca := filepath.Join(dir, peer.CACert); exists(ca) {
		return errs.New(errs.AlreadyExists, "", ca+" is there already")
	}
	if err := ensureCerts(dir); err != nil {
		return err
	}
	_, err := fmt.Fprintln(p.stdout, dir)
	return err
}

// certOptions say what certificate is made.
type certOptions struct {
	CA, Out string // folders
	Name    string
	Role    peer.Role
}

func (p *program) certIssue(o certOptions) error {
	file := peer.ClientName
	if o.Role == peer.NodeRole {
		file = peer.NodeName
	}
	crt := filepath.Join(o.Out, file+".crt")
	if exists(crt) {
		return errs.New(errs.AlreadyExists, "", crt+" is there already")
	}
	// A folder has one ca.crt: another cluster's certificates there would lose theirs.
	there, err := os.ReadFile(filepath.Join(o.Out, peer.CACert))
	if err == nil {
		ours, err := os.ReadFile(filepath.Join(o.CA, peer.CACert))
		if err == nil && !bytes.Equal(there, ours) {
			return errs.New(errs.AlreadyExists, "", o.Out+" holds certificates of another CA")
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := peer.Issue(o.CA, o.Out, file, o.Name, o.Role); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, crt)
	return err
}
