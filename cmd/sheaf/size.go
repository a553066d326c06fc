package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"sheaf/internal/errs"
)

// parseSize reads a number of bytes: 1048576, 1MiB, 1M, 1.5GiB. Units are of 1024.
func parseSize(s string) (int64, error) {
	bad := func() (int64, error) {
		return 0, errs.New(errs.InvalidArgument, "", fmt.Sprintf("size %q: want bytes, or a number with K, M, G or T behind it", s))
	}
	number := strings.TrimRight(s, "KMGTiB")
	unit := s[len(number):]
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || n < 0 || math.IsInf(n, 0) || math.IsNaN(n) {
		return bad()
	}
	if unit != "" && unit != "B" {
		i := strings.IndexByte("KMGT", unit[0])
		if rest := unit[1:]; i < 0 || rest != "" && rest != "iB" && rest != "B" {
			return bad()
		}
		n *= float64(uint64(1) << (10 * (i + 1)))
	}
	if n >= math.MaxInt64 {
		return bad()
	}
	return int64(n), nil
}

// noLimit is what a rate flag says for no limit, and an interval flag for never.
const noLimit = "none"

// parseRate reads bytes a second as options have them: −1 for no limit.
func parseRate(s string) (int64, error) {
	if s == noLimit {
		return -1, nil
	}
	n, err := parseSize(s)
	if err == nil && n == 0 {
		err = errs.New(errs.InvalidArgument, "", "a rate of 0 would never end: want a size, or none for no limit")
	}
	return n, err
}
