package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

func (p *program) lsCommand() *cli.Command {
	return &cli.Command{
		Name: "ls", Usage: "list buckets, or the objects of one",
		ArgsUsage: "[BUCKET[/PREFIX]]",
		Description: `Lists the objects whose names begin with PREFIX, in byte order; without -r those with
a further "/" behind it are folded into one line that ends in "/". Names are given
without the bucket. -l puts size and time of writing before them.

With --json each line is an object: {"bucket","name","size","version","checksum",
"modified","attrs"}, {"bucket","prefix"} for a folded line, or what 'sheaf bucket show
--json' gives of a bucket. Versions are decimal strings, checksums xxh3-64 in hex.`,
		Flags: withClient(
			&cli.BoolFlag{Name: "l", Usage: "with size and time"},
			&cli.BoolFlag{Name: "r", Usage: "all names, not folded at \"/\""},
			jsonFlag(),
		),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 0, 1, "at most one BUCKET[/PREFIX]")
			if err != nil {
				return err
			}
			if len(a) == 0 {
				return p.bucketLs(c.Context, clientOptionsOf(c), bucketLsOptions{Long: c.Bool("l"), JSON: c.Bool("json")})
			}
			o := lsOptions{Long: c.Bool("l"), Recursive: c.Bool("r"), JSON: c.Bool("json")}
			if o.Bucket, o.Prefix, _, err = parsePrefix(a[0]); err != nil {
				return err
			}
			return p.ls(c.Context, clientOptionsOf(c), o)
		},
	}
}

func jsonFlag() cli.Flag { return &cli.BoolFlag{Name: "json", Usage: "as JSON"} }

// lsOptions say what is listed, and how.
type lsOptions struct {
	Bucket, Prefix        string
	Long, Recursive, JSON bool
}

func (p *program) ls(ctx context.Context, co clientOptions, o lsOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		list := peer.ListOptions{Prefix: o.Prefix}
		if !o.Recursive {
			list.Delimiter = "/"
		}
		return eachPage(ctx, c, o.Bucket, list, func(page *peer.ListPage) error {
			return buffered(p.stdout, func(w *bufio.Writer) error { return p.printPage(w, o, page) })
		})
	})
}

// eachPage walks through a listing page by page.
func eachPage(ctx context.Context, c *cluster, bucket string, o peer.ListOptions, fn func(*peer.ListPage) error) error {
	for {
		page, err := c.List(ctx, bucket, o)
		if err != nil {
			return err
		}
		if err := fn(page); err != nil {
			return err
		}
		switch {
		case page.Token == "":
			return nil
		case page.Token == o.Token:
			return errs.New(errs.Protocol, "list", "the listing doesn't go on")
		}
		o.Token = page.Token
	}
}

// printPage writes objects and prefixes in one order.
func (p *program) printPage(w *bufio.Writer, o lsOptions, page *peer.ListPage) error {
	objects, prefixes := page.Objects, page.Prefixes
	for len(objects) > 0 || len(prefixes) > 0 {
		var err error
		if len(prefixes) == 0 || len(objects) > 0 && objects[0].Name <= prefixes[0] {
			err = p.printObject(w, o, &objects[0])
			objects = objects[1:]
		} else {
			err = p.printPrefix(w, o, prefixes[0])
			prefixes = prefixes[1:]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// objectJSON is an object as --json shows it. Versions don't fit into the numbers of
// most JSON readers.
type objectJSON struct {
	Bucket   string    `json:"bucket"`
	Name     string    `json:"name"`
	Member   string    `json:"member,omitempty"`
	Size     int64     `json:"size"`
	Version  uint64    `json:"version,string"`
	Checksum string    `json:"checksum,omitempty"`
	Modified time.Time `json:"modified"`

	Attrs map[string]string `json:"attrs,omitempty"`
}

func objectJSONOf(bucket, name string, i *peer.ObjectInfo) objectJSON {
	return objectJSON{Bucket: bucket, Name: name, Size: i.Size, Version: i.Version, Checksum: formatSum(i.Checksum), Modified: i.ModTime.UTC(), Attrs: i.Attrs}
}

func (p *program) printObject(w *bufio.Writer, o lsOptions, i *peer.ObjectInfo) (err error) {
	switch {
	case o.JSON:
		return writeJSON(w, objectJSONOf(o.Bucket, i.Name, i))
	case o.Long:
		_, err = fmt.Fprintf(w, "%14d  %s  %s\n", i.Size, formatTime(i.ModTime), printable(p.stdout, i.Name))
	default:
		_, err = fmt.Fprintln(w, printable(p.stdout, i.Name))
	}
	return err
}

func (p *program) printPrefix(w *bufio.Writer, o lsOptions, prefix string) (err error) {
	switch {
	case o.JSON:
		return writeJSON(w, struct {
			Bucket string `json:"bucket"`
			Prefix string `json:"prefix"`
		}{o.Bucket, prefix})
	case o.Long:
		_, err = fmt.Fprintf(w, "%14s  %19s  %s\n", "-", "-", printable(p.stdout, prefix))
	default:
		_, err = fmt.Fprintln(w, printable(p.stdout, prefix))
	}
	return err
}
