package peer

import (
	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// CopyRequest asks for an object under another name: TCopy, or TRename, which takes
// the first name away. It goes to the owner of the new name.
type CopyRequest struct {
	Kind      wire.Type
	From, To  ObjectName
	Forwarded bool   // by a gateway
	IfAbsent  bool   // AlreadyExists when there is an object of the new name
	IfVersion uint64 // VersionMismatch unless that object has it; 0: any
}

func (m *CopyRequest) Type() wire.Type { return m.Kind }

// Encode writes the fields.
func (m *CopyRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.From.Bucket)
	e.Str("objname", m.From.Object)
	e.Str("to_bucket", m.To.Bucket)
	e.Str("to_objname", m.To.Object)
	e.Bool("fwd", m.Forwarded)
	e.Bool("if_absent", m.IfAbsent)
	e.Uint("if_version", m.IfVersion)
}

// Field reads one field.
func (m *CopyRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.From.Bucket = d.Str(names.MaxBucket)
	case "objname":
		m.From.Object = d.Str(names.MaxObject)
	case "to_bucket":
		m.To.Bucket = d.Str(names.MaxBucket)
	case "to_objname":
		m.To.Object = d.Str(names.MaxObject)
	case "fwd":
		m.Forwarded = d.Bool()
	case "if_absent":
		m.IfAbsent = d.Bool()
	case "if_version":
		m.IfVersion = d.Uint()
	default:
		d.Skip()
	}
}

// Check tells whether the names are ones that can exist and the conditions ones that
// can be met.
func (m *CopyRequest) Check() error {
	for _, n := range []ObjectName{m.From, m.To} {
		if err := (&ObjectRequest{Bucket: n.Bucket, Object: n.Object}).Check(); err != nil {
			return err
		}
	}
	if m.IfAbsent && m.IfVersion != 0 {
		return errs.New(errs.InvalidArgument, "copy", "only if absent and only if it has a version: it can't be both")
	}
	return nil
}

// NamesRequest carries names of objects of a bucket: TVersions or TPrefetch.
type NamesRequest struct {
	Kind      wire.Type
	Bucket    string
	Names     []string
	Forwarded bool // TPrefetch: by a gateway; all are the receiver's
}

func (m *NamesRequest) Type() wire.Type { return m.Kind }

// Encode writes the fields.
func (m *NamesRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Strs("names", m.Names)
	e.Bool("fwd", m.Forwarded)
}

// Field reads one field.
func (m *NamesRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "names":
		m.Names = d.Strs(tableRows, names.MaxObject)
	case "fwd":
		m.Forwarded = d.Bool()
	default:
		d.Skip()
	}
}

// Check tells whether the names are ones that can exist.
func (m *NamesRequest) Check() error {
	if err := names.CheckBucket(m.Bucket); err != nil {
		return err
	}
	for _, n := range m.Names {
		if err := names.CheckObject(n); err != nil {
			return err
		}
	}
	return nil
}

// cutNames takes from a list as many names as one frame may have.
func cutNames(list []string) (now, later []string) {
	n, bytes := 0, 0
	for n < len(list) && n < tableRows && bytes < tableBytes {
		bytes += len(list[n])
		n++
	}
	return list[:n], list[n:]
}

// PrefetchedMessage answers TPrefetch.
type PrefetchedMessage struct{ Started uint64 }

func (*PrefetchedMessage) Type() wire.Type { return wire.TPrefetched }

// Encode writes the fields.
func (m *PrefetchedMessage) Encode(e *wire.Encoder) { e.Uint("started", m.Started) }

// Field reads one field.
func (m *PrefetchedMessage) Field(key string, d *wire.Decoder) {
	if key != "started" {
		d.Skip()
		return
	}
	m.Started = d.Max(tableRows)
}
