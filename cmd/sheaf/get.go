package main

import (
	"context"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"sheaf/peer"
)

func (p *program) getCommand() *cli.Command {
	return &cli.Command{
		Name: "get", Usage: "read an object, a member of a shard, or a range of either",
		ArgsUsage: "BUCKET/OBJECT[@/MEMBER]",
		Description: `Writes to stdout, or with -o to a file, which appears when it is whole. The bytes are
checked against the sender's checksum.`,
		Flags: withClient(
			&cli.StringFlag{Name: "range", Usage: "`START:LENGTH` in bytes; a LENGTH of -1 or none reaches to the end"},
			&cli.StringFlag{Name: "o", Usage: "write to `FILE`"},
		),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "BUCKET/OBJECT[@/MEMBER]")
			if err != nil {
				return err
			}
			o := getOptions{Output: c.String("o")}
			if o.Object, err = parseObject(a[0]); err != nil {
				return err
			}
			if c.IsSet("range") {
				var ok bool
				if o.Start, o.Length, ok = parseRange(c.String("range")); !ok {
					return usagef(c, "range %q: want START:LENGTH in bytes, with a LENGTH above 0, -1 or none", c.String("range"))
				}
			}
			return p.get(c.Context, clientOptionsOf(c), o)
		},
	}
}

// parseRange reads START:LENGTH; length −1 reaches to the end.
func parseRange(s string) (start, length int64, ok bool) {
	first, second, found := strings.Cut(s, ":")
	start, err := strconv.ParseInt(first, 10, 64)
	if !found || err != nil || start < 0 {
		return 0, 0, false
	}
	if second == "" {
		return start, -1, true
	}
	length, err = strconv.ParseInt(second, 10, 64)
	return start, length, err == nil && (length > 0 || length == -1)
}

// getOptions say what is read. Start and Length are as in peer.GetOptions.
type getOptions struct {
	Object        object
	Start, Length int64
	Output        string // "" or "-" for stdout
}

func (p *program) get(ctx context.Context, co clientOptions, o getOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		return p.write(o.Output, func(f *os.File) error {
			info, body, err := c.Get(ctx, o.Object.Bucket, o.Object.Name, peer.GetOptions{ArchPath: o.Object.Member, Start: o.Start, Length: o.Length})
			if err != nil {
				return err
			}
			defer body.Close()
			var bar *progress
			if f != p.stdout {
				bar = newProgress(p.stderr, o.Object.Name)
				defer bar.close()
			}
			total := max(info.Size-o.Start, 0)
			if o.Length > 0 {
				total = min(total, o.Length)
			}
			bar.expect(0, total)
			_, err = io.Copy(metered{f, bar}, body)
			return err
		})
	})
}
