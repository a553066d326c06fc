package peer

import (
	"sheaf/internal/names"
	"sheaf/peer/wire"
)

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
	e.Str("token", m.Options.Token)
	e.Bool("tombs", m.Options.Tombstones)
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
	case "token":
		m.Options.Token = d.Str(MaxToken)
	case "tombs":
		m.Options.Tombstones = d.Bool()
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
	e.Maps("deleted", len(m.Deleted), func(i int) { (*ObjectMessage)(&m.Deleted[i]).Encode(e) })
	e.Strs("deleted_prefixes", m.DeletedPrefixes)
}

// Field reads one field.
func (m *NamesMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "objects":
		m.Objects = decodeObjects(d)
	case "deleted":
		m.Deleted = decodeObjects(d)
	case "prefixes":
		m.Prefixes = d.Strs(MaxListPage, names.MaxObject)
	case "deleted_prefixes":
		m.DeletedPrefixes = d.Strs(MaxListPage, names.MaxObject)
	case "token":
		m.Token = d.Str(MaxToken)
	default:
		d.Skip()
	}
}

func decodeObjects(d *wire.Decoder) []ObjectInfo {
	var out []ObjectInfo
	d.Array(MaxListPage, func(_, n int) {
		if out == nil {
			out = make([]ObjectInfo, 0, n)
		}
		var o ObjectMessage
		d.Map(func(key string) { o.Field(key, d) })
		out = append(out, ObjectInfo(o))
	})
	return out
}

// WritePage writes a page as NamesMessages that each stay within a frame.
func WritePage(w *wire.Writer, p *ListPage) error {
	objects, prefixes, deleted, gone := p.Objects, p.Prefixes, p.Deleted, p.DeletedPrefixes
	for {
		var m NamesMessage
		bytes := 0
		m.Objects, objects = cut(objects, &bytes)
		m.Deleted, deleted = cut(deleted, &bytes)
		m.Prefixes, prefixes = cutStrings(prefixes, &bytes)
		m.DeletedPrefixes, gone = cutStrings(gone, &bytes)
		last := len(objects) == 0 && len(prefixes) == 0 && len(deleted) == 0 && len(gone) == 0
		if last {
			m.Token = p.Token
		}
		if err := w.Frame(&m, nil); err != nil || last {
			return err
		}
	}
}

// cut takes from rows as many as one frame may have, adding to its bytes.
func cut(rows []ObjectInfo, bytes *int) (now, later []ObjectInfo) {
	n := 0
	for n < len(rows) && n < tableRows && *bytes < tableBytes {
		*bytes += len(rows[n].Name)
		for k, v := range rows[n].Attrs {
			*bytes += len(k) + len(v)
		}
		n++
	}
	return rows[:n], rows[n:]
}

func cutStrings(rows []string, bytes *int) (now, later []string) {
	n := 0
	for n < len(rows) && n < tableRows && *bytes < tableBytes {
		*bytes += len(rows[n])
		n++
	}
	return rows[:n], rows[n:]
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
