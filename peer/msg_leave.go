package peer

import "sheaf/peer/wire"

// LeaveRequest asks a node to leave the cluster, or with Force tells the cluster that a
// node has left which can't do so itself.
type LeaveRequest struct {
	Node  string // "": the node that is asked
	Force bool   // without giving its objects to the others
}

func (*LeaveRequest) Type() wire.Type { return wire.TLeave }

// Encode writes the fields.
func (m *LeaveRequest) Encode(e *wire.Encoder) {
	e.Str("node", m.Node)
	e.Bool("force", m.Force)
}

// Field reads one field.
func (m *LeaveRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "node":
		m.Node = d.Str(MaxNodeName)
	case "force":
		m.Force = d.Bool()
	default:
		d.Skip()
	}
}
