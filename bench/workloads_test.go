package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"sheaf/batching"
	"sheaf/peer"
)

func TestWorkloads(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range workloads() {
		if seen[w.name] || w.about == "" || w.run == nil || !regexp.MustCompile(`^[a-z]+$`).MatchString(w.name) {
			t.Errorf("%+v", w)
		}
		seen[w.name] = true
	}
}

func TestContent(t *testing.T) {
	if !bytes.Equal(content(7, 1000), content(7, 1000)) {
		t.Error("not the same on every run")
	}
	if bytes.Equal(content(7, 1000), content(8, 1000)) || bytes.Equal(content(7, 1000), content(7+256, 1000)) {
		t.Error("two objects are the same")
	}
}

func TestRequests(t *testing.T) {
	var nodes []peer.Node
	for i := range 3 {
		nodes = append(nodes, peer.Node{Name: fmt.Sprintf("n%d", i+1), Addr: fmt.Sprintf("127.0.0.1:%d", i+1)})
	}
	m := peer.NewMap("c", 1, nodes)
	for n := range nodes {
		req := dtRequest(m, n, 10)
		if err := req.Normalize(); err != nil || len(req.In) != 10 || m.Owner(peer.HashKey(req.ID)) != n {
			t.Errorf("node %d: %+v %v", n, req, err)
		}
	}
	b := &fileBench{order: [][]int{{2, 0, 1}}}
	req := b.request(0)
	if err := req.Normalize(); err != nil || req.In[0].ObjName != fileName(0, 2) || req.In[2].ObjName != fileName(0, 1) {
		t.Errorf("%+v %v", req, err)
	}
	for _, k := range gbKinds() {
		k.bucket = "b"
		names := map[batching.Entry]bool{}
		req := &batching.Request{}
		for i := range k.count {
			names[k.entry(i)] = true
			req.In = append(req.In, k.entry(i))
		}
		if err := req.Normalize(); err != nil || len(names) != k.count {
			t.Errorf("%s: %d names of %d, %v", k.name, len(names), k.count, err)
		}
		if k.members && k.count%gbPerShard != 0 {
			t.Errorf("%s: %d members fill no whole number of shards", k.name, k.count)
		}
	}
}

func TestParseMemory(t *testing.T) {
	const page = `# HELP process_resident_memory_bytes Resident memory size in bytes.
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes 4.2e+07
go_memstats_heap_inuse_bytes 1.1e+07
go_memstats_heap_inuse_bytes_total 5
sheaf_getbatch_inflight 1
`
	m, err := parseMemory(strings.NewReader(page))
	if err != nil || m.resident != 4.2e7 || m.heap != 1.1e7 || m.batches != 1 {
		t.Errorf("%+v %v", m, err)
	}
	if _, err := parseMemory(strings.NewReader(strings.ReplaceAll(page, "process_resident", "x"))); err == nil || !strings.Contains(err.Error(), "process_resident_memory_bytes") {
		t.Errorf("%v", err)
	}
}

func TestPaced(t *testing.T) {
	start := time.Now()
	p := &paced{start: start, rate: 1 << 20}
	for range 10 {
		if n, err := p.Write(make([]byte, 10<<10)); n != 10<<10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if d := time.Since(start); d < 95*time.Millisecond {
		t.Errorf("100 KiB at 1 MiB/s took %v", d)
	}
}
