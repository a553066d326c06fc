package main

import (
	"github.com/urfave/cli/v2"

	"sheaf/peer"
)

const propsHelp = `--copies is on how many nodes each object lies; a PUT is acknowledged when all have it.
--durability sync acknowledges what is on disk; relaxed, for bulk loads, what the
operating system has, and a power cut may take the last writes.
--backend names a store behind the bucket, s3://BUCKET or file:///DIR: what isn't here is
fetched from it, and writes go to it first. With --validate a GET asks it whether what is
here is still current.`

// propFlags are the properties of a bucket.
func propFlags() []cli.Flag {
	return []cli.Flag{
		&cli.IntFlag{Name: "copies", Usage: "`N` nodes hold each object (default 1)"},
		&cli.StringFlag{Name: "durability", Usage: "`HOW` writes are acknowledged: sync or relaxed (default sync)"},
		&cli.StringFlag{Name: "backend", Usage: "`URL` of the store behind the bucket; \"\" for none"},
		&cli.BoolFlag{Name: "validate", Usage: "ask the backend whether what is kept is current"},
	}
}

// bucketChangeOf gives the properties that were named.
func bucketChangeOf(c *cli.Context) (ch peer.BucketChange) {
	if c.IsSet("copies") {
		n := c.Int("copies")
		ch.Copies = &n
	}
	if c.IsSet("durability") {
		s := c.String("durability")
		ch.Durability = &s
	}
	if c.IsSet("backend") {
		s := c.String("backend")
		ch.Backend = &s
	}
	if c.IsSet("validate") {
		v := c.Bool("validate")
		ch.Validate = &v
	}
	return ch
}
