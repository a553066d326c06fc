package peer

import (
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// ObjectRequest asks for an object or a member of a shard: TGet, THead, TDelete,
// TMembers or TEvict.
type ObjectRequest struct {
	Kind      wire.Type
	Bucket    string
	Object    string
	Member    string // archpath; TGet and THead only
	Start     int64  // bytes; TGet only
	Length    int64  // bytes, 0 with Start 0: the whole, −1: to the end; TGet only
	Forwarded bool   // by a gateway: the receiver answers from its own disks
	IfVersion uint64 // TDelete only: VersionMismatch unless the object has it; 0: any
}

func (m *ObjectRequest) Type() wire.Type { return m.Kind }

// Encode writes the fields.
func (m *ObjectRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Str("objname", m.Object)
	e.Str("archpath", m.Member)
	e.Int("start", m.Start)
	e.Int("length", m.Length)
	e.Bool("fwd", m.Forwarded)
	e.Uint("if_version", m.IfVersion)
}

// Field reads one field.
func (m *ObjectRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "objname":
		m.Object = d.Str(names.MaxObject)
	case "archpath":
		m.Member = d.Str(names.MaxMember)
	case "start":
		m.Start = d.Int()
	case "length":
		m.Length = d.Int()
	case "fwd":
		m.Forwarded = d.Bool()
	case "if_version":
		m.IfVersion = d.Uint()
	default:
		d.Skip()
	}
}

// Check tells whether the names are ones that can exist.
func (m *ObjectRequest) Check() error {
	if err := names.CheckBucket(m.Bucket); err != nil {
		return err
	}
	if err := names.CheckObject(m.Object); err != nil {
		return err
	}
	if m.Member != "" {
		return names.CheckMember(m.Member)
	}
	return nil
}

// PutRequest begins a PUT or an APPEND; Data frames with the payload and an End with
// its sum follow in the same direction.
type PutRequest struct {
	Append    bool // the payload goes behind what the object has; not on the wire but as the message's number
	Bucket    string
	Object    string
	Size      int64  // bytes, when Sized
	Sized     bool   // the size is known beforehand
	Sum       uint64 // xxh3-64 of the payload, when Summed
	Summed    bool   // an object that has it already ends the call at once
	Forwarded bool
	IfAbsent  bool   // AlreadyExists when the object is there
	IfVersion uint64 // VersionMismatch unless the object has it, NotFound without one; 0: any
	Attrs     map[string]string
}

func (m *PutRequest) Type() wire.Type {
	if m.Append {
		return wire.TAppend
	}
	return wire.TPut
}

// Check tells whether the names and attributes are ones that can exist, and the
// conditions ones that can be met.
func (m *PutRequest) Check() error {
	if err := (&ObjectRequest{Bucket: m.Bucket, Object: m.Object}).Check(); err != nil {
		return err
	}
	if m.IfAbsent && m.IfVersion != 0 {
		return errs.New(errs.InvalidArgument, "put", "only if absent and only if it has a version: it can't be both")
	}
	return names.CheckAttrs(m.Attrs)
}

// Encode writes the fields.
func (m *PutRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Str("objname", m.Object)
	e.Int("size", m.Size)
	e.Bool("sized", m.Sized)
	e.Uint("sum", m.Sum)
	e.Bool("summed", m.Summed)
	e.Bool("fwd", m.Forwarded)
	e.Bool("if_absent", m.IfAbsent)
	e.Uint("if_version", m.IfVersion)
	encodeAttrs(e, m.Attrs)
}

// Field reads one field.
func (m *PutRequest) Field(key string, d *wire.Decoder) {
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
	case "fwd":
		m.Forwarded = d.Bool()
	case "if_absent":
		m.IfAbsent = d.Bool()
	case "if_version":
		m.IfVersion = d.Uint()
	case "attrs":
		m.Attrs = decodeAttrs(d)
	default:
		d.Skip()
	}
}

// Data carries a piece of one byte stream as its payload.
type Data struct{}

func (*Data) Type() wire.Type { return wire.TData }

// Encode writes no fields.
func (*Data) Encode(*wire.Encoder) {}

// Field knows no fields.
func (*Data) Field(_ string, d *wire.Decoder) { d.Skip() }

// nanos is a time on the wire: nanoseconds since 1970, 0 for no time.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// ObjectMessage is an ObjectInfo on the wire.
type ObjectMessage ObjectInfo

func (*ObjectMessage) Type() wire.Type { return wire.TObject }

// Encode writes the fields.
func (m *ObjectMessage) Encode(e *wire.Encoder) {
	e.Str("name", m.Name)
	e.Int("size", m.Size)
	e.Uint("version", m.Version)
	e.Uint("sum", m.Checksum)
	e.Int("mtime", nanos(m.ModTime))
	encodeAttrs(e, m.Attrs)
}

// Field reads one field.
func (m *ObjectMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "name":
		m.Name = d.Str(names.MaxMember)
	case "size":
		m.Size = int64(d.Max(1 << 62))
	case "version":
		m.Version = d.Uint()
	case "sum":
		m.Checksum = d.Uint()
	case "mtime":
		m.ModTime = time.Unix(0, d.Int())
	case "attrs":
		m.Attrs = decodeAttrs(d)
	default:
		d.Skip()
	}
}
