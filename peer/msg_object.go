package peer

import (
	"time"

	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// ObjectRequest asks for an object or a member of a shard: TGet, THead, TDelete or
// TMembers.
type ObjectRequest struct {
	Kind      wire.Type
	Bucket    string
	Object    string
	Member    string // archpath; TGet and THead only
	Start     int64  // bytes; TGet only
	Length    int64  // bytes, 0 with Start 0: the whole, −1: to the end; TGet only
	Forwarded bool   // by a gateway: the receiver answers from its own disks
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

// PutRequest begins a PUT; Data frames with the payload and an End with its sum
// follow in the same direction.
type PutRequest struct {
	Bucket    string
	Object    string
	Size      int64  // bytes, when Sized
	Sized     bool   // the size is known beforehand
	Sum       uint64 // xxh3-64 of the payload, when Summed
	Summed    bool   // an object that has it already ends the call at once
	Forwarded bool
}

func (*PutRequest) Type() wire.Type { return wire.TPut }

// Encode writes the fields.
func (m *PutRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Str("objname", m.Object)
	e.Int("size", m.Size)
	e.Bool("sized", m.Sized)
	e.Uint("sum", m.Sum)
	e.Bool("summed", m.Summed)
	e.Bool("fwd", m.Forwarded)
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
	default:
		d.Skip()
	}
}

// ListRequest asks for one page of a listing.
type ListRequest struct {
	Bucket    string
	Options   ListOptions
	Forwarded bool // only what the receiver itself holds
}

func (*ListRequest) Type() wire.Type { return wire.TList }

// Encode writes the fields.
func (m *ListRequest) Encode(e *wire.Encoder) {
	e.Str("bucket", m.Bucket)
	e.Str("prefix", m.Options.Prefix)
	e.Str("delimiter", m.Options.Delimiter)
	e.Str("start_after", m.Options.StartAfter)
	e.Uint("limit", uint64(max(m.Options.Limit, 0)))
	e.Bool("fwd", m.Forwarded)
}

// Field reads one field.
func (m *ListRequest) Field(key string, d *wire.Decoder) {
	switch key {
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "prefix":
		m.Options.Prefix = d.Str(names.MaxObject)
	case "delimiter":
		m.Options.Delimiter = d.Str(1)
	case "start_after":
		m.Options.StartAfter = d.Str(names.MaxObject)
	case "limit":
		m.Options.Limit = int(d.Max(MaxListPage))
	case "fwd":
		m.Forwarded = d.Bool()
	default:
		d.Skip()
	}
}

// tableRows bounds the rows of one Names or Table frame, tableBytes the bytes of
// their names, so that a frame's header stays well under its limit.
const (
	tableRows  = 1000
	tableBytes = 256 << 10
)

// NamesMessage is a part of a page of a listing. A page is one or more of them;
// Token is that of the last.
type NamesMessage ListPage

func (*NamesMessage) Type() wire.Type { return wire.TNames }

// Encode writes the fields.
func (m *NamesMessage) Encode(e *wire.Encoder) {
	e.Maps("objects", len(m.Objects), func(i int) { (*ObjectMessage)(&m.Objects[i]).Encode(e) })
	e.Strs("prefixes", m.Prefixes)
	e.Str("token", m.Token)
}

// Field reads one field.
func (m *NamesMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "objects":
		d.Array(MaxListPage, func(_, n int) {
			if m.Objects == nil {
				m.Objects = make([]ObjectInfo, 0, n)
			}
			var o ObjectMessage
			d.Map(func(key string) { o.Field(key, d) })
			m.Objects = append(m.Objects, ObjectInfo(o))
		})
	case "prefixes":
		m.Prefixes = d.Strs(MaxListPage, names.MaxObject)
	case "token":
		m.Token = d.Str(names.MaxObject)
	default:
		d.Skip()
	}
}

// WritePage writes a page as NamesMessages that each stay within a frame.
func WritePage(w *wire.Writer, p *ListPage) error {
	objects, prefixes := p.Objects, p.Prefixes
	for {
		var m NamesMessage
		n, bytes := 0, 0
		for n < len(objects) && n < tableRows && bytes < tableBytes {
			bytes += len(objects[n].Name)
			n++
		}
		m.Objects, objects = objects[:n], objects[n:]
		n = 0
		for n < len(prefixes) && n < tableRows && bytes < tableBytes {
			bytes += len(prefixes[n])
			n++
		}
		m.Prefixes, prefixes = prefixes[:n], prefixes[n:]
		last := len(objects) == 0 && len(prefixes) == 0
		if last {
			m.Token = p.Token
		}
		if err := w.Frame(&m, nil); err != nil || last {
			return err
		}
	}
}

// TableMessage is a part of a shard's table of members.
type TableMessage struct{ Members []MemberInfo }

func (*TableMessage) Type() wire.Type { return wire.TTable }

// Encode writes the fields.
func (m *TableMessage) Encode(e *wire.Encoder) {
	e.Maps("members", len(m.Members), func(i int) {
		e.Str("name", m.Members[i].Name)
		e.Int("size", m.Members[i].Size)
		e.Int("mtime", nanos(m.Members[i].ModTime))
	})
}

// Field reads one field.
func (m *TableMessage) Field(key string, d *wire.Decoder) {
	if key != "members" {
		d.Skip()
		return
	}
	d.Array(MaxListPage, func(_, n int) {
		if m.Members == nil {
			m.Members = make([]MemberInfo, 0, n)
		}
		var o ObjectMessage
		d.Map(func(key string) { o.Field(key, d) })
		m.Members = append(m.Members, MemberInfo{Name: o.Name, Size: o.Size, ModTime: o.ModTime})
	})
}

// TableWriter gathers members into TableMessages.
type TableWriter struct {
	w     *wire.Writer
	m     TableMessage
	bytes int
}

// NewTableWriter makes a TableWriter on w.
func NewTableWriter(w *wire.Writer) *TableWriter { return &TableWriter{w: w} }

// Add appends a member, writing a frame when enough have come together.
func (t *TableWriter) Add(m MemberInfo) error {
	t.m.Members = append(t.m.Members, m)
	t.bytes += len(m.Name)
	if len(t.m.Members) < tableRows && t.bytes < tableBytes {
		return nil
	}
	return t.Flush()
}

// Flush writes what is left.
func (t *TableWriter) Flush() error {
	if len(t.m.Members) == 0 {
		return nil
	}
	err := t.w.Frame(&t.m, nil)
	t.m.Members, t.bytes = t.m.Members[:0], 0
	return err
}
