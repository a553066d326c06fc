package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// plural gives "1 file", "2 files".
func plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.FormatInt(int64(n), 10) + " " + many
}

// formatBytes gives a number of bytes for people.
func formatBytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n), -1
	for v >= 1024 && unit < 5 {
		v /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTPE"[unit])
}

// formatTime gives a time for people, in their zone.
func formatTime(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// formatSum writes a checksum as 16 hex digits.
func formatSum(s uint64) string { return fmt.Sprintf("%016x", s) }

// writeJSON writes one value on one line.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// table writes rows in columns.
func table(w io.Writer, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// isTerminal tells whether a person looks at f.
func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// printable quotes a name that would do more to a terminal than show itself.
func printable(f *os.File, name string) string {
	if isTerminal(f) && strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}

// buffered hands a buffer on w to fn and writes out what is left.
func buffered(w io.Writer, fn func(w *bufio.Writer) error) error {
	b := bufio.NewWriterSize(w, 64<<10)
	if err := fn(b); err != nil {
		return err
	}
	return b.Flush()
}
