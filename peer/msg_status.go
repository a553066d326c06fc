package peer

import (
	"time"

	"sheaf/peer/wire"
)

// maxMountpaths bounds a node's mountpaths, maxDir the path of one, maxWord a text
// that is one of a few words.
const (
	maxMountpaths = 1024
	maxDir        = 4096
	maxWord       = 32
)

// NodeStatus is what a node says of itself.
type NodeStatus struct {
	Name           string
	Version        string // of the program
	MapVersion     uint64
	UptimeMS       uint64 // milliseconds
	Total          uint64 // bytes of its disks
	Free           uint64 // bytes
	MountpathCount uint64
	Batches        uint64    // in flight with this node as their DT
	Senders        uint64    // batches it is sending entries for
	State          NodeState // its own in that map
	MapHash        uint64    // of the cluster map it goes by (Map.Hash)
	Settled        bool      // all that it holds lies where that map says
	Objects        uint64    // on its disks
	TombstonesKept uint64
	Reconcile      TaskStatus // copies brought to where the map says
	Scrub          TaskStatus // bytes on disk compared with their checksums
	Resilver       TaskStatus // objects moved between its own mountpaths
	Mountpaths     []MountpathStatus
}

// TaskStatus tells how a node's background task is going.
type TaskStatus struct {
	Active   bool
	Objects  uint64 // looked at
	Bytes    uint64 // read, or moved
	Moved    uint64 // objects
	Failed   uint64 // objects
	Started  time.Time
	Finished time.Time // of the last that ran to its end
}

// MountpathStatus describes one mountpath of a node.
type MountpathStatus struct {
	Dir     string
	ID      string
	Enabled bool
	Err     string // why it was disabled
	Free    uint64 // bytes
	Total   uint64 // bytes
	Objects uint64
}

func (*NodeStatus) Type() wire.Type { return wire.TNodeStatus }

// task is one of a node's tasks by its name on the wire.
func (m *NodeStatus) task(name string) *TaskStatus {
	switch name {
	case "reconcile":
		return &m.Reconcile
	case "scrub":
		return &m.Scrub
	case "resilver":
		return &m.Resilver
	}
	return nil
}

// Encode writes the fields.
func (m *NodeStatus) Encode(e *wire.Encoder) {
	e.Str("name", m.Name)
	e.Str("version", m.Version)
	e.Uint("map", m.MapVersion)
	e.Uint("uptime_ms", m.UptimeMS)
	e.Uint("total", m.Total)
	e.Uint("free", m.Free)
	e.Uint("mountpaths", m.MountpathCount)
	e.Uint("batches", m.Batches)
	e.Uint("senders", m.Senders)
	e.Uint("state", uint64(m.State))
	e.Uint("map_hash", m.MapHash)
	e.Bool("settled", m.Settled)
	e.Uint("objects", m.Objects)
	e.Uint("tombstones", m.TombstonesKept)
	var ran []string
	for _, name := range []string{"reconcile", "scrub", "resilver"} {
		if *m.task(name) != (TaskStatus{}) {
			ran = append(ran, name)
		}
	}
	e.Maps("tasks", len(ran), func(i int) {
		t := m.task(ran[i])
		e.Str("name", ran[i])
		e.Bool("active", t.Active)
		e.Uint("objects", t.Objects)
		e.Uint("bytes", t.Bytes)
		e.Uint("moved", t.Moved)
		e.Uint("failed", t.Failed)
		e.Int("started", nanos(t.Started))
		e.Int("finished", nanos(t.Finished))
	})
	encodeMountpaths(e, "disks", m.Mountpaths)
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
		m.MountpathCount = d.Uint()
	case "batches":
		m.Batches = d.Uint()
	case "senders":
		m.Senders = d.Uint()
	case "state":
		m.State = NodeState(d.Max(1<<8 - 1))
	case "map_hash":
		m.MapHash = d.Uint()
	case "settled":
		m.Settled = d.Bool()
	case "objects":
		m.Objects = d.Uint()
	case "tombstones":
		m.TombstonesKept = d.Uint()
	case "tasks":
		d.Array(64, func(int, int) { m.decodeTask(d) })
	case "disks":
		m.Mountpaths = decodeMountpaths(d)
	default:
		d.Skip()
	}
}

// decodeTask reads one task; one that a later version has is passed over.
func (m *NodeStatus) decodeTask(d *wire.Decoder) {
	var name string
	var t TaskStatus
	d.Map(func(key string) {
		switch key {
		case "name":
			name = d.Str(maxWord)
		case "active":
			t.Active = d.Bool()
		case "objects":
			t.Objects = d.Uint()
		case "bytes":
			t.Bytes = d.Uint()
		case "moved":
			t.Moved = d.Uint()
		case "failed":
			t.Failed = d.Uint()
		case "started":
			t.Started = fromNanos(d.Int())
		case "finished":
			t.Finished = fromNanos(d.Int())
		default:
			d.Skip()
		}
	})
	if into := m.task(name); into != nil {
		*into = t
	}
}

// fromNanos is the inverse of nanos.
func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func encodeMountpaths(e *wire.Encoder, key string, list []MountpathStatus) {
	e.Maps(key, len(list), func(i int) {
		p := &list[i]
		e.Str("dir", p.Dir)
		e.Str("id", p.ID)
		e.Bool("enabled", p.Enabled)
		e.Str("err", wire.Clip(p.Err, 512))
		e.Uint("free", p.Free)
		e.Uint("total", p.Total)
		e.Uint("objects", p.Objects)
	})
}

func decodeMountpaths(d *wire.Decoder) []MountpathStatus {
	var out []MountpathStatus
	d.Array(maxMountpaths, func(int, int) {
		var p MountpathStatus
		d.Map(func(key string) {
			switch key {
			case "dir":
				p.Dir = d.Str(maxDir)
			case "id":
				p.ID = d.Str(64)
			case "enabled":
				p.Enabled = d.Bool()
			case "err":
				p.Err = d.Str(wire.MaxText)
			case "free":
				p.Free = d.Uint()
			case "total":
				p.Total = d.Uint()
			case "objects":
				p.Objects = d.Uint()
			default:
				d.Skip()
			}
		})
		out = append(out, p)
	})
	return out
}

// MountpathsMessage answers TMountpathList.
type MountpathsMessage struct{ Mountpaths []MountpathStatus }

func (*MountpathsMessage) Type() wire.Type { return wire.TMountpaths }

// Encode writes the fields.
func (m *MountpathsMessage) Encode(e *wire.Encoder) { encodeMountpaths(e, "disks", m.Mountpaths) }

// Field reads one field.
func (m *MountpathsMessage) Field(key string, d *wire.Decoder) {
	if key != "disks" {
		d.Skip()
		return
	}
	m.Mountpaths = decodeMountpaths(d)
}

// MountpathSetRequest enables or disables a mountpath.
type MountpathSetRequest struct {
	Dir     string
	Enabled bool
}

func (*MountpathSetRequest) Type() wire.Type { return wire.TMountpathSet }

// Encode writes the fields.
func (m *MountpathSetRequest) Encode(e *wire.Encoder) {
	e.Str("dir", m.Dir)
	e.Bool("enabled", m.Enabled)
}

// Field reads one field.
func (m *MountpathSetRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "dir":
		m.Dir = d.Str(maxDir)
	case "enabled":
		m.Enabled = d.Bool()
	default:
		d.Skip()
	}
}
