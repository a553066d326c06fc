package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

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
		Name: "bucket", Usage: "make, list, show, change and remove buckets",
		Subcommands: []*cli.Command{{
			Name: "create", Usage: "make a bucket", ArgsUsage: "NAME", Flags: withClient(propFlags()...),
			Description: propsHelp,
			Action: func(c *cli.Context) error {
				name, err := named(c)
				if err != nil {
					return err
				}
				props := bucketChangeOf(c).Apply(peer.BucketProps{}.WithDefaults())
				if err := props.Check(); err != nil {
					return err
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return cl.CreateBucket(c.Context, name, props) })
			},
		}, {
			Name: "set", Usage: "change a bucket's properties", ArgsUsage: "NAME", Flags: withClient(append(propFlags(), jsonFlag())...),
			Description: propsHelp + `

Objects follow in the background: 'sheaf cluster status --wait' waits for it. With --json
one object, as 'sheaf bucket show --json' gives it.`,
			Action: func(c *cli.Context) error {
				name, err := named(c)
				if err != nil {
					return err
				}
				ch := bucketChangeOf(c)
				if ch == (peer.BucketChange{}) {
					return usagef(c, "want at least one of --copies, --durability, --backend and --validate")
				}
				return p.bucketSet(c.Context, clientOptionsOf(c), bucketSetOptions{Name: name, Change: ch, JSON: c.Bool("json")})
			},
		}, {
			Name: "ls", Usage: "list the buckets",
			Description: `With --json each line is an object, as 'sheaf bucket show --json' gives it.`,
			Flags:       withClient(&cli.BoolFlag{Name: "l", Usage: "with the time they were made, copies, durability and backend"}, jsonFlag()),
			Action: func(c *cli.Context) error {
				if _, err := positional(c, 0, 0, "no arguments"); err != nil {
					return err
				}
				return p.bucketLs(c.Context, clientOptionsOf(c), bucketLsOptions{Long: c.Bool("l"), JSON: c.Bool("json")})
			},
		}, {
			Name: "show", Usage: "tell about a bucket", ArgsUsage: "NAME",
			Description: `With --json one object: {"name","provider","created","copies","durability","backend",
"validate"}.`,
			Flags: withClient(jsonFlag()),
			Action: func(c *cli.Context) error {
				name, err := named(c)
				if err != nil {
					return err
				}
				return p.bucketShow(c.Context, clientOptionsOf(c), bucketShowOptions{Name: name, JSON: c.Bool("json")})
			},
		}, p.bucketPrefetchCommand(), {
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
	peer.BucketProps
}

func bucketJSONOf(b *peer.BucketInfo) bucketJSON {
	return bucketJSON{Name: b.Name, Provider: b.Provider, Created: b.Created.UTC(), BucketProps: b.BucketProps}
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
			var rows [][]string
			for i := range list {
				b := &list[i]
				var err error
				switch {
				case o.JSON:
					err = writeJSON(w, bucketJSONOf(b))
				case o.Long:
					rows = append(rows, []string{formatTime(b.Created), plural(b.Copies, "copy", "copies"), b.Durability, dash(b.Backend), b.Name})
				default:
					_, err = fmt.Fprintln(w, b.Name)
				}
				if err != nil {
					return err
				}
			}
			return table(w, rows)
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
		b, err := c.Bucket(ctx, o.Name)
		if err != nil {
			return err
		}
		if o.JSON {
			return writeJSON(p.stdout, bucketJSONOf(&b))
		}
		rows := [][]string{{"name:", b.Name}, {"provider:", b.Provider}, {"created:", formatTime(b.Created)},
			{"copies:", fmt.Sprint(b.Copies)}, {"durability:", b.Durability}}
		if b.Backend != "" {
			rows = append(rows, []string{"backend:", b.Backend}, []string{"validate:", fmt.Sprint(b.Validate)})
		}
		return table(p.stdout, rows)
	})
}

// bucketSetOptions say what changes of which bucket.
type bucketSetOptions struct {
	Name   string
	Change peer.BucketChange
	JSON   bool
}

func (p *program) bucketSet(ctx context.Context, co clientOptions, o bucketSetOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		b, err := c.SetBucket(ctx, o.Name, o.Change)
		if err != nil || !o.JSON {
			return err
		}
		return writeJSON(p.stdout, bucketJSONOf(&b))
	})
}
