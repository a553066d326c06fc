package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// putWorkers is how many files 'put -r' sends at a time.
const putWorkers = 8

func (p *program) putCommand() *cli.Command {
	return &cli.Command{
		Name: "put", Usage: "store a file, or with -r the files of a folder",
		ArgsUsage: "SRC BUCKET/OBJECT | -r DIR BUCKET[/PREFIX]",
		Description: `SRC "-" is stdin. BUCKET/ and BUCKET/dir/ take SRC's own name behind them. When the
command returns the object is on disk in the cluster.

With --append the bytes go to the end of the object, which is made if it isn't there; a
reader finds it before or after. With --json one object as 'sheaf stat --json' gives it.

With -r every regular file below DIR becomes the object PREFIX/<path below DIR>.
Links and special files are left out and reported. The first failure ends it.`,
		Flags: withClient(append([]cli.Flag{
			&cli.BoolFlag{Name: "r", Usage: "a folder with all below it"},
			&cli.BoolFlag{Name: "append", Usage: "add to the object's end"},
			&cli.StringSliceFlag{Name: "attr", Usage: "`KEY=VALUE` to keep with the object; may be given several times"},
			jsonFlag(),
		}, conditionFlags()...)...),
		Action: func(c *cli.Context) error {
			a, err := positional(c, 2, 2, "SRC and BUCKET/OBJECT")
			if err != nil {
				return err
			}
			co := clientOptionsOf(c)
			attrs, err := attrsOf(c)
			if err != nil {
				return err
			}
			if err := onlyWhole(c, "append", "if-version", "json"); err != nil {
				return err
			}
			if c.Bool("r") {
				o := putTreeOptions{Dir: a[0], Attrs: attrs, IfAbsent: c.Bool("if-absent")}
				if o.Bucket, o.Prefix, _, err = parsePrefix(a[1]); err != nil {
					return err
				}
				return p.putTree(c.Context, co, o)
			}
			o, err := putOptionsOf(c, a[0], a[1])
			if err != nil {
				return err
			}
			if o.If, err = conditionOf(c); err != nil {
				return err
			}
			if o.Append && o.If.Absent {
				return usagef(c, "--append and --if-absent: leave out --append for an object that isn't there yet")
			}
			o.Attrs = attrs
			return p.put(c.Context, co, o)
		},
	}
}

// putOptions say what is stored, and as what.
type putOptions struct {
	Source string // "-" for stdin
	Object object
	Append bool
	If     condition
	Attrs  map[string]string
	JSON   bool
}

func putOptionsOf(c *cli.Context, src, dst string) (putOptions, error) {
	if !strings.Contains(dst, "/") {
		return putOptions{}, usagef(c, "%q names no object: want BUCKET/OBJECT, or %s/ for the file's own name", dst, dst)
	}
	if strings.HasSuffix(dst, "/") {
		if src == "-" {
			return putOptions{}, usagef(c, "stdin has no name: want BUCKET/OBJECT")
		}
		dst += filepath.Base(src)
	}
	o, err := parseWhole(dst)
	return putOptions{Source: src, Object: o, Append: c.Bool("append"), JSON: c.Bool("json")}, err
}

func (p *program) put(ctx context.Context, co clientOptions, o putOptions) error {
	f := p.stdin
	size := int64(-1)
	if o.Source != "-" {
		var err error
		if f, err = os.Open(o.Source); err != nil {
			return err
		}
		defer f.Close()
		fi, err := f.Stat()
		switch {
		case err != nil:
			return err
		case fi.IsDir():
			return errs.New(errs.IsDirectory, "", o.Source+" (-r stores all below it)")
		case fi.Mode().IsRegular():
			size = fi.Size()
		}
	}
	return withCluster(ctx, co, func(c *cluster) error {
		bar := newProgress(p.stderr, o.Object.Name)
		defer bar.close()
		r := io.Reader(&meter{File: f, p: bar})
		if size >= 0 {
			bar.expect(0, size)
		} else {
			r = interruptible(ctx, r)
		}
		store := c.Put
		if o.Append {
			store = c.Append
		}
		info, err := store(ctx, o.Object.Bucket, o.Object.Name, r, peer.PutOptions{Size: size, IfAbsent: o.If.Absent, IfVersion: o.If.Version, Attrs: o.Attrs})
		if err != nil || !o.JSON {
			return err
		}
		return writeJSON(p.stdout, objectJSONOf(o.Object.Bucket, o.Object.Name, &info))
	})
}

