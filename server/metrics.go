package server

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sheaf/internal/errs"
	"sheaf/internal/store"
	"sheaf/peer"
)

// metrics are a node's series beside those of batches.
type metrics struct {
	calls         *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	read          prometheus.Counter
	written       prometheus.Counter
	indexBuilds   prometheus.Counter
	indexLoads    prometheus.Counter
	stagedCopies  prometheus.Counter
	droppedCopies prometheus.Counter
	earlyEnds     prometheus.Counter
	halfWrites    prometheus.Counter
	neighborReads prometheus.Counter
	surveys       prometheus.Counter
	badCopies     prometheus.Counter
	*backgroundMetrics
	*remoteMetrics
}

// backgroundMetrics are the series of work that nobody waits for.
type backgroundMetrics struct {
	passes, reconcileSent, reconcileSentObjects, reconcileRemoved, reconcileFailed prometheus.Counter
	replicas, replicaBytes                                                         prometheus.Counter
	repaired, repairsFailed, replaced                                              prometheus.Counter
	tombstonesForgotten, resilverMoved                                             prometheus.Counter
	scrubRounds, scrubObjects, scrubBytes, scrubCorrupt                            prometheus.Counter
}

func newBackgroundMetrics(r prometheus.Registerer) *backgroundMetrics {
	c := func(name, help string) prometheus.Counter {
		m := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		r.MustRegister(m)
		return m
	}
	return &backgroundMetrics{
		passes:               c("sheaf_reconcile_passes_total", "Passes over all that this node holds that came to their end."),
		reconcileSent:        c("sheaf_reconcile_sent_bytes_total", "Payload bytes sent to nodes that hold them by the placement."),
		reconcileSentObjects: c("sheaf_reconcile_sent_total", "Objects and deletions sent to nodes that hold them by the placement."),
		reconcileRemoved:     c("sheaf_reconcile_removed_total", "Records taken away here because all their holders have them."),
		reconcileFailed:      c("sheaf_reconcile_failed_total", "Records that could not be asked after or sent, each time; they are tried again."),
		replicas:             c("sheaf_reconcile_received_total", "Objects and deletions taken from other nodes."),
		replicaBytes:         c("sheaf_reconcile_received_bytes_total", "Payload bytes of objects taken from other nodes."),
		repaired:             c("sheaf_repair_done_total", "Names whose copies were compared and brought in order one by one."),
		repairsFailed:        c("sheaf_repair_failed_total", "Attempts at that which failed; they are made again."),
		replaced:             c("sheaf_repair_replaced_total", "Copies of this node replaced by another node's."),
		tombstonesForgotten:  c("sheaf_tombstones_forgotten_total", "Deletions that no node needs to know of any more."),
		resilverMoved:        c("sheaf_resilver_moved_total", "Objects moved to the mountpath of this node that they belong on."),
		scrubRounds:          c("sheaf_scrub_rounds_total", "Rounds of reading all objects and comparing their checksums."),
		scrubObjects:         c("sheaf_scrub_objects_total", "Objects read by the scrub."),
		scrubBytes:           c("sheaf_scrub_bytes_total", "Payload bytes read by the scrub."),
		scrubCorrupt:         c("sheaf_scrub_corrupt_total", "Copies whose bytes the scrub found damaged."),
	}
}

// watch adds the series that are read off a node's background work.
func (m *backgroundMetrics) watch(r prometheus.Registerer, n *Node) {
	g := func(name, help string, f func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	g("sheaf_reconcile_active", "1 while a pass is under way.", func() float64 { return truth(n.reconciler.status().Active) })
	g("sheaf_settled", "1 when all objects are known to lie with their holders.", func() float64 { return truth(n.settled()) })
	g("sheaf_repair_waiting", "Names whose copies are to be compared and brought in order.", func() float64 { return float64(n.reconciler.repairs.waiting()) })
	g("sheaf_mountpaths_disabled", "Mountpaths of this node that are out of use: by hand, or because their disk fails.", func() float64 {
		all := n.store.Mountpaths()
		return float64(len(all) - len(disks(all)))
	})
	g("sheaf_scrub_lost", "Objects on this node that are damaged and of which no other node has a copy.", func() float64 { return float64(n.reconciler.repairs.lost()) })
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

		stagedCopies:  c("sheaf_copies_staged_total", "Copies taken into work files for writes that other nodes coordinate."),
		droppedCopies: c("sheaf_copies_dropped_total", "Such copies whose write was given up before its commit."),
		earlyEnds:     c("sheaf_put_same_total", "PUTs that ended at once: the object had the announced checksum."),
		halfWrites:    c("sheaf_half_writes_total", "Writes and deletions that a holder didn't confirm after another had: their outcome isn't known to the caller."),
		neighborReads: c("sheaf_neighbor_reads_total", "Reads served with the copy of another node."),
		surveys:       c("sheaf_surveys_total", "Times that all nodes were asked what they have of a name, or of a batch's names."),
		badCopies:     c("sheaf_bad_copies_total", "Copies on this node's disks whose bytes failed their checksum when they were read."),
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
	m.backgroundMetrics = newBackgroundMetrics(r)
	m.remoteMetrics = newRemoteMetrics(r)
	r.MustRegister(m.calls, m.seconds, m.read, m.written, m.indexBuilds, m.indexLoads,
		m.stagedCopies, m.droppedCopies, m.earlyEnds, m.halfWrites, m.neighborReads, m.surveys, m.badCopies,
		space("sheaf_disk_total_bytes", "Size of the file systems of all mountpaths.", func(u store.Usage) int64 { return u.Total }),
		space("sheaf_disk_free_bytes", "Free space of the file systems of all mountpaths.", func(u store.Usage) int64 { return u.Free }))
	return m
}

// cluster adds the series of the cluster map.
func (*metrics) cluster(r prometheus.Registerer, m func() *peer.Map) {
	r.MustRegister(clusterMap(m))
}

// clusterMap is the series of a cluster map.
type clusterMap func() *peer.Map

var (
	mapVersion = prometheus.NewDesc("sheaf_cluster_map_version", "Version of the cluster map.", nil, nil)
	mapNodes   = prometheus.NewDesc("sheaf_cluster_nodes", "Nodes of the cluster map by state: up, leaving, down, left.", []string{"state"}, nil)
)

func (clusterMap) Describe(ch chan<- *prometheus.Desc) {
	ch <- mapVersion
	ch <- mapNodes
}

func (m clusterMap) Collect(ch chan<- prometheus.Metric) {
	now := m()
	ch <- prometheus.MustNewConstMetric(mapVersion, prometheus.GaugeValue, float64(now.Version))
	for s := peer.Up; s <= peer.Left; s++ {
		ch <- prometheus.MustNewConstMetric(mapNodes, prometheus.GaugeValue, float64(now.Count(s)), s.String())
	}
}

func (m *metrics) called(op string, start time.Time, err error) {
	m.calls.WithLabelValues(op, errs.CodeOf(err).String()).Inc()
	m.seconds.WithLabelValues(op).Observe(time.Since(start).Seconds())
}
