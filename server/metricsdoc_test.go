package server_test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/testcluster"
)

var updateDocs = flag.Bool("update", false, "write docs/metrics.md anew")

const (
	docs        = "../docs"
	metricsPage = docs + "/metrics.md"
)

// description takes apart what a prometheus.Desc says of itself, which is all it gives.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)"(?:, unit: ".*")?, constLabels: \{.*\}, variableLabels: \{([^}]*)\}\}$`)

// registered gives the metrics that a node has, also those without a value yet, as rows
// of the page's table.
func registered(t *testing.T) map[string]string {
	t.Helper()
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	descs := make(chan *prometheus.Desc, 10000)
	c.Nodes[0].Registry().Describe(descs)
	close(descs)
	rows := map[string]string{}
	for d := range descs {
		m := description.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("can't read %s", d)
		}
		if !strings.HasPrefix(m[1], "sheaf_") {
			continue
		}
		if m[2] == "" {
			t.Errorf("metric %s has no help", m[1])
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		rows[m[1]] = fmt.Sprintf("| `%s` | %s | %s |\n", m[1], labels, m[2])
	}
	return rows
}

// TestMetricsPage: the page has every metric of a node, and no other. With -update it
// is written anew.
func TestMetricsPage(t *testing.T) {
	rows := registered(t)
	var want strings.Builder
	want.WriteString("# Metrics of a node\n\nWhat `/metrics` of the admin HTTP has beside the Go runtime's `go_*` and the process's `process_*`. " +
		"[operations.md](operations.md#watching) says which to look at when.\n" +
		"This page is written by `go test ./server -run TestMetricsPage -update`.\n\n| metric | labels | meaning |\n| --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		want.WriteString(rows[name])
	}
	if *updateDocs {
		must(t, os.WriteFile(metricsPage, []byte(want.String()), 0o644))
	}
	got, err := os.ReadFile(metricsPage)
	must(t, err)
	if string(got) != want.String() {
		t.Errorf("%s isn't what the nodes have: run `go test ./server -run TestMetricsPage -update`\nwant:\n%s", metricsPage, want.String())
	}

	// What the other pages and the rules name, there is.
	other := regexp.MustCompile(`\bsheaf_[a-z0-9_]*[a-z0-9]\b`)
	pages, err := filepath.Glob(docs + "/*.md")
	must(t, err)
	rules, err := filepath.Glob("../deploy/prometheus/*")
	must(t, err)
	for _, page := range append(pages, rules...) {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, name := range other.FindAllString(string(text), -1) {
			family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			if _, ok := rows[name]; !ok && rows[family] == "" && !strings.HasPrefix(name, "sheaf_mount_") {
				t.Errorf("%s names %s, which no node has", page, name)
			}
		}
	}
}
