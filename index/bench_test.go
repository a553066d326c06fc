package index

import (
	"bytes"
	"context"
	"fmt"
	"testing"
)

func smallMembers(b *testing.B) []byte {
	a := newArchive(b)
	for i := range 10_000 {
		a.add(file(fmt.Sprintf("train/%03d/%08d.cls", i%1000, i)), "7")
	}
	return a.bytes()
}

func BenchmarkBuild10000(b *testing.B) {
	shard := smallMembers(b)
	b.SetBytes(int64(len(shard)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Build(context.Background(), bytes.NewReader(shard), int64(len(shard)), 0); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	x := mustBuild(b, smallMembers(b))
	var all []string
	for m := range x.All() {
		all = append(all, m.Name)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, ok := x.Lookup(all[i*7919%len(all)]); !ok {
			b.Fatal("lost")
		}
	}
}

func BenchmarkParse10000(b *testing.B) {
	kept := marshal(b, mustBuild(b, smallMembers(b)))
	b.SetBytes(int64(len(kept)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(kept); err != nil {
			b.Fatal(err)
		}
	}
}
