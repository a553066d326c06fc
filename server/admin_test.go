package server_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"sheaf/batching"
	"sheaf/internal/testcluster"
	"sheaf/server"
)

// fetch gives the answer to a GET.
func fetch(t *testing.T, url string) (status int, body []byte) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(bounded(t), http.MethodGet, url, nil)
	must(t, err)
	r, err := client.Do(req)
	must(t, err)
	defer r.Body.Close()
	body, err = io.ReadAll(r.Body)
	must(t, err)
	return r.StatusCode, body
}

func TestAdmin(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 2, Adjust: func(i int, o *server.Options) {
		if i == 1 {
			o.Admin = ""
		}
	}})
	if a := c.Nodes[1].AdminAddr(); a != "" {
		t.Errorf("a node without admin HTTP has it at %s", a)
	}
	c.Bucket(t, "b")
	c.Put(t, "b", "o", []byte("x"))
	_, err := c.Batch.GetArchive(bounded(t), &batching.Request{Bucket: "b", In: []batching.Entry{{ObjName: "o"}}}, io.Discard)
	must(t, err)

	url := "http://" + c.Nodes[0].AdminAddr()
	status, body := fetch(t, url+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(body))
	must(t, err)
	for _, want := range []string{"sheaf_getbatch_requests_total", "sheaf_getbatch_inflight", "sheaf_getbatch_seconds", "sheaf_getbatch_rxwait_seconds_total",
		"sheaf_object_read_bytes_total", "sheaf_index_builds_total", "sheaf_disk_total_bytes", "sheaf_disk_free_bytes", "go_goroutines", "process_open_fds"} {
		if f := families[want]; f == nil || len(f.GetMetric()) == 0 || f.GetHelp() == "" {
			t.Errorf("no metric %s, or none with help", want)
		}
	}
	for name, f := range families {
		if strings.HasPrefix(name, "sheaf_") && f.GetHelp() == "" {
			t.Errorf("metric %s has no help", name)
		}
	}
	if v := families["sheaf_disk_total_bytes"].GetMetric()[0].GetGauge().GetValue(); v <= 0 {
		t.Errorf("a disk of %v bytes", v)
	}
	if got := total(t, c, "sheaf_getbatch_requests_total"); got != 1 {
		t.Errorf("%v requests, want 1", got)
	}
	if status, body := fetch(t, url+"/healthz"); status != http.StatusOK || string(body) != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	if status, body := fetch(t, url+"/readyz"); status != http.StatusOK || string(body) != "ok\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	waitFor(t, "/readyz?settled", func() bool {
		status, body := fetch(t, url+"/readyz?settled")
		return status == http.StatusOK && string(body) == "ok\n"
	})
	if status, body := fetch(t, url+"/debug/pprof/"); status != http.StatusOK || !bytes.Contains(body, []byte("goroutine")) {
		t.Errorf("/debug/pprof/: %d %.100q", status, body)
	}
	if status, body := fetch(t, url+"/debug/pprof/goroutine?debug=1"); status != http.StatusOK || !bytes.Contains(body, []byte("goroutine profile")) {
		t.Errorf("/debug/pprof/goroutine: %d %.100q", status, body)
	}
	if status, _ := fetch(t, url+"/nothing"); status != http.StatusNotFound {
		t.Errorf("/nothing: %d", status)
	}
	r, err := http.Post(url+"/metrics", "text/plain", strings.NewReader("x"))
	must(t, err)
	r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}
