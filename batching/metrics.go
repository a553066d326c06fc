package batching

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/errs"
)

// metrics are a node's sheaf_getbatch_* series. They separate waiting for senders
// from everything else, as the paper does (section 2.4.4).
type metrics struct {
	requests  prometheus.Counter
	hard      *prometheus.CounterVec
	rejected  prometheus.Counter
	soft      *prometheus.CounterVec
	entries   *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	sentN     *prometheus.CounterVec
	sentBytes *prometheus.CounterVec
	rxwait    prometheus.Counter
	dts       prometheus.Gauge
	senders   prometheus.Gauge
	latency   prometheus.Histogram
	firstByte prometheus.Histogram
	redirects prometheus.Counter

	lostSenders prometheus.Counter
	recovered   prometheus.Counter
	unrecovered prometheus.Counter
	resumed     prometheus.Counter
	alive       prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	c := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "sheaf_getbatch_" + name, Help: help})
	}
	v := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sheaf_getbatch_" + name, Help: help}, []string{label})
	}
	h := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "sheaf_getbatch_" + name, Help: help,
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 18)})
	}
	g := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "sheaf_getbatch_" + name, Help: help})
	}
	m := &metrics{
		requests:  c("requests_total", "Batches this node assembled as their Designated Target, failed ones included."),
		hard:      v("hard_errors_total", "Batches that failed as a whole, by cause.", "cause"),
		rejected:  c("rejected_total", "Batches refused because too many were in flight."),
		soft:      v("soft_errors_total", "Entries that failed, by cause.", "cause"),
		entries:   v("entries_total", "Entries delivered as DT, by kind: object, member, range.", "kind"),
		bytes:     v("bytes_total", "Payload bytes delivered as DT, by kind.", "kind"),
		sentN:     v("sent_entries_total", "Entries sent to other DTs, by kind.", "kind"),
		sentBytes: v("sent_bytes_total", "Payload bytes sent to other DTs, by kind.", "kind"),
		rxwait:    c("rxwait_seconds_total", "Time that DTs waited for entries of other nodes."),
		dts:       g("inflight", "Batches in flight with this node as their DT."),
		senders:   g("sending", "Batches this node is sending entries for."),
		latency:   h("seconds", "Time from a batch's request to its trailer, at the DT."),
		firstByte: h("first_entry_seconds", "Time from a batch's request to its first entry, at the DT."),
		redirects: c("redirects_total", "Requests sent on to the node that is their DT."),

		lostSenders: c("senders_lost_total", "Senders that stopped answering within a batch."),
		recovered:   c("recovered_total", "Entries of lost senders that another node delivered."),
		unrecovered: c("recovery_failed_total", "Entries of lost senders that no other node could deliver."),
		resumed:     c("resumed_total", "Entries that were cut by the loss of their sender and went on from another copy."),
		alive:       c("alive_total", "Signs of life from senders that wait for a backend."),
	}
	if r != nil {
		r.MustRegister(m.requests, m.hard, m.rejected, m.soft, m.entries, m.bytes, m.sentN, m.sentBytes, m.rxwait,
			m.dts, m.senders, m.latency, m.firstByte, m.redirects, m.lostSenders, m.recovered, m.unrecovered, m.resumed, m.alive)
	}
	return m
}

func (m *metrics) sent(kind string, size int64) {
	m.sentN.WithLabelValues(kind).Inc()
	m.sentBytes.WithLabelValues(kind).Add(float64(size))
}

func (m *metrics) delivered(kind string, size int64) {
	m.entries.WithLabelValues(kind).Inc()
	m.bytes.WithLabelValues(kind).Add(float64(size))
}

func (m *metrics) softError(err error) { m.soft.WithLabelValues(errs.CodeOf(err).String()).Inc() }

func (m *metrics) finished(start time.Time, err error) {
	m.latency.Observe(time.Since(start).Seconds())
	if err != nil {
		m.hard.WithLabelValues(errs.CodeOf(err).String()).Inc()
	}
}
