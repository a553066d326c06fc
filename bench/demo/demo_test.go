package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"sheaf/batching"
)

func TestMixture(t *testing.T) {
	var files []source
	for i := range leastFiles {
		files = append(files, source{name: fmt.Sprintf("d/%04d.png", i), data: bytes.Repeat([]byte{byte(i)}, 1+i%97)})
	}
	m := makeMixture(files, rand.New(rand.NewPCG(3, 3)))
	text, err := json.Marshal(m.req)
	if err != nil {
		t.Fatal(err)
	}
	req, err := batching.ParseManifest(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(req.In) != len(m.want) || !req.Coer {
		t.Fatalf("%d entries, %d expected", len(req.In), len(m.want))
	}
	kinds, missing, empty, twice, seen := map[string]int{}, 0, 0, 0, map[batching.Entry]bool{}
	for i, e := range req.In {
		w := m.want[i]
		kinds[e.Kind()]++
		if seen[e] {
			twice++
		}
		seen[e] = true
		switch {
		case w.missing:
			missing++
			if i != m.gone {
				t.Errorf("entry %d is missing, not %d", i, m.gone)
			}
		case len(w.data) == 0:
			empty++
		case e.Kind() == "range" && int64(len(w.data)) != e.Length:
			t.Errorf("entry %d: %d bytes of a range of %d", i, len(w.data), e.Length)
		}
	}
	if missing != 1 || empty != 1 || twice == 0 || kinds["object"] < 100 || kinds["member"] < 100 || kinds["range"] < 30 {
		t.Errorf("%d missing, %d empty, %d twice, %v", missing, empty, twice, kinds)
	}
}

func TestSame(t *testing.T) {
	if err := same("x", []byte("abc"), []byte("abc")); err != nil {
		t.Error(err)
	}
	for got, at := range map[string]string{"abx": "byte 2 ", "ab": "byte 2 ", "abcd": "byte 3 ", "": "byte 0 "} {
		if err := same("x", []byte(got), []byte("abc")); err == nil || !strings.Contains(err.Error(), at) {
			t.Errorf("%q: %v, want %q", got, err, at)
		}
	}
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		12_345 * time.Millisecond: "12.3s", 1_234_567 * time.Microsecond: "1.23s", 123_456 * time.Microsecond: "123.5ms", 1_234_567: "1.23ms",
	} {
		if got := round(d).String(); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
