package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/batching"
	"sheaf/internal/errs"
)

func (p *program) batchCommand() *cli.Command {
	return &cli.Command{
		Name: "batch", Usage: "read many objects, members and ranges with one request",
		ArgsUsage: "MANIFEST|-",
		Description: `A manifest is JSON ({"bucket":"b","in":[{"objname":"x"},{"objname":"s.tar","archpath":
"m"}]}, with the other fields of a GetBatch request), or plain text with one
bucket/object or bucket/shard.tar@/member a line. Flags win over its fields.

--format tar writes a TAR archive in the order of the manifest; with --coer an entry
that can't be had is an empty file below __404__/.

--format frames is for pipes. For each entry, in the order of the manifest, one line of
JSON and then exactly "size" bytes of payload, with nothing between them:
  {"i":0,"name":"b/x","size":3,"sum":"<xxh3-64 in hex>"}
  {"i":1,"name":"b/y","size":0,"code":1,"error":"…"}       an entry that failed (--coer)
  {"end":true,"entries":2,"failed":1,"bytes":3}            last; without it the output isn't whole
An entry's "opaque" is given back. Codes are those of the protocol.

A summary goes to stderr. With --coer failed entries don't change the exit status.`,
		Flags: withClient(
			&cli.StringFlag{Name: "o", Usage: "write to `FILE`, which appears when it is whole; \"-\" is stdout"},
			&cli.StringFlag{Name: "format", Usage: "`FORMAT` of the output: tar or frames (default: the manifest's, else tar)"},
			&cli.BoolFlag{Name: "coer", Usage: "continue on error: what can't be had becomes a placeholder"},
			&cli.BoolFlag{Name: "no-strm", Usage: "know the sizes and errors of all entries before the first byte"},
			&cli.IntFlag{Name: "coloc", Usage: "`N` 0: any node assembles; 1, 2: the one that owns most entries"},
			&cli.StringFlag{Name: "assembly", Usage: "`HOW` the entries are put in order: dt, by a node, or auto, which is dt in this version"},
			&cli.DurationFlag{Name: "timeout", Usage: "`D` for the whole batch, as in 90s"},
			&cli.StringFlag{Name: "id", Usage: "`ID` of the request, for logs"},
			&cli.BoolFlag{Name: "quiet", Usage: "no summary"},
		),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "MANIFEST or -")
			if err != nil {
				return err
			}
			return p.batch(c.Context, clientOptionsOf(c), batchOptions{
				Manifest: a[0], Output: c.String("o"), Quiet: c.Bool("quiet"), Adjust: func(r *batching.Request) { adjust(c, r) },
			})
		},
	}
}

// adjust puts the flags that were given over a manifest's fields.
func adjust(c *cli.Context, r *batching.Request) {
	switch {
	case c.IsSet("format"):
		r.OutputFormat, r.Mime = c.String("format"), ""
	case r.OutputFormat == "" && r.Mime == "":
		r.OutputFormat = batching.FormatTar
	}
	if c.IsSet("coer") {
		r.Coer = c.Bool("coer")
	}
	if c.IsSet("no-strm") {
		strm := !c.Bool("no-strm")
		r.Strm = &strm
	}
	if c.IsSet("coloc") {
		r.Coloc = c.Int("coloc")
	}
	if c.IsSet("assembly") {
		r.Assembly = c.String("assembly")
	}
	if c.IsSet("timeout") {
		r.Timeout = batching.Duration(c.Duration("timeout"))
	}
	if c.IsSet("id") {
		r.ID = c.String("id")
	}
}

// batchOptions say which batch is read, and where it goes.
type batchOptions struct {
	Manifest string // a file; "-" for stdin
	Output   string // "" or "-" for stdout
	Quiet    bool
	Adjust   func(*batching.Request) // what is wanted in place of the manifest's fields
}

func (p *program) batch(ctx context.Context, co clientOptions, o batchOptions) error {
	text, err := p.readManifest(ctx, o.Manifest)
	if err != nil {
		return err
	}
	req, err := batching.ParseManifest(text)
	if err != nil {
		return err
	}
	o.Adjust(req)
	if err := req.Normalize(); err != nil {
		return err
	}
	if req.ID == "" {
		req.ID = batching.NewID()
	}
	if (o.Output == "" || o.Output == "-") && isTerminal(p.stdout) {
		return errs.New(errs.InvalidArgument, "", "an archive would garble the terminal: redirect stdout, or name a file with -o")
	}
	start := time.Now()
	var totals batching.Totals
	err = withCluster(ctx, co, func(c *cluster) error {
		client := batching.NewClient(c.Client)
		return p.write(o.Output, func(f *os.File) (err error) {
			if req.Format() == batching.FormatTar {
				totals, err = client.GetArchive(ctx, req, f)
				return err
			}
			totals, err = p.frames(ctx, client, req, f, o.Quiet)
			return err
		})
	})
	if err == nil && !o.Quiet {
		fmt.Fprintf(p.stderr, "batch %s: %s, %d failed, %d bytes, %d ms\n", req.ID, plural(len(req.In), "entry", "entries"), totals.Failed, totals.Bytes,
			time.Since(start).Milliseconds())
	}
	return err
}

// readManifest reads a manifest, up to a byte more than may be.
func (p *program) readManifest(ctx context.Context, path string) ([]byte, error) {
	if path == "-" {
		return io.ReadAll(io.LimitReader(interruptible(ctx, p.stdin), batching.MaxManifest+1))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, batching.MaxManifest+1))
}
