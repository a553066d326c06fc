package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
)

func (p *program) statCommand() *cli.Command {
	return &cli.Command{
		Name: "stat", Usage: "tell about an object or a member of a shard",
		ArgsUsage: "BUCKET/OBJECT[@/MEMBER]",
		Description: `Of a member the size is its own; version and time are the shard's. With --json one
object: {"bucket","name","member","size","version","checksum","modified"}.`,
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
		sum := ""
		if o.Object.Member == "" {
			sum = formatSum(info.Checksum)
		}
		if o.JSON {
			return writeJSON(p.stdout, objectJSON{Bucket: o.Object.Bucket, Name: o.Object.Name, Member: o.Object.Member, Size: info.Size,
				Version: info.Version, Checksum: sum, Modified: info.ModTime.UTC()})
		}
		rows := [][]string{{"bucket:", o.Object.Bucket}, {"object:", printable(p.stdout, o.Object.Name)}}
		if o.Object.Member != "" {
			rows = append(rows, []string{"member:", printable(p.stdout, o.Object.Member)})
		}
		rows = append(rows, []string{"size:", fmt.Sprint(info.Size)}, []string{"version:", fmt.Sprint(info.Version)})
		if sum != "" {
			rows = append(rows, []string{"checksum:", "xxh3-64 " + sum})
		}
		return table(p.stdout, append(rows, []string{"modified:", formatTime(info.ModTime)}))
	})
}
