package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/errs"
	"sheaf/internal/store"
)

// metrics are a node's series beside those of batches.
type metrics struct {
	calls       *prometheus.CounterVec
	seconds     *prometheus.HistogramVec
	read        prometheus.Counter
	written     prometheus.Counter
	indexBuilds prometheus.Counter
	indexLoads  prometheus.Counter
}

func newMetrics(r prometheus.Registerer, s *store.Store) *metrics {
	c := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sheaf_object_calls_total", Help: "Object calls by operation and outcome."}, []string{"op", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "sheaf_object_seconds", Help: "Time of object calls by operation.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 20)}, []string{"op"}),
		read:        c("sheaf_object_read_bytes_total", "Payload bytes of GETs answered from this node's disks."),
		written:     c("sheaf_object_written_bytes_total", "Payload bytes of PUTs stored on this node's disks."),
		indexBuilds: c("sheaf_index_builds_total", "Shards read from front to back to make their index."),
		indexLoads:  c("sheaf_index_loads_total", "Shard indexes read from disk."),
	}
	space := func(name, help string, f func(store.Usage) int64) prometheus.GaugeFunc {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			usage, err := s.Usage()
			if err != nil {
				return 0
			}
			var n int64
			for _, u := range usage {
				n += f(u)
			}
			return float64(n)
		})
	}
	r.MustRegister(m.calls, m.seconds, m.read, m.written, m.indexBuilds, m.indexLoads,
		space("sheaf_disk_total_bytes", "Size of the file systems of all mountpaths.", func(u store.Usage) int64 { return u.Total }),
		space("sheaf_disk_free_bytes", "Free space of the file systems of all mountpaths.", func(u store.Usage) int64 { return u.Free }))
	return m
}

func (m *metrics) called(op string, start time.Time, err error) {
	m.calls.WithLabelValues(op, errs.CodeOf(err).String()).Inc()
	m.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
}
