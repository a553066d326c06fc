package fusefs

import (
	"bytes"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// metrics are the mount's counters. They live in a registry of their own, which
// .sheaf/stats shows, and in the caller's when it gave one.
type metrics struct {
	registry   *prometheus.Registry
	registerer prometheus.Registerer
	all        []prometheus.Collector

	submitted, getbatch, entries, bytes, prefetched, prefetchedBytes prometheus.Counter
	live, spool, sessions                                            prometheus.Gauge
	entryErrors, errors, ops                                         *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{registry: prometheus.NewRegistry(), registerer: registerer}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "sheaf_mount_" + name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sheaf_mount_" + name, Help: help}, []string{label})
		m.all = append(m.all, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		c := prometheus.NewGauge(prometheus.GaugeOpts{Name: "sheaf_mount_" + name, Help: help})
		m.all = append(m.all, c)
		return c
	}
	m.submitted = counter("batches_submitted_total", "Manifests accepted.")
	m.getbatch = counter("getbatch_calls_total", "GetBatch requests sent to the cluster.")
	m.entries = counter("batch_entries_total", "Entries that arrived, placeholders included.")
	m.bytes = counter("batch_bytes_total", "Payload bytes that arrived in batches.")
	m.prefetched = counter("prefetched_opens_total", "Opens of ordinary paths served from a live batch.")
	m.prefetchedBytes = counter("prefetched_bytes_total", "Bytes of ordinary paths served from a live batch.")
	m.live = gauge("batches_live", "Batches held.")
	m.spool = gauge("spool_bytes", "Bytes of batch payloads in the cache folder.")
	m.sessions = gauge("sessions", "Open control sessions.")
	m.entryErrors = vec("batch_entry_errors_total", "Entries that failed, by error code.", "code")
	m.errors = vec("errors_total", "File operations that the cluster failed, by error code.", "code")
	m.ops = vec("ops_total", "Operations of the kernel that reached the mount.", "op")
	for _, c := range m.all {
		m.registry.MustRegister(c)
	}
	if registerer == nil {
		return m, nil
	}
	for i, c := range m.all {
		if err := registerer.Register(c); err != nil {
			for _, done := range m.all[:i] {
				registerer.Unregister(done)
			}
			return nil, err
		}
	}
	return m, nil
}

// close takes the metrics out of the caller's registry, so that it can mount again.
func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.all {
		m.registerer.Unregister(c)
	}
}

// text is the registry in Prometheus' text format.
func (m *metrics) text() []byte {
	families, err := m.registry.Gather()
	if err != nil {
		return []byte("# " + err.Error() + "\n")
	}
	var buf bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&buf, f); err != nil {
			return []byte("# " + err.Error() + "\n")
		}
	}
	return buf.Bytes()
}
