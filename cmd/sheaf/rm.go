package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func (p *program) rmCommand() *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "remove an object, or with -r all below a prefix",
		ArgsUsage: "BUCKET/OBJECT | -r BUCKET/PREFIX",
		Description: `With -r the object PREFIX goes and all whose names begin with PREFIX/; BUCKET/ means
every object of the bucket. The bucket itself stays: see 'sheaf bucket rm'.`,
		Flags: withClient(
			&cli.BoolFlag{Name: "r", Usage: "all below a prefix"},
			versionFlag("only when the object has version `N`, as sheaf stat tells it"),
		),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "BUCKET/OBJECT")
			if err != nil {
				return err
			}
			cond, err := conditionOf(c)
			if err != nil {
				return err
			}
			if err := onlyWhole(c, "if-version"); err != nil {
				return err
			}
			if !c.Bool("r") {
				o, err := parseWhole(a[0])
				if err != nil {
					return err
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error {
					if cond.Version != 0 {
						return cl.DeleteIf(c.Context, o.Bucket, o.Name, cond.Version)
					}
					return cl.Delete(c.Context, o.Bucket, o.Name)
				})
			}
			bucket, prefix, slash, err := parsePrefix(a[0])
			if err != nil {
				return err
			}
			if !slash {
				return usagef(c, "%q is a bucket: want %s/ for all its objects, or 'sheaf bucket rm'", a[0], a[0])
			}
			return p.rmTree(c.Context, clientOptionsOf(c), rmOptions{Bucket: bucket, Prefix: prefix})
		},
	}
}

// rmOptions say what is removed with all below it.
type rmOptions struct{ Bucket, Prefix string }

func (p *program) rmTree(ctx context.Context, co clientOptions, o rmOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		var removed atomic.Int64
		err := eachBelow(ctx, c, o.Bucket, o.Prefix, func(i *peer.ObjectInfo) error {
			err := c.Delete(ctx, o.Bucket, i.Name)
			switch {
			case err == nil:
				removed.Add(1)
			case errs.IsCode(err, errs.NotFound): // somebody else was faster
				return nil
			}
			return err
		})
		if n := removed.Load(); n > 0 {
			fmt.Fprintf(p.stderr, "removed %s\n", plural(n, "object", "objects"))
		} else if err == nil && o.Prefix != "" {
			err = &errs.Error{Code: errs.NotFound, Op: "rm", Bucket: o.Bucket, Object: o.Prefix, Msg: "nothing of that name, and nothing below it"}
		}
		return err
	})
}
