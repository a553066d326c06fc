package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sheaf/batching"
	"sheaf/bench/run"
)

// compared is how many files are read each way.
const compared = 1000

// compare reads the same files one by one and as one batch.
func (d *demo) compare(ctx context.Context) error {
	files := slices.Clone(d.src.files)
	rnd := rand.New(rand.NewPCG(2, 2))
	rnd.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	files = files[:compared]
	var want []byte
	for _, f := range files {
		want = append(want, f.data...)
	}
	fmt.Printf("\nReading %d of the files in random order, %.1f MB:\n", len(files), float64(len(want))/1e6)

	got := make([]byte, 0, len(want)+1)
	began := time.Now()
	for _, f := range files {
		var err error
		if got, err = run.ReadFile(d.mount.Object(filesBucket, f.name), got); err != nil {
			return err
		}
	}
	single := time.Since(began)
	if err := same("the files read one by one", got, want); err != nil {
		return err
	}
	fmt.Printf("  one by one   open, read, close of %d files   %8v   %3d µs each\n", len(files), round(single), single.Microseconds()/int64(len(files)))

	req := &batching.Request{ID: "compare", Bucket: filesBucket}
	for _, f := range files {
		req.In = append(req.In, batching.Entry{ObjName: f.name})
	}
	s, err := d.mount.OpenSession()
	if err != nil {
		return err
	}
	defer s.Close()
	got, t, err := d.mount.Fetch(s, req, len(files[0].data), make([]byte, 0, len(want)+1<<20))
	if err != nil {
		return err
	}
	if err := same("the batch's data", got, want); err != nil {
		return err
	}
	fmt.Printf("  one batch    manifest to the last byte of data  %8v   %3d µs each, first entry after %v\n", round(t.Last), t.Last.Microseconds()/int64(len(files)), round(t.First))
	fmt.Printf("  The batch is %.1f times as fast. Both gave every byte of the files.\n", float64(single)/float64(t.Last))
	if err := s.Release(req.ID); err != nil {
		return err
	}
	return ctx.Err()
}

// same says where bytes differ from what they must be.
func same(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	n := min(len(got), len(want))
	at := 0
	for at < n && got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%s differ from what was stored, from byte %d on (%d bytes came, %d were stored)", what, at, len(got), len(want))
}
