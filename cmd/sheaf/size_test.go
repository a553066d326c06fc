package main

import "testing"

func TestParseSize(t *testing.T) {
	for s, want := range map[string]int64{"0": 0, "17": 17, "17B": 17, "1K": 1024, "1KiB": 1024, "2M": 2 << 20, "1.5GiB": 3 << 29, "1TB": 1 << 40} {
		if got, err := parseSize(s); err != nil || got != want {
			t.Errorf("%q: %d %v, want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"", "K", "-1", "1X", "1KK", "1iB", "1 K", "1e30", "NaN", "Inf", "1Ki", "BK"} {
		if got, err := parseSize(s); err == nil {
			t.Errorf("%q: %d", s, got)
		}
	}
	if n, err := parseRate("none"); err != nil || n != -1 {
		t.Errorf("%d %v", n, err)
	}
	if _, err := parseRate("0"); err == nil {
		t.Error("a rate of 0")
	}
}
