package server

import "github.com/prometheus/client_golang/prometheus"

// remoteMetrics are the series of remote buckets.
type remoteMetrics struct {
	remoteWarm, remoteCold, remoteRanges, remoteShared     prometheus.Counter
	remoteValidations, remoteDownloads, remoteKept         prometheus.Counter
	remoteRead, remoteWritten, remoteEvicted, remoteFaults prometheus.Counter
	prefetched, prefetchFailed                             prometheus.Counter
}

func newRemoteMetrics(r prometheus.Registerer) *remoteMetrics {
	c := func(name, help string) prometheus.Counter {
		m := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(m)
		return m
	}
	return &remoteMetrics{
		remoteWarm:        c("sheaf_remote_warm_total", "Reads of remote objects served with the copy kept here."),
		remoteCold:        c("sheaf_remote_cold_total", "Reads of remote objects served while they were fetched."),
		remoteRanges:      c("sheaf_remote_ranges_total", "Parts of remote objects read from the backend and not kept."),
		remoteShared:      c("sheaf_remote_shared_total", "Readers that joined a fetch that was under way."),
		remoteValidations: c("sheaf_remote_validations_total", "Copies compared with the backend before they were served."),
		remoteDownloads:   c("sheaf_remote_downloads_total", "Objects that were begun to be fetched from backends."),
		remoteKept:        c("sheaf_remote_kept_total", "Objects that were fetched and kept."),
		remoteRead:        c("sheaf_remote_read_bytes_total", "Payload bytes read from backends."),
		remoteWritten:     c("sheaf_remote_written_bytes_total", "Payload bytes written to backends."),
		remoteEvicted:     c("sheaf_remote_evicted_total", "Copies of remote objects that were evicted."),
		remoteFaults:      c("sheaf_remote_faults_total", "Calls of backends that failed, other than by an object's absence."),
		prefetched:        c("sheaf_remote_prefetched_total", "Prefetches of objects that were done, or not needed."),
		prefetchFailed:    c("sheaf_remote_prefetch_failed_total", "Prefetches of objects that failed."),
	}
}

// watch adds the series that are read off the node.
func (m *remoteMetrics) watch(r prometheus.Registerer, n *Node) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "sheaf_remote_prefetch_waiting",
		Help: "Objects that wait for being fetched, or are, because somebody asked for them ahead."}, func() float64 { return float64(n.remotes.jobs.count()) }))
}
