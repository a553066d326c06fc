package main

import (
	"math"
	"slices"
	"time"
)

// percentile gives the p-th percentile (0 < p ≤ 100) of sorted values by the nearest
// rank: a value that was measured, never one between two. NaN of none.
func percentile(sorted []float64, p float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// summary is what is told of repeated measurements.
type summary struct {
	Median, Min, Max float64
	N                int
}

func summarize(values []float64) summary {
	if len(values) == 0 {
		return summary{}
	}
	s := slices.Sorted(slices.Values(values))
	m := len(s) / 2
	median := s[m]
	if len(s)%2 == 0 {
		median = (s[m-1] + s[m]) / 2
	}
	return summary{Median: median, Min: s[0], Max: s[len(s)-1], N: len(s)}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
