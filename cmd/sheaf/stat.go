package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"
)

func (p *program) statCommand() *cli.Command {
	return &cli.Command{
		Name: "stat", Usage: "tell about an object or a member of a shard",
		ArgsUsage: "BUCKET/OBJECT[@/MEMBER]",
		Description: `Of a member the size is its own; version and time are the shard's. With --json one
object: {"bucket","name","member","size","version","checksum","modified","attrs"}.`,
		Flags: withClient(jsonFlag()),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 1, 1, "BUCKET/OBJECT[@/MEMBER]")
			if err != nil {
				return err
			}
			o := statOptions{JSON: c.Bool("json")}
			if o.Object, err = parseObject(a[0]); err != nil {
				return err
			}
			return p.stat(c.Context, clientOptionsOf(c), o)
		},
	}
}

// statOptions say what is described, and how.
type statOptions struct {
	Object object
	JSON   bool
}

func (p *program) stat(ctx context.Context, co clientOptions, o statOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		info, err := c.HeadMember(ctx, o.Object.Bucket, o.Object.Name, o.Object.Member)
		if err != nil {
			return err
		}
		j := objectJSONOf(o.Object.Bucket, o.Object.Name, &info)
		if o.Object.Member != "" {
			j.Member, j.Checksum = o.Object.Member, ""
		}
		if o.JSON {
			return writeJSON(p.stdout, j)
		}
		rows := [][]string{{"bucket:", o.Object.Bucket}, {"object:", printable(p.stdout, o.Object.Name)}}
		if o.Object.Member != "" {
			rows = append(rows, []string{"member:", printable(p.stdout, o.Object.Member)})
		}
		rows = append(rows, []string{"size:", fmt.Sprint(info.Size)}, []string{"version:", fmt.Sprint(info.Version)})
		if j.Checksum != "" {
			rows = append(rows, []string{"checksum:", "xxh3-64 " + j.Checksum})
		}
		rows = append(rows, []string{"modified:", formatTime(info.ModTime)})
		for _, k := range slices.Sorted(maps.Keys(info.Attrs)) {
			rows = append(rows, []string{"attr:", printable(p.stdout, k) + "=" + printable(p.stdout, info.Attrs[k])})
		}
		return table(p.stdout, rows)
	})
}
