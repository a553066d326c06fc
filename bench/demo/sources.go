package main

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// What is taken of this machine.
const (
	mostFiles  = 3000
	leastFiles = 1000
	mostBytes  = 64 << 10 // of one file
)

// place is a folder tree that a machine may have.
type place struct {
	dirs []string
	exts []string // none: all files
	what string
}

// places are tried in this order.
func places(ctx context.Context) []place {
	all := []place{
		{[]string{"/usr/share/icons", "/usr/share/pixmaps"}, []string{".png", ".svg"}, "PNG and SVG images"},
		{[]string{"/usr/share/doc"}, nil, "documentation"},
	}
	if root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output(); err == nil {
		all = append(all, place{[]string{filepath.Join(strings.TrimSpace(string(root)), "src")}, nil, "Go sources"})
	}
	return all
}

// source is a file of this machine, held in memory to compare with.
type source struct {
	name string // of the object: its path below the place's common root
	data []byte
}

// sources are the files that the demo works on, in the order of their names.
type sources struct {
	what  string
	from  []string
	files []source
	bytes int64
}

// gather reads files from the first place that has enough of them.
func gather(ctx context.Context) (*sources, error) {
	for _, p := range places(ctx) {
		paths, err := p.find(ctx)
		if err != nil {
			return nil, err
		}
		if len(paths) < leastFiles {
			continue
		}
		s := &sources{what: p.what, from: p.dirs}
		// A sample of the whole place rather than its first folders; the same on every run.
		rnd := rand.New(rand.NewPCG(1, 1))
		rnd.Shuffle(len(paths), func(i, j int) { paths[i], paths[j] = paths[j], paths[i] })
		for _, path := range paths {
			if len(s.files) == mostFiles {
				break
			}
			data, err := os.ReadFile(path)
			if err != nil || len(data) == 0 || len(data) > mostBytes {
				continue // gone, changed or not ours to read
			}
			name, err := filepath.Rel(filepath.Dir(p.dirs[0]), path)
			if err != nil {
				return nil, err
			}
			s.files = append(s.files, source{name: filepath.ToSlash(name), data: data})
			s.bytes += int64(len(data))
		}
		if len(s.files) >= leastFiles {
			slices.SortFunc(s.files, func(a, b source) int { return strings.Compare(a.name, b.name) })
			return s, nil
		}
	}
	return nil, fmt.Errorf("no place of this machine has %d small files", leastFiles)
}

// find lists the regular files of a place that are neither empty nor large.
func (p place) find(ctx context.Context) ([]string, error) {
	var paths []string
	for _, dir := range p.dirs {
		err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil || !e.Type().IsRegular() || len(p.exts) > 0 && !slices.Contains(p.exts, filepath.Ext(path)) {
				return nil // what can't be read isn't taken
			}
			if fi, err := e.Info(); err == nil && fi.Size() > 0 && fi.Size() <= mostBytes {
				paths = append(paths, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return paths, nil
}
