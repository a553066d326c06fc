package gossip

import (
	"fmt"

	"sheaf/internal/errs"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// message opens a gossip call, and in a call of packets is repeated for each: its
// payload is the packet. In a stream's call Data frames follow in both directions.
type message struct {
	From   string // name of the node that speaks
	Stream bool
}

func (*message) Type() wire.Type { return wire.TGossip }

// Encode writes the fields.
func (m *message) Encode(e *wire.Encoder) {
	e.Str("from", m.From)
	e.Bool("stream", m.Stream)
}

// Field reads one field.
func (m *message) Field(key string, d *wire.Decoder) {
	switch key {
	case "from":
		m.From = d.Str(peer.MaxNodeName)
	case "stream":
		m.Stream = d.Bool()
	default:
		d.Skip()
	}
}

// maxPacket bounds a packet's payload: memberlist's own are at most 1 400 bytes and a header.
const maxPacket = 4 << 10

// readPacket takes the packet of the frame that r is at.
func readPacket(r *wire.Reader, h wire.Head) ([]byte, error) {
	if h.Payload == 0 || h.Payload > maxPacket {
		return nil, errs.New(errs.Protocol, "gossip", fmt.Sprintf("a packet of %d bytes, the limit is %d", h.Payload, maxPacket))
	}
	b, err := r.Payload()
	if err != nil {
		return nil, err
	}
	return append(make([]byte, 0, len(b)), b...), nil // a view; memberlist keeps what it gets
}
