package gossip

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	packets *prometheus.CounterVec
	bytes   *prometheus.CounterVec
	dropped *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	v := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		packets: v("sheaf_gossip_packets_total", "Gossip packets by direction.", "direction"),
		bytes:   v("sheaf_gossip_bytes_total", "Bytes of gossip packets by direction.", "direction"),
		dropped: v("sheaf_gossip_dropped_total", "Gossip packets and streams that were dropped: out (the node doesn't take them), in and stream (this node is behind), unknown (the node isn't in the cluster map).", "reason"),
	}
	if r != nil {
		r.MustRegister(m.packets, m.bytes, m.dropped)
	}
	return m
}

func (m *metrics) count(direction string, packets [][]byte) {
	n := 0
	for _, p := range packets {
		n += len(p)
	}
	m.packets.WithLabelValues(direction).Add(float64(len(packets)))
	m.bytes.WithLabelValues(direction).Add(float64(n))
}
