package peer

import (
	"sheaf/peer/wire"
)

// Ask is a request without fields: TMapGet, TBucketList or TStatus.
type Ask struct{ Kind wire.Type }

func (m *Ask) Type() wire.Type { return m.Kind }

// Encode writes no fields.
func (*Ask) Encode(*wire.Encoder) {}

// Field knows no fields.
func (*Ask) Field(_ string, d *wire.Decoder) { d.Skip() }

// NodeStatus is what a node says of itself.
type NodeStatus struct {
	Name       string
	Version    string // of the program
	MapVersion uint64
	UptimeMS   uint64 // milliseconds
	Total      uint64 // bytes of its disks
	Free       uint64 // bytes
	Mountpaths uint64
	Batches    uint64 // in flight with this node as their DT
	Senders    uint64 // batches it is sending entries for
}

func (*NodeStatus) Type() wire.Type { return wire.TNodeStatus }

// Encode writes the fields.
func (m *NodeStatus) Encode(e *wire.Encoder) {
	e.Str("name", m.Name)
	e.Str("version", m.Version)
	e.Uint("map", m.MapVersion)
	e.Uint("uptime_ms", m.UptimeMS)
	e.Uint("total", m.Total)
	e.Uint("free", m.Free)
	e.Uint("mountpaths", m.Mountpaths)
	e.Uint("batches", m.Batches)
	e.Uint("senders", m.Senders)
}

// Field reads one field.
func (m *NodeStatus) Field(key string, d *wire.Decoder) {
	switch key {
	case "name":
		m.Name = d.Str(MaxNodeName)
	case "version":
		m.Version = d.Str(64)
	case "map":
		m.MapVersion = d.Uint()
	case "uptime_ms":
		m.UptimeMS = d.Uint()
	case "total":
		m.Total = d.Uint()
	case "free":
		m.Free = d.Uint()
	case "mountpaths":
		m.Mountpaths = d.Uint()
	case "batches":
		m.Batches = d.Uint()
	case "senders":
		m.Senders = d.Uint()
	default:
		d.Skip()
	}
}
