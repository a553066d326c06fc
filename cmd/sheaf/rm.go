package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// rmWorkers is how many objects 'rm -r' removes at a time.
const rmWorkers = 8

func (p *program) rmCommand() *cli.Command {
	return &cli.Command{
		Name: "rm", Usage: "remove an object, or with -r all below a prefix",
		ArgsUsage: "BUCKET/OBJECT | -r BUCKET/PREFIX",
		Description: `With -r the object PREFIX goes and all whose names begin with PREFIX/; BUCKET/ means
every object of the bucket. The bucket itself stays: see 'sheaf bucket rm'.`,
		Flags: withClient(&cli.BoolFlag{Name: "r", Usage: "all below a prefix"}),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "BUCKET/OBJECT")
			if err != nil {
				return err
			}
			if !c.Bool("r") {
				o, err := parseWhole(a[0])
				if err != nil {
					return err
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error { return cl.Delete(c.Context, o.Bucket, o.Name) })
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
		below := o.Prefix
		if o.Prefix != "" && !strings.HasSuffix(o.Prefix, "/") {
			below += "/"
			if err := c.Delete(ctx, o.Bucket, o.Prefix); err == nil {
				removed.Add(1)
			} else if !errs.IsCode(err, errs.NotFound) {
				return err
			}
		}
		err := eachPage(ctx, c, o.Bucket, peer.ListOptions{Prefix: below}, func(page *peer.ListPage) error {
			return rmPage(ctx, c, o.Bucket, page, &removed)
		})
		if n := removed.Load(); n > 0 {
			fmt.Fprintf(p.stderr, "removed %s\n", plural(n, "object", "objects"))
		} else if err == nil && o.Prefix != "" {
			err = &errs.Error{Code: errs.NotFound, Op: "rm", Bucket: o.Bucket, Object: o.Prefix, Msg: "nothing of that name, and nothing below it"}
		}
		return err
	})
}

func rmPage(ctx context.Context, c *cluster, bucket string, page *peer.ListPage, removed *atomic.Int64) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range rmWorkers {
		wg.Go(func() { // ends with the page or the first failure
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(page.Objects)) {
					return
				}
				switch err := c.Delete(ctx, bucket, page.Objects[i].Name); {
				case err == nil:
					removed.Add(1)
				case !errs.IsCode(err, errs.NotFound): // somebody else was faster
					fail(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
