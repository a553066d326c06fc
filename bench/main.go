// Command bench measures Sheaf on one machine.
//
//	main.go ──▶ files.go       mount and QUIC, one by one and in one batch
//	        ├─▶ dtmemory.go    what a batch costs the Designated Target
//	        ├─▶ getbatch.go    GET against GetBatch, by size of the entries
//	        ├─▶ list.go        listings, by size of the bucket
//	        ├─▶ put.go         PUT of small objects against files
//	        ├─▶ large.go       one object of 1 GiB, speed and memory
//	        ├─▶ rebalance.go   a node joins three that hold objects
//	        └─▶ report.go      a table on stdout, JSON with -o
//
// A workload is a file with a function; workloads() lists them. Invariants: variants
// that are compared take turns within one run; what comes back is checked, by its length
// here and by its checksum where it enters a client; nothing that was started or written
// is left at the end, also after a failure or Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"syscall"
	"time"
)

// workload is one measurement.
type workload struct {
	name, about string
	run         func(context.Context, options) (*Result, error)
}

// workloads are run in this order.
func workloads() []workload {
	return []workload{
		{"files", "small files: the mount one by one, one batch through the mount, one over QUIC", runFiles},
		{"dtmemory", "memory of the Designated Target during batches of 1 MiB entries", runDTMemory},
		{"list", "listings: pages at the beginning, middle and end, folders, by size of the bucket", runList},
		{"getbatch", "GET one by one, GET in parallel and GetBatch, by size and number of clients", runGetBatch},
		{"put", "PUT of 10 KiB objects, sync and relaxed, against files with the same promises", runPut},
		{"large", "PUT and GET of one object of 1 GiB: speed, and memory of both ends", runLarge},
		{"rebalance", "a fourth node joins three that hold objects, until all is where it belongs", runRebalance},
	}
}

// options are what workloads are run with.
type options struct {
	Sheaf  string // the program
	Dir    string // for temporary data
	Rounds int    // how often each variant is measured
}

func main() {
	var o options
	flag.StringVar(&o.Sheaf, "sheaf", "bin/sheaf", "the `program` to measure")
	flag.StringVar(&o.Dir, "dir", "", "`folder` for temporary data, 2 GiB (default: the system's)")
	flag.IntVar(&o.Rounds, "rounds", 5, "how often each variant is measured")
	pattern := flag.String("run", "", "run only workloads whose names match `REGEXP`")
	out := flag.String("o", "", "write the results to `FILE` as JSON")
	profile := flag.String("cpuprofile", "", "write a CPU profile of this process to `FILE` (clients; in getbatch the nodes too)")
	list := flag.Bool("list", false, "list the workloads")
	flag.Parse()
	if *list {
		for _, w := range workloads() {
			fmt.Printf("%-10s %s\n", w.name, w.about)
		}
		return
	}
	match, err := regexp.Compile(*pattern)
	if err != nil || flag.NArg() > 0 || o.Rounds < 1 {
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		flag.Usage()
		os.Exit(2)
	}
	// quic-go's hint about the kernel's buffer sizes would stand in the table.
	_ = os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = measure(ctx, o, match, *out, *profile)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, o options, match *regexp.Regexp, out, profile string) (err error) {
	if profile != "" {
		f, err := os.Create(profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	report := newReport(ctx)
	// What was measured before a failure is kept.
	defer func() {
		if out != "" && len(report.Results) > 0 {
			err = errors.Join(err, report.writeFile(out))
		}
	}()
	ran := false
	for _, w := range workloads() {
		if !match.MatchString(w.name) {
			continue
		}
		ran = true
		began := time.Now()
		res, err := w.run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		res.Workload, res.About, res.Seconds = w.name, w.about, time.Since(began).Seconds()
		report.Results = append(report.Results, res)
		if err := res.print(os.Stdout); err != nil {
			return err
		}
	}
	if !ran {
		return fmt.Errorf("no workload matches %q (-list shows them)", match)
	}
	return nil
}
