package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"sheaf/peer"
)

func (p *program) evictCommand() *cli.Command {
	return &cli.Command{
		Name: "evict", Usage: "drop the cluster's copies of a remote bucket's objects",
		ArgsUsage: "BUCKET/OBJECT... | -r BUCKET/PREFIX",
		Description: `The backend keeps the objects, and the next reader fetches them again. With -r all
objects whose names are PREFIX or begin with PREFIX/; BUCKET/ means all of the bucket.`,
		Flags: withClient(&cli.BoolFlag{Name: "r", Usage: "all below a prefix"}),
		Action: func(c *cli.Context) error {
			if !c.Bool("r") {
				a, err := positional(c, 1, 1<<20, "BUCKET/OBJECT")
				if err != nil {
					return err
				}
				var list []peer.ObjectName
				for _, s := range a {
					o, err := parseWhole(s)
					if err != nil {
						return err
					}
					list = append(list, peer.ObjectName{Bucket: o.Bucket, Object: o.Name})
				}
				return withCluster(c.Context, clientOptionsOf(c), func(cl *cluster) error {
					for _, o := range list {
						if err := cl.Evict(c.Context, o.Bucket, o.Object); err != nil {
							return err
						}
					}
					return nil
				})
			}
			a, err := positional(c, 1, 1, "BUCKET/PREFIX")
			if err != nil {
				return err
			}
			bucket, prefix, slash, err := parsePrefix(a[0])
			if err != nil {
				return err
			}
			if !slash {
				return usagef(c, "%q is a bucket: want %s/ for all its objects", a[0], a[0])
			}
			return p.evictTree(c.Context, clientOptionsOf(c), bucket, prefix)
		},
	}
}

func (p *program) evictTree(ctx context.Context, co clientOptions, bucket, prefix string) error {
	return withCluster(ctx, co, func(c *cluster) error {
		var evicted atomic.Int64
		err := eachBelow(ctx, c, bucket, prefix, func(i *peer.ObjectInfo) error {
			if i.Checksum == 0 {
				return nil // it isn't kept
			}
			evicted.Add(1)
			return c.Evict(ctx, bucket, i.Name)
		})
		fmt.Fprintf(p.stderr, "evicted %s\n", plural(evicted.Load(), "object", "objects"))
		return err
	})
}

func (p *program) bucketPrefetchCommand() *cli.Command {
	return &cli.Command{
		Name: "prefetch", Usage: "have objects of a remote bucket fetched into the cluster", ArgsUsage: "BUCKET[/PREFIX]",
		Description: `Returns when the owners have taken the names; 'sheaf ls -l' and the metric
sheaf_remote_prefetch_waiting tell how far they are.`,
		Flags: withClient(),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "BUCKET[/PREFIX]")
			if err != nil {
				return err
			}
			bucket, prefix, _, err := parsePrefix(a[0])
			if err != nil {
				return err
			}
			return p.bucketPrefetch(c.Context, clientOptionsOf(c), bucket, prefix)
		},
	}
}

func (p *program) bucketPrefetch(ctx context.Context, co clientOptions, bucket, prefix string) error {
	return withCluster(ctx, co, func(c *cluster) error {
		var mu sync.Mutex
		var names []string
		started := 0
		send := func(list []string) error {
			n, err := c.PrefetchObjects(ctx, bucket, list)
			mu.Lock()
			started += n
			mu.Unlock()
			return err
		}
		err := eachBelow(ctx, c, bucket, prefix, func(i *peer.ObjectInfo) error {
			if i.Checksum != 0 {
				return nil // it is kept
			}
			mu.Lock()
			names = append(names, i.Name)
			var full []string
			if len(names) >= 1000 {
				full, names = names, nil
			}
			mu.Unlock()
			return send(full)
		})
		if err == nil {
			err = send(names)
		}
		fmt.Fprintf(p.stderr, "fetching %s\n", plural(int64(started), "object", "objects"))
		return err
	})
}
