package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// The buckets, and the object without a byte in the first one.
const (
	filesBucket  = "files"
	shardsBucket = "shards"
	emptyObject  = "empty"
	shardMembers = 256
)

// shardName is the shard that file i*shardMembers begins.
func shardName(i int) string { return fmt.Sprintf("s-%03d.tar", i) }

// load gathers the files and stores them with the command line: each as an object, and
// all of them again as members of tar shards.
func (d *demo) load(ctx context.Context) error {
	var err error
	if d.src, err = gather(ctx); err != nil {
		return err
	}
	fmt.Printf("Taken from this machine: %d files, %.1f MB, %s below %s\n", len(d.src.files), float64(d.src.bytes)/1e6, d.src.what, strings.Join(d.src.from, " and "))
	if err := d.writeFiles(); err != nil {
		return err
	}
	shards, err := d.writeShards()
	if err != nil {
		return err
	}
	fmt.Println("\nLoading:")
	for _, b := range []string{filesBucket, shardsBucket} {
		if _, err := d.home.Sheaf(ctx, "bucket", "create", b); err != nil {
			return err
		}
		began := time.Now()
		if _, err := d.home.Sheaf(ctx, "put", "-r", d.home.Path(b), b); err != nil {
			return err
		}
		what := fmt.Sprintf("%d objects", len(d.src.files)+1)
		if b == shardsBucket {
			what = fmt.Sprintf("%d tar shards of up to %d members", shards, shardMembers)
		}
		fmt.Printf("  %-28s %v, %s, on disk\n", "sheaf put -r "+b+" "+b, round(time.Since(began)), what)
	}
	return nil
}

func (d *demo) writeFiles() error {
	for _, f := range append(slices.Clone(d.src.files), source{name: emptyObject}) {
		path := d.home.Path(filesBucket, filepath.FromSlash(f.name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) writeShards() (n int, err error) {
	dir, err := d.home.MakeDir(shardsBucket)
	if err != nil {
		return 0, err
	}
	for members := range slices.Chunk(d.src.files, shardMembers) {
		if err := writeShard(filepath.Join(dir, shardName(n)), members); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

func writeShard(path string, members []source) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	buf := bufio.NewWriterSize(f, 1<<20)
	w := tar.NewWriter(buf)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: m.name, Mode: 0o644, Size: int64(len(m.data))}); err != nil {
			return err
		}
		if _, err := w.Write(m.data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return buf.Flush()
}
