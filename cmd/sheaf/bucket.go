package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer"
)

func (p *program) bucketCommand() *cli.Command {
	named := func(c *cli.Context) (string, error) {
		a, err := positional(c, 1, 1, "the NAME of one bucket")
		if err != nil {
			return "", err
		}
		return a[0], names.CheckBucket(a[0])
	}
	return &cli.Command{
		Name: "bucket", Usage: "make, list, show and remove buckets",
		Subcommands: []*cli.Command{{
			Name: "create", Usage: "make a bucket", ArgsUsage: "NAME", Flags: withClient(),
			Action: func(c *cli.Context) error {
				name, err := named(c)
				if err != nil {
					return err
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return cl.CreateBucket(c.Context, name, peer.BucketProps{}) })
			},
		}, {
			Name: "ls", Usage: "list the buckets",
			Description: `With --json each line is an object: {"name","provider","created"}.`,
			Flags:       withClient(&cli.BoolFlag{Name: "l", Usage: "with the time they were made"}, jsonFlag()),
			Action: func(c *cli.Context) error {
				if _, err := positional(c, 0, 0, "no arguments"); err != nil {
					return err
				}
				return p.bucketLs(c.Context, clientOptionsOf(c), bucketLsOptions{Long: c.Bool("l"), JSON: c.Bool("json")})
			},
		}, {
			Name: "show", Usage: "tell about a bucket", ArgsUsage: "NAME",
			Description: `With --json one object: {"name","provider","created"}.`,
			Flags:       withClient(jsonFlag()),
			Action: func(c *cli.Context) error {
				name, err := named(c)
				if err != nil {
					return err
				}
				return p.bucketShow(c.Context, clientOptionsOf(c), bucketShowOptions{Name: name, JSON: c.Bool("json")})
			},
		}, {
			Name: "rm", Usage: "remove a bucket, refusing one that holds objects", ArgsUsage: "NAME",
			Flags: withClient(&cli.BoolFlag{Name: "force", Usage: "with all its objects"}),
			Action: func(c *cli.Context) error {
				name, err := named(c)
				if err != nil {
					return err
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error {
					return cl.DestroyBucket(c.Context, name, c.Bool("force"))
				})
			},
		}},
	}
}

// bucketJSON is a bucket as --json shows it.
type bucketJSON struct {
	Name     string    `json:"name"`
	Provider string    `json:"provider"`
	Created  time.Time `json:"created"`
}

func bucketJSONOf(b *peer.BucketInfo) bucketJSON {
	return bucketJSON{Name: b.Name, Provider: b.Provider, Created: b.Created.UTC()}
}

// bucketLsOptions say how the buckets are listed.
type bucketLsOptions struct{ Long, JSON bool }

func (p *program) bucketLs(ctx context.Context, co clientOptions, o bucketLsOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		list, err := c.Buckets(ctx)
		if err != nil {
			return err
		}
		return buffered(p.stdout, func(w *bufio.Writer) error {
			for i := range list {
				var err error
				switch {
				case o.JSON:
					err = writeJSON(w, bucketJSONOf(&list[i]))
				case o.Long:
					_, err = fmt.Fprintf(w, "%s  %s\n", formatTime(list[i].Created), list[i].Name)
				default:
					_, err = fmt.Fprintln(w, list[i].Name)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// bucketShowOptions say which bucket is described, and how.
type bucketShowOptions struct {
	Name string
	JSON bool
}

func (p *program) bucketShow(ctx context.Context, co clientOptions, o bucketShowOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		list, err := c.Buckets(ctx)
		if err != nil {
			return err
		}
		for i := range list {
			b := &list[i]
			switch {
			case b.Name != o.Name:
				continue
			case o.JSON:
				return writeJSON(p.stdout, bucketJSONOf(b))
			}
			return table(p.stdout, [][]string{{"name:", b.Name}, {"provider:", b.Provider}, {"created:", formatTime(b.Created)}})
		}
		return &errs.Error{Code: errs.BucketNotFound, Op: "bucket show", Bucket: o.Name}
	})
}
