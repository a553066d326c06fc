package peer

import (
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// StageRequest brings one holder its copy of an object that is being written: Data
// frames and an End with the sum follow, then, after the holder's Staged, a Commit.
type StageRequest struct {
	Bucket  string
	Object  string
	Size    int64  // bytes, when Sized
	Sized   bool   // the size is known beforehand
	Sum     uint64 // xxh3-64 of the payload, when Summed
	Summed  bool
	ModTime time.Time // the same on all holders
	Relaxed bool      // needn't be on disk at the commit
	Version uint64    // that the commit will probably ask for, which spares the holder a sync; 0: not known
	Attrs   map[string]string
}

func (*StageRequest) Type() wire.Type { return wire.TStage }

// Encode writes the fields.
func (m *StageRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Str("objname", m.Object)
	e.Int("size", m.Size)
	e.Bool("sized", m.Sized)
	e.Uint("sum", m.Sum)
	e.Bool("summed", m.Summed)
	e.Int("mtime", nanos(m.ModTime))
	e.Bool("relaxed", m.Relaxed)
	e.Uint("version", m.Version)
	encodeAttrs(e, m.Attrs)
}

// Field reads one field.
func (m *StageRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "objname":
		m.Object = d.Str(names.MaxObject)
	case "size":
		m.Size = int64(d.Max(1 << 62))
	case "sized":
		m.Sized = d.Bool()
	case "sum":
		m.Sum = d.Uint()
	case "summed":
		m.Summed = d.Bool()
	case "mtime":
		m.ModTime = fromNanos(d.Int())
	case "relaxed":
		m.Relaxed = d.Bool()
	case "version":
		m.Version = d.Uint()
	case "attrs":
		m.Attrs = decodeAttrs(d)
	default:
		d.Skip()
	}
}

// Check tells whether the names and attributes are ones that can exist.
func (m *StageRequest) Check() error {
	return (&PutRequest{Bucket: m.Bucket, Object: m.Object, Attrs: m.Attrs}).Check()
}

// StagedMessage says that a holder has the whole payload in a work file.
type StagedMessage struct {
	Size int64       // bytes
	Sum  uint64      // xxh3-64 of the payload
	High VersionInfo // the highest that the holder knows of the name
}

func (*StagedMessage) Type() wire.Type { return wire.TStaged }

// Encode writes the fields.
func (m *StagedMessage) Encode(e *wire.Encoder) {
	e.Int("size", m.Size)
	e.Uint("sum", m.Sum)
	e.Uint("high", m.High.Version)
	e.Bool("high_deleted", m.High.Deleted)
	e.Int("high_size", m.High.Size)
	e.Uint("high_sum", m.High.Checksum)
}

// Field reads one field.
func (m *StagedMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "size":
		m.Size = int64(d.Max(1 << 62))
	case "sum":
		m.Sum = d.Uint()
	case "high":
		m.High.Version = d.Uint()
	case "high_deleted":
		m.High.Deleted = d.Bool()
	case "high_size":
		m.High.Size = int64(d.Max(1 << 62))
	case "high_sum":
		m.High.Checksum = d.Uint()
	default:
		d.Skip()
	}
}

// CommitMessage makes what was staged visible under a version.
type CommitMessage struct{ Version uint64 }

func (*CommitMessage) Type() wire.Type { return wire.TCommit }

// Encode writes the fields.
func (m *CommitMessage) Encode(e *wire.Encoder) { e.Uint("version", m.Version) }

// Field reads one field.
func (m *CommitMessage) Field(key string, d *wire.Decoder) {
	if key != "version" {
		d.Skip()
		return
	}
	m.Version = d.Uint()
}

// TombstoneRequest deletes a holder's copy at a version that the owner picked.
type TombstoneRequest struct {
	Bucket  string
	Object  string
	Version uint64
}

func (*TombstoneRequest) Type() wire.Type { return wire.TTombstone }

