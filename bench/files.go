package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"sheaf/batching"
	"sheaf/bench/run"
)

// The files workload: what a training step of small files costs by each way to read it.
const (
	filesN    = 1000
	filesSize = 10 << 10
	// filesLater is longer than the kernel trusts names and attributes of the mount.
	filesLater = 1500 * time.Millisecond
)

// fileBench is the files workload under way. Every round has objects that nobody has
// read before, so nothing of a first epoch is in the kernel's caches.
type fileBench struct {
	mount   run.Mount
	session *run.Session
	client  *client
	folder  string // with the bytes of one round as local files

	sets  int     // of objects, one a round; as many again are for viaListed
	order [][]int // by set: which object comes i-th
	buf   []byte

	times
}

// times are milliseconds by round.
type times struct {
	first, second, later, listed, listedFirst, data, dataFirst, quic, quicFirst, local []float64
}

const filesBucket = "files"

func fileName(round, i int) string { return fmt.Sprintf("r%02d/%04d.bin", round, i) }

func runFiles(ctx context.Context, o options) (_ *Result, err error) {
	h, err := run.NewHome(o.Sheaf, o.Dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	mnt, err := h.MakeDir("mnt")
	if err != nil {
		return nil, err
	}
	s, err := h.Start(ctx, "up", "--nodes", "3", "--mount", mnt, "--dir", h.Path("data"), "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &fileBench{mount: run.Mount{Path: mnt}, buf: make([]byte, 0, filesN*filesSize+2<<20)}
	if b.client, err = connect(ctx, h.Certs(), s.Endpoint()); err != nil {
		return nil, err
	}
	defer b.client.Close()
	if b.folder, err = h.MakeDir("local"); err != nil {
		return nil, err
	}
	b.sets = o.Rounds + 1
	if err := b.store(ctx); err != nil {
		return nil, err
	}
	if b.session, err = b.mount.OpenSession(); err != nil {
		return nil, err
	}
	defer b.session.Close()
	variants := []func(context.Context, int) error{b.viaMount, b.viaListed, b.viaData, b.viaQUIC, b.viaLocal}
	for round := range o.Rounds + 1 {
		for i := range variants {
			// Each variant comes first, second, … in turn.
			if err := variants[(i+round)%len(variants)](ctx, round); err != nil {
				return nil, err
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		if round == 0 { // opens connections, fills pools
			b.times = times{}
		}
	}
	return b.result(o), nil
}

func (b *fileBench) store(ctx context.Context) error {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 2 * b.sets {
		b.order = append(b.order, rnd.Perm(filesN))
	}
	for i := range filesN {
		if err := os.WriteFile(filepath.Join(b.folder, fmt.Sprint(i)), content(i, filesSize), 0o644); err != nil {
			return err
		}
	}
	return b.client.putAll(ctx, filesBucket, 2*b.sets*filesN, func(i int) (string, []byte) {
		return fileName(i/filesN, i%filesN), content(i%filesN, filesSize)
	})
}

// sweep reads every file of a round in its order, giving the time in milliseconds.
func (b *fileBench) sweep(round int, path func(i int) string) (float64, error) {
	paths := make([]string, filesN)
	for at, i := range b.order[round] {
		paths[at] = path(i)
	}
	b.buf = b.buf[:0]
	runtime.GC()
	start := time.Now()
	for _, p := range paths {
		var err error
		if b.buf, err = run.ReadFile(p, b.buf); err != nil {
			return 0, err
		}
	}
	ms := millis(time.Since(start))
	return ms, b.check(round, b.buf)
}

// check compares what a round brought with what was stored.
func (b *fileBench) check(round int, got []byte) error {
	if len(got) != filesN*filesSize {
		return fmt.Errorf("%d bytes came, want %d", len(got), filesN*filesSize)
	}
	for at, i := range b.order[round] {
		if !bytes.Equal(got[at*filesSize:(at+1)*filesSize], content(i, filesSize)) {
			return fmt.Errorf("%s came with other bytes than were stored", fileName(round, i))
		}
	}
	return nil
}

func (b *fileBench) viaMount(ctx context.Context, round int) error {
	path := func(i int) string { return b.mount.Object(filesBucket, fileName(round, i)) }
	for _, into := range []*[]float64{&b.first, &b.second, &b.later} {
		if into == &b.later {
			select {
			case <-time.After(filesLater):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		ms, err := b.sweep(round, path)
		if err != nil {
			return err
		}
		*into = append(*into, ms)
	}
	return nil
}

// viaListed reads files that a listing has just shown, as programs do that find their
// samples by walking a folder. The listing counts.
func (b *fileBench) viaListed(_ context.Context, round int) error {
	set := round + b.sets
	dir := b.mount.Object(filesBucket, filepath.Dir(fileName(set, 0)))
	start := time.Now()
	names, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	ls := millis(time.Since(start))
	if len(names) != filesN {
		return fmt.Errorf("%s shows %d files, want %d", dir, len(names), filesN)
	}
	ms, err := b.sweep(set, func(i int) string { return b.mount.Object(filesBucket, fileName(set, i)) })
	b.listed, b.listedFirst = append(b.listed, ls+ms), append(b.listedFirst, ls+ms/filesN)
	return err
}

// viaLocal reads the same bytes as files of the disk, which are in the page cache.
func (b *fileBench) viaLocal(_ context.Context, round int) error {
	ms, err := b.sweep(round, func(i int) string { return filepath.Join(b.folder, fmt.Sprint(i)) })
	b.local = append(b.local, ms)
	return err
}

func (b *fileBench) request(round int) *batching.Request {
	req := &batching.Request{ID: batching.NewID(), Bucket: filesBucket}
	for _, i := range b.order[round] {
		req.In = append(req.In, batching.Entry{ObjName: fileName(round, i)})
	}
	return req
}

func (b *fileBench) viaData(_ context.Context, round int) error {
	req := b.request(round)
	runtime.GC()
	got, t, err := b.mount.Fetch(b.session, req, filesSize, b.buf[:0])
	if err != nil {
		return err
	}
	b.data, b.dataFirst = append(b.data, millis(t.Last)), append(b.dataFirst, millis(t.First))
	if err := b.check(round, got); err != nil {
		return err
	}
	// So that the mount serves none of these objects from the batch.
	return b.session.Release(req.ID)
}

func (b *fileBench) viaQUIC(ctx context.Context, round int) error {
	req := b.request(round)
	sink := bytes.NewBuffer(b.buf[:0])
	runtime.GC()
	t, err := b.client.fetch(ctx, req, filesN*filesSize, sink)
	if err != nil {
		return err
	}
	b.quic, b.quicFirst = append(b.quic, millis(t.Last)), append(b.quicFirst, millis(t.First))
	return b.check(round, sink.Bytes())
}

func (b *fileBench) result(o options) *Result {
	row := func(name string, all, first []float64) Case {
		f := figure("total", "ms", all)
		c := Case{Name: name, Figures: []Figure{f, {Name: "each", Unit: "µs", Value: f.Value * 1000 / filesN},
			{Name: "rate", Unit: "MB/s", Value: filesN * filesSize / 1e3 / f.Value}, {Name: "first entry", Unit: "ms"}}}
		if first != nil {
			c.Figures[3] = figure("first entry", "ms", first)
		} else {
			c.Figures[3].Value = f.Value / filesN
		}
		return c
	}
	r := &Result{
		Params: map[string]string{"files": fmt.Sprint(filesN), "bytes a file": fmt.Sprint(filesSize), "nodes": "3, with the mount in one process",
			"rounds": fmt.Sprint(o.Rounds), "order": "random"},
		Cases: []Case{
			row("mount, first epoch", b.first, nil),
			row("mount, first epoch after a listing", b.listed, b.listedFirst),
			row("mount, again at once", b.second, nil),
			row("mount, again after 1.5 s", b.later, nil),
			row("batch, data of the mount", b.data, b.dataFirst),
			row("batch, raw QUIC", b.quic, b.quicFirst),
			row("local files", b.local, nil),
		},
	}
	r.Ratios = []Ratio{
		ratio("mount first epoch / batch through data", b.first, b.data),
		ratio("mount first epoch after a listing / batch through data", b.listed, b.data),
		ratio("mount later epoch / batch through data", b.later, b.data),
		ratio("mount first epoch / batch over QUIC", b.first, b.quic),
		ratio("batch through data / batch over QUIC", b.data, b.quic),
		ratio("batch through data / local files", b.data, b.local),
	}
	return r
}
