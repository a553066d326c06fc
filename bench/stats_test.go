package main

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		values  []float64
		p, want float64
	}{
		{hundred, 50, 50}, {hundred, 95, 95}, {hundred, 99, 99}, {hundred, 100, 100}, {hundred, 0.1, 1},
		{[]float64{7}, 50, 7}, {[]float64{7}, 99, 7},
		{[]float64{1, 2, 3}, 50, 2}, {[]float64{1, 2, 3}, 99, 3}, {[]float64{1, 2, 3, 4}, 50, 2},
	} {
		if got := percentile(c.values, c.p); got != c.want {
			t.Errorf("p%v of %d values: %v, want %v", c.p, len(c.values), got, c.want)
		}
	}
	if got := percentile(nil, 50); !math.IsNaN(got) {
		t.Errorf("of nothing: %v", got)
	}
}

func TestSummarize(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   summary
	}{
		{nil, summary{}},
		{[]float64{3}, summary{3, 3, 3, 1}},
		{[]float64{3, 1, 2}, summary{2, 1, 3, 3}},
		{[]float64{4, 1, 3, 2}, summary{2.5, 1, 4, 4}},
	} {
		before := append([]float64(nil), c.values...)
		if got := summarize(c.values); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.values, got, c.want)
		}
		for i := range before {
			if c.values[i] != before[i] {
				t.Errorf("%v was %v", c.values, before)
			}
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.126: "0.13", 3.14159: "3.14", 9.996: "10.0", 12.34: "12.3", 99.96: "100", 1234.5: "1234", -2.5: "-2.50"} {
		if got := short(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}
