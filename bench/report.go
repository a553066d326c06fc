package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"sheaf/server"
)

// Report is one run of the program as JSON has it.
type Report struct {
	Date    time.Time `json:"date"`
	Sheaf   string    `json:"sheaf"`
	Commit  string    `json:"commit,omitempty"` // with "+" when the tree differs from it
	Go      string    `json:"go"`
	Machine Machine   `json:"machine"`
	Results []*Result `json:"results"`
}

// Machine is what the figures were measured on.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory"` // bytes
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
}

// Result is what a workload found.
type Result struct {
	Workload string            `json:"workload"`
	About    string            `json:"about"`
	Params   map[string]string `json:"params"`
	Seconds  float64           `json:"seconds"` // it took
	Cases    []Case            `json:"cases"`
	Ratios   []Ratio           `json:"ratios,omitempty"`
}

// Case is one row of the table: a variant with its figures. All rows of a result have
// the same figures in the same order.
type Case struct {
	Name    string   `json:"name"`
	Figures []Figure `json:"figures"`
}

// Figure is one value, or the median of several with the least and the greatest.
type Figure struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	N     int     `json:"n,omitempty"` // of how many values it is the median
}

// Ratio compares two cases: the median of the rounds' ratios with the least and the
// greatest. What was measured close together is compared, so that a slow minute of
// the machine doesn't count.
type Ratio struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
	N     int     `json:"n,omitempty"`
}

// ratio compares two cases by their values of each round.
func ratio(what string, over, under []float64) Ratio {
	var each []float64
	for i := range min(len(over), len(under)) {
		each = append(each, over[i]/under[i])
	}
	s := summarize(each)
	return Ratio{What: what, Value: s.Median, Low: s.Min, High: s.Max, N: s.N}
}

// figure gives the median of values with their spread.
func figure(name, unit string, values []float64) Figure {
	s := summarize(values)
	return Figure{Name: name, Unit: unit, Value: s.Median, Low: s.Min, High: s.Max, N: s.N}
}

func newReport(ctx context.Context) *Report {
	return &Report{Date: time.Now().UTC().Truncate(time.Second), Sheaf: server.Version, Commit: commit(ctx), Go: runtime.Version(), Machine: thisMachine()}
}

// commit asks git; "" where that isn't to be had.
func commit(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return ""
	}
	id := strings.TrimSpace(string(out))
	if changed, err := exec.CommandContext(ctx, "git", "status", "--porcelain").Output(); err == nil && len(changed) > 0 {
		id += "+"
	}
	return id
}

func thisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), Arch: runtime.GOARCH}
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if v := field(string(b), "model name"); v != "" {
			m.CPU = v
		}
	}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		kib, _, _ := strings.Cut(field(string(b), "MemTotal"), " ")
		n, _ := strconv.ParseInt(kib, 10, 64) // 0: unknown
		m.Memory = n << 10
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	return m
}

// field finds the first "key: value" line of a /proc text.
func field(text, key string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (r *Report) writeFile(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}

// print writes a result as a table: the cases below each other, the spread in brackets.
func (r *Result) print(w io.Writer) error {
	fmt.Fprintf(w, "\n%s: %s (%.0f s)\n\n", r.Workload, r.About, r.Seconds)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for i, c := range r.Cases {
		if i == 0 {
			fmt.Fprint(t, "  ")
			for _, f := range c.Figures {
				head := f.Name
				if f.Unit != "" {
					head += ", " + f.Unit
				}
				fmt.Fprintf(t, "\t%s", head)
			}
			fmt.Fprintln(t)
		}
		fmt.Fprint(t, "  "+c.Name)
		for _, f := range c.Figures {
			fmt.Fprintf(t, "\t%s", f)
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i, x := range r.Ratios {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "  %s: %s\n", x.What, spread(x.Value, x.Low, x.High, x.N))
	}
	return nil
}

// String is the value, with its spread when it is a median.
func (f Figure) String() string { return spread(f.Value, f.Low, f.High, f.N) }

func spread(v, low, high float64, n int) string {
	if n < 2 {
		return short(v)
	}
	return fmt.Sprintf("%s [%s–%s]", short(v), short(low), short(high))
}

// short writes three figures or so.
func short(v float64) string {
	switch {
	case v < 0:
		return "-" + short(-v)
	case v >= 99.95 || v == 0:
		return fmt.Sprintf("%.0f", v)
	case v >= 9.995:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
