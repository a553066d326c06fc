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
			Name: "init", Usage: "make a cluster CA, with a node's and an admin's certificate",
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
			Description: `Writes ca.crt and node.crt, node.key for a node, client.crt, client.key for an admin,
writer or reader, to a folder that --certs of the other commands can name.

A reader reads objects, batches and listings; a writer also changes objects and
buckets; an admin also the cluster: nodes, their disks, where objects lie. With
--bucket, which may be given several times, a reader or writer has rights to these
buckets alone, and can't make, change or destroy any.`,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "role", Usage: "`ROLE` that it entitles to: reader, writer, admin or node"},
				&cli.StringSliceFlag{Name: "bucket", Usage: "`NAME[:r|rw]` of a bucket that it is for, with its rights there (default: those of the role); all buckets without this"},
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
				if o.Rights, err = parseRights(c.String("role"), c.StringSlice("bucket")); err != nil {
					return usagef(c, "%s", errs.Flatten(err).Msg)
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

// parseRights reads the flags that say what a certificate is for.
func parseRights(role string, buckets []string) (r peer.Rights, err error) {
	if r.Role, err = peer.ParseRole(role); err != nil {
		return r, err
	}
	for _, s := range buckets {
		b, right, err := peer.ParseBucketRight(s, r.Role)
		if err != nil {
			return r, err
		}
		if _, twice := r.Buckets[b]; twice {
			return r, errs.New(errs.InvalidArgument, "", "--bucket "+b+" is given twice")
		}
		if r.Buckets == nil {
			r.Buckets = map[string]peer.Role{}
		}
		r.Buckets[b] = right
	}
	return r, r.Check()
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
	Rights  peer.Rights
}

func (p *program) certIssue(o certOptions) error {
	file := peer.ClientName
	if o.Rights.Role == peer.NodeRole {
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
	if err := peer.IssueRights(o.CA, o.Out, file, o.Name, o.Rights); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, crt)
	return err
}
