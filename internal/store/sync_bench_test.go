package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkSmall writes objects of 10 KiB by Put, by a relaxed Put, and by the least that
// makes a file durable: write, fsync, rename, fsync of the folder. The three take turns,
// so that their ratios mean something on a busy disk.
func BenchmarkSmall(b *testing.B) {
	body := strings.Repeat("x", 10<<10)
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s := newStore(b, 1)
			dir := b.TempDir()
			var syncs atomic.Int64
			real := s.disk.syncDir
			s.disk.syncDir = func(dir string) error { syncs.Add(1); return real(dir) }
			store := func(relaxed bool) func(name string) error {
				return func(name string) error {
					_, err := s.Put(context.Background(), "b", name, strings.NewReader(body), PutOptions{Size: int64(len(body)), Relaxed: relaxed})
					return err
				}
			}
			ways := []struct {
				name  string
				write func(name string) error
				took  time.Duration
			}{{name: "plain", write: func(name string) error { return plainWrite(dir, name, body) }}, {name: "sync", write: store(false)}, {name: "relaxed", write: store(true)}}
			const turn = 128
			turns := 0
			for b.Loop() {
				turns++
				for i := range ways {
					w := &ways[i]
					start := time.Now()
					var wg sync.WaitGroup
					for n := range writers {
						wg.Add(1)
						go func() { // ends with its part of the turn
							defer wg.Done()
							for j := n; j < turn; j += writers {
								if err := w.write(fmt.Sprint(w.name, turns, "-", j)); err != nil {
									b.Error(err)
									return
								}
							}
						}()
					}
					wg.Wait()
					w.took += time.Since(start)
				}
			}
			for _, w := range ways {
				b.ReportMetric(float64(turns*turn)/w.took.Seconds(), w.name+"/s")
			}
			b.ReportMetric(ways[0].took.Seconds()/ways[1].took.Seconds(), "sync/plain")
			b.ReportMetric(ways[0].took.Seconds()/ways[2].took.Seconds(), "relaxed/plain")
			b.ReportMetric(float64(syncs.Load())/float64(turns*turn), "folder-syncs/object")
		})
	}
}

func plainWrite(dir, name, body string) error {
	path := filepath.Join(dir, name)
	f, err := os.Create(path + ".tmp")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(body); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		return err
	}
	return syncDir(dir)
}