// Encode writes the fields.
func (m *TombstoneRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Str("objname", m.Object)
	e.Uint("version", m.Version)
}

// Field reads one field.
func (m *TombstoneRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "objname":
		m.Object = d.Str(names.MaxObject)
	case "version":
		m.Version = d.Uint()
	default:
		d.Skip()
	}
}

// Check tells whether the names are ones that can exist.
func (m *TombstoneRequest) Check() error {
	return (&ObjectRequest{Bucket: m.Bucket, Object: m.Object}).Check()
}

// VersionListMessage answers TVersions: what the node has of each name, in their order.
type VersionListMessage struct {
	Versions  []VersionInfo
	Placement uint64 // stands for the map and the copies that the node goes by
}

func (*VersionListMessage) Type() wire.Type { return wire.TVersionList }

// Encode writes the fields.
func (m *VersionListMessage) Encode(e *wire.Encoder) {
	e.Maps("versions", len(m.Versions), func(i int) {
		v := &m.Versions[i]
		e.Uint("v", v.Version)
		e.Bool("d", v.Deleted)
		e.Int("z", v.Size)
		e.Uint("x", v.Checksum)
	})
	e.Uint("placement", m.Placement)
}

// Field reads one field.
func (m *VersionListMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "versions":
	case "placement":
		m.Placement = d.Uint()
		return
	default:
		d.Skip()
		return
	}
	m.Versions = nil
	d.Array(tableRows, func(_, n int) {
		if m.Versions == nil {
			m.Versions = make([]VersionInfo, 0, n)
		}
		var v VersionInfo
		d.Map(func(key string) {
			switch key {
			case "v":
				v.Version = d.Uint()
			case "d":
				v.Deleted = d.Bool()
			case "z":
				v.Size = int64(d.Max(1 << 62))
			case "x":
				v.Checksum = d.Uint()
			default:
				d.Skip()
			}
		})
		m.Versions = append(m.Versions, v)
	})
}

// ReplicateRequest begins one object of a stream of them, or a tombstone: Data frames
// and an End with their sum follow, then the next ReplicateRequest.
type ReplicateRequest struct {
	Bucket  string
	Info    ObjectInfo // with its version, which the receiver keeps
	Deleted bool       // a tombstone: no Data follows
}

func (*ReplicateRequest) Type() wire.Type { return wire.TReplicate }

// Encode writes the fields.
func (m *ReplicateRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	(*ObjectMessage)(&m.Info).Encode(e)
	e.Bool("deleted", m.Deleted)
}

// Field reads one field.
func (m *ReplicateRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "deleted":
		m.Deleted = d.Bool()
	default:
		(*ObjectMessage)(&m.Info).Field(key, d)
	}
}

// Check tells whether the names and attributes are ones that can exist, and the
// version one that a record has.
func (m *ReplicateRequest) Check() error {
	if m.Info.Version == 0 {
		return errs.New(errs.InvalidArgument, "replicate", "a record without a version")
	}
	return (&PutRequest{Bucket: m.Bucket, Object: m.Info.Name, Attrs: m.Info.Attrs}).Check()
}

// ReplicatedMessage answers one ReplicateRequest: how it went in the fields of an End,
// and what the receiver has now.
type ReplicatedMessage struct {
	Version   uint64
	Placement uint64 // as in a VersionListMessage
	wire.End
}

func (*ReplicatedMessage) Type() wire.Type { return wire.TReplicated }

// Encode writes the fields.
func (m *ReplicatedMessage) Encode(e *wire.Encoder) {
	e.Uint("version", m.Version)
	e.Uint("placement", m.Placement)
	m.End.Encode(e)
}

// Field reads one field.
func (m *ReplicatedMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "version":
		m.Version = d.Uint()
	case "placement":
		m.Placement = d.Uint()
	default:
		m.End.Field(key, d)
	}
}
