package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestReportRoundTrip(t *testing.T) {
	want := &Report{
		Date: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Sheaf: "0.1.0", Commit: "0123456789ab+", Go: "go1.26",
		Machine: Machine{CPU: "a CPU", Cores: 2, Memory: 24 << 30, Kernel: "Linux 6.18", Arch: "amd64"},
		Results: []*Result{{
			Workload: "files", About: "what it is", Params: map[string]string{"files": "1000"}, Seconds: 1.5,
			Cases:  []Case{{Name: "mount", Figures: []Figure{figure("total", "ms", []float64{3, 1, 2}), {Name: "rate", Unit: "MB/s", Value: 12.5}}}},
			Ratios: []Ratio{ratio("a / b", []float64{3, 6, 8}, []float64{1, 2, 4})},
		}},
	}
	path := filepath.Join(t.TempDir(), "r.json")
	if err := want.writeFile(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got Report
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}

func TestTable(t *testing.T) {
	r := &Result{Workload: "w", About: "about", Seconds: 2, Ratios: []Ratio{{What: "a / b", Value: 2}, ratio("c / d", []float64{1, 9}, []float64{1, 3})},
		Cases: []Case{
			{Name: "a", Figures: []Figure{figure("total", "ms", []float64{20, 10, 30}), {Name: "n", Value: 7}}},
			{Name: "much longer", Figures: []Figure{figure("total", "ms", []float64{1}), {Name: "n", Value: 0.5}}},
		}}
	var b strings.Builder
	if err := r.print(&b); err != nil {
		t.Fatal(err)
	}
	const want = `
w: about (2 s)

                total, ms          n
  a             20.0 [10.0–30.0]   7.00
  much longer   1.00               0.50

  a / b: 2.00
  c / d: 2.00 [1.00–3.00]
`
	if b.String() != want {
		t.Errorf("%s\nwant %s", b.String(), want)
	}
}

func TestField(t *testing.T) {
	const text = "processor\t: 0\nmodel name\t: A CPU: 3 GHz\nMemTotal:       24683520 kB\n"
	for key, want := range map[string]string{"model name": "A CPU: 3 GHz", "MemTotal": "24683520 kB", "none": ""} {
		if got := field(text, key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
}
