package server

import (
	"context"
	"time"

	"sheaf/peer"
)

// Version of the program.
const Version = "0.1.0"

func (n *Node) serveStatus(_ context.Context, c *peer.ServerCall) error {
	usage, err := n.store.Usage()
	if err != nil {
		return err
	}
	s := peer.NodeStatus{Name: n.Name(), Version: Version, MapVersion: n.Map().Version, MountpathCount: uint64(len(usage)),
		UptimeMS: uint64(time.Since(n.started).Milliseconds())}
	for _, u := range usage {
		s.Total += uint64(u.Total)
		s.Free += uint64(u.Free)
	}
	dt, sending := n.batches.InFlight()
	s.Batches, s.Senders = uint64(dt), uint64(sending)
	n.fillStatus(&s)
	return c.W.Frame(&s, nil)
}