// putTreeOptions say which folder is stored, and where.
type putTreeOptions struct {
	Dir, Bucket, Prefix string
	IfAbsent            bool
	Attrs               map[string]string
}

// objectName is what the file at rel, a path below the folder, is called.
func (o putTreeOptions) objectName(rel string) string {
	name := filepath.ToSlash(rel)
	if o.Prefix == "" {
		return name
	}
	return strings.TrimSuffix(o.Prefix, "/") + "/" + name
}

// upload is one file on its way.
type upload struct{ path, name string }

func (p *program) putTree(ctx context.Context, co clientOptions, o putTreeOptions) error {
	root, err := filepath.EvalSymlinks(o.Dir) // only links below it are left out
	if err != nil {
		return err
	}
	if fi, err := os.Stat(root); err != nil {
		return err
	} else if !fi.IsDir() {
		return errs.New(errs.InvalidArgument, "", o.Dir+" is not a folder: leave out -r")
	}
	return withCluster(ctx, co, func(c *cluster) error {
		start := time.Now()
		bar := newProgress(p.stderr, path.Base(filepath.ToSlash(root)))
		ctx, fail := context.WithCancelCause(ctx)
		defer fail(nil)
		var files, bytes, skipped atomic.Int64
		todo := make(chan upload, 1024)
		var wg sync.WaitGroup
		for range putWorkers {
			wg.Go(func() { // ends when the walk is over
				for u := range todo {
					if ctx.Err() != nil {
						continue
					}
					n, err := putOne(ctx, c, o, u, bar)
					if err != nil {
						fail(fmt.Errorf("%s: %w", u.path, err))
						continue
					}
					files.Add(1)
					bytes.Add(n)
					bar.fileDone()
				}
			})
		}
		err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil || d.IsDir() {
				return err
			}
			if !d.Type().IsRegular() {
				skipped.Add(1)
				p.errorf("left out %s: %s", file, kindOf(d.Type()))
				return nil
			}
			rel, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			if bar != nil {
				if fi, err := d.Info(); err == nil {
					bar.expect(1, fi.Size())
				}
			}
			select {
			case todo <- upload{path: file, name: o.objectName(rel)}:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err != nil {
			fail(err)
		}
		close(todo)
		wg.Wait()
		bar.close()
		if err := context.Cause(ctx); err != nil {
			p.errorf("stopped after %s", plural(files.Load(), "file", "files"))
			return err
		}
		also := ""
		if n := skipped.Load(); n > 0 {
			also = fmt.Sprintf(", %d left out", n)
		}
		fmt.Fprintf(p.stderr, "%s, %d bytes in %v%s\n", plural(files.Load(), "file", "files"), bytes.Load(), time.Since(start).Round(time.Millisecond), also)
		return nil
	})
}

func putOne(ctx context.Context, c *cluster, o putTreeOptions, u upload, bar *progress) (int64, error) {
	f, err := os.OpenFile(u.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	info, err := c.Put(ctx, o.Bucket, u.name, &meter{File: f, p: bar}, peer.PutOptions{Size: fi.Size(), IfAbsent: o.IfAbsent, Attrs: o.Attrs})
	return info.Size, err
}

func kindOf(m fs.FileMode) string {
	switch {
	case m&fs.ModeSymlink != 0:
		return "a symbolic link"
	case m&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeDevice != 0:
		return "a device"
	}
	return "not a regular file"
}
