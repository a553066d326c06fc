package peer

import (
	"context"

	"sheaf/peer/wire"
)

// SettledMessage is what one node tells another about where its objects lie; the answer is
// the other's.
type SettledMessage struct {
	Node      string // that speaks
	Placement uint64 // stands for the map and the copies that it goes by; 0: none yet
	Walked    uint64 // the placement by which it has gone through all it holds, and sent what it could; 0: none
	Settled   uint64 // the placement that all it holds lies by; 0: none
}

func (*SettledMessage) Type() wire.Type { return wire.TSettled }

// Encode writes the fields.
func (m *SettledMessage) Encode(e *wire.Encoder) {
	e.Str("node", m.Node)
	e.Uint("placement", m.Placement)
	e.Uint("walked", m.Walked)
	e.Uint("settled", m.Settled)
}

// Field reads one field.
func (m *SettledMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "node":
		m.Node = d.Str(MaxNodeName)
	case "placement":
		m.Placement = d.Uint()
	case "walked":
		m.Walked = d.Uint()
	case "settled":
		m.Settled = d.Uint()
	default:
		d.Skip()
	}
}

// SettledAt tells the node at addr where this one is, and gives what it says of itself.
func (c *Client) SettledAt(ctx context.Context, addr string, mine *SettledMessage) (SettledMessage, error) {
	var m SettledMessage
	err := c.At(ctx, addr, mine, func(call *Call, _ wire.Head) error { return call.R.Decode(&m) })
	return m, err
}
