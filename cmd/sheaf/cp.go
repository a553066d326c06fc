package main

import (
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// treeWorkers is how many objects a command with -r copies, renames or removes at a time.
const treeWorkers = 8

func (p *program) cpCommand() *cli.Command {
	return p.copyCommand("cp", "copy an object, or with -r all below a prefix", false,
		`The bytes stay in the cluster; attributes are copied too. DST as in BUCKET/ or
BUCKET/dir/ takes SRC's own name behind it. With -r SRC and DST are prefixes, as for
'sheaf rm': SRC/x becomes DST/x, and neither may lie in the other.

With --json one object as 'sheaf stat --json' gives it.`)
}

// copyCommand is cp, or mv, which takes the source away.
func (p *program) copyCommand(name, usage string, move bool, description string) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: "SRC DST | -r BUCKET/PREFIX BUCKET/PREFIX", Description: description,
		Flags: withClient(append([]cli.Flag{&cli.BoolFlag{Name: "r", Usage: "all below a prefix"}, jsonFlag()}, conditionFlags()...)...),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 2, 2, "SRC and DST")
			if err != nil {
				return err
			}
			o := copyOptions{Move: move, JSON: c.Bool("json")}
			if o.If, err = conditionOf(c); err != nil {
				return err
			}
			if err := onlyWhole(c, "if-version", "json"); err != nil {
				return err
			}
			if c.Bool("r") {
				if err := o.parseTrees(c, a[0], a[1]); err != nil {
					return err
				}
				return p.copyTree(c.Context, clientOptionsOf(c), o)
			}
			if err := o.parseObjects(c, a[0], a[1]); err != nil {
				return err
			}
			return p.copyOne(c.Context, clientOptionsOf(c), o)
		},
	}
}

// copyOptions say what is copied, and where. With -r the names are prefixes without a
// "/" at their end.
type copyOptions struct {
	From, To peer.ObjectName
	Prefix   string // with -r: From's as it was given, which eachBelow takes
	Move     bool
	If       condition
	JSON     bool
}

func (o *copyOptions) parseObjects(c *cli.Context, src, dst string) error {
	from, err := parseWhole(src)
	if err != nil {
		return err
	}
	if !strings.Contains(dst, "/") {
		return usagef(c, "%q names no object: want BUCKET/OBJECT, or %s/ for the same name", dst, dst)
	}
	if strings.HasSuffix(dst, "/") {
		dst += path.Base(from.Name)
	}
	to, err := parseWhole(dst)
	if err != nil {
		return err
	}
	if from == to {
		return errs.New(errs.InvalidArgument, "", fmt.Sprintf("%s and %s are the same object", src, dst))
	}
	o.From, o.To = peer.ObjectName{Bucket: from.Bucket, Object: from.Name}, peer.ObjectName{Bucket: to.Bucket, Object: to.Name}
	return nil
}

func (o *copyOptions) parseTrees(c *cli.Context, src, dst string) error {
	for _, side := range []struct {
		arg  string
		name *peer.ObjectName
	}{{src, &o.From}, {dst, &o.To}} {
		bucket, prefix, slash, err := parsePrefix(side.arg)
		if err != nil {
			return err
		}
		if !slash {
			return usagef(c, "%q is a bucket: want %s/ for all its objects", side.arg, side.arg)
		}
		if side.name == &o.From {
			o.Prefix = prefix
		}
		*side.name = peer.ObjectName{Bucket: bucket, Object: strings.TrimSuffix(prefix, "/")}
	}
	// The listing goes on while objects are written: what it meets twice would be copied for ever.
	if o.From.Bucket == o.To.Bucket && (inside(o.From.Object, o.To.Object) || inside(o.To.Object, o.From.Object)) {
		return errs.New(errs.InvalidArgument, "", fmt.Sprintf("%s and %s lie in each other", src, dst))
	}
	return nil
}

// inside tells whether the prefix b is a, or lies below it.
func inside(a, b string) bool { return a == "" || a == b || strings.HasPrefix(b, a+"/") }

// run copies or renames one object.
func (o copyOptions) run(ctx context.Context, c *cluster, from, to peer.ObjectName) (peer.ObjectInfo, error) {
	how := peer.CopyOptions{IfAbsent: o.If.Absent, IfVersion: o.If.Version}
	if o.Move {
		return c.Rename(ctx, from, to, how)
	}
	return c.Copy(ctx, from, to, how)
}

func (p *program) copyOne(ctx context.Context, co clientOptions, o copyOptions) error {
	return withCluster(ctx, co, func(c *cluster) error {
		info, err := o.run(ctx, c, o.From, o.To)
		if err != nil || !o.JSON {
			return err
		}
		return writeJSON(p.stdout, objectJSONOf(o.To.Bucket, o.To.Object, &info))
	})
}

func (p *program) copyTree(ctx context.Context, co clientOptions, o copyOptions) error {
	done, verb := "copied", "cp"
	if o.Move {
		done, verb = "moved", "mv"
	}
	return withCluster(ctx, co, func(c *cluster) error {
		var n atomic.Int64
		bar := newProgress(p.stderr, verb)
		one := func(name string, size int64) error {
			bar.expect(1, size)
			if _, err := o.run(ctx, c, peer.ObjectName{Bucket: o.From.Bucket, Object: name}, peer.ObjectName{Bucket: o.To.Bucket, Object: o.target(name)}); err != nil {
				return err
			}
			n.Add(1)
			bar.add(size)
			bar.fileDone()
			return nil
		}
		err := eachBelow(ctx, c, o.From.Bucket, o.Prefix, func(i *peer.ObjectInfo) error { return one(i.Name, i.Size) })
		bar.close()
		if n := n.Load(); n > 0 {
			fmt.Fprintf(p.stderr, "%s %s\n", done, plural(n, "object", "objects"))
		} else if err == nil && o.From.Object != "" {
			err = &errs.Error{Code: errs.NotFound, Op: verb, Bucket: o.From.Bucket, Object: o.From.Object, Msg: "nothing of that name, and nothing below it"}
		}
		return err
	})
}

// target is what the object called name becomes.
func (o copyOptions) target(name string) string {
	rest := strings.TrimPrefix(strings.TrimPrefix(name, o.From.Object), "/")
	switch {
	case o.To.Object == "":
		if rest == "" { // the object that the prefix itself names
			return path.Base(name)
		}
		return rest
	case rest == "":
		return o.To.Object
	}
	return o.To.Object + "/" + rest
}

// eachBelow calls fn for the object called prefix, if there is one, and for all below
// it, several at a time; a prefix that ends in "/" stands only for what is below, and
// "" for the whole bucket. The first failure ends it.
func eachBelow(ctx context.Context, c *cluster, bucket, prefix string, fn func(*peer.ObjectInfo) error) error {
	below := prefix
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		below += "/"
		info, err := c.Head(ctx, bucket, prefix)
		if err == nil {
			info.Name = prefix
			err = fn(&info)
		} else if errs.IsCode(err, errs.NotFound) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return eachPage(ctx, c, bucket, peer.ListOptions{Prefix: below}, func(page *peer.ListPage) error { return eachOf(ctx, page.Objects, fn) })
}

// eachOf calls fn for every object of a page, several at a time.
func eachOf(ctx context.Context, objects []peer.ObjectInfo, fn func(*peer.ObjectInfo) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range treeWorkers {
		wg.Go(func() { // ends with the page or the first failure
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(objects)) {
					return
				}
				if err := fn(&objects[i]); err != nil {
					fail(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
