package server

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestReadyz: what isn't ready says why, and is alive all the same.
func TestReadyz(t *testing.T) {
	n := &Node{}
	var why error
	var asked bool
	a, err := startAdmin("127.0.0.1:0", prometheus.NewRegistry(), func(settled bool) error {
		asked = settled
		return why
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.Get("http://" + a.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, strings.TrimSpace(string(body))
	}
	for phase, want := range map[serving]string{starting: "starting: not yet in the cluster", running: "ok", stopping: "stopping"} {
		n.phase.Store(int32(phase))
		why = n.readiness(false)
		status := http.StatusOK
		if phase != running {
			status = http.StatusServiceUnavailable
		}
		if got, body := get("/readyz"); got != status || body != want || asked {
			t.Errorf("phase %d: %d %q, want %d %q", phase, got, body, status, want)
		}
	}
	if get("/readyz?settled"); !asked {
		t.Error("?settled wasn't heard")
	}
	why = errors.New("anything")
	if got, body := get("/healthz"); got != http.StatusOK || body != "ok" {
		t.Errorf("%d %q", got, body)
	}
	http.DefaultClient.CloseIdleConnections()
}
