package batching

import (
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// batchMessage opens a GetBatch call (TBatch) or a sender's share of one (TSend);
// N entries follow in entriesMessages.
type batchMessage struct {
	Kind    wire.Type
	ID      string
	N       uint64
	Bucket  string // of the entries that name none
	Format  string
	NoStrm  bool // metadata of all entries first
	Onob    bool
	Coer    bool
	MaxSoft int64
	Coloc   uint64
	Timeout time.Duration
	Here    bool          // TBatch: the receiver shall be the DT, whatever its map says
	DT      string        // TSend: the name of the DT
	MapVers uint64        // cluster map that the sender of this message goes by
	Wait    time.Duration // TSend: how long the DT waits for a frame; 0: it knows no aliveMessage
}

func (m *batchMessage) Type() wire.Type { return m.Kind }

// Encode writes the fields.
func (m *batchMessage) Encode(e *wire.Encoder) {
	e.Str("id", m.ID)
	e.Uint("n", m.N)
	e.Str("bucket", m.Bucket)
	e.Str("output_format", m.Format)
	e.Bool("nostrm", m.NoStrm)
	e.Bool("onob", m.Onob)
	e.Bool("coer", m.Coer)
	e.Int("max_soft_errors", m.MaxSoft)
	e.Uint("coloc", m.Coloc)
	e.Uint("timeout_ms", uint64(m.Timeout/time.Millisecond))
	e.Bool("here", m.Here)
	e.Str("dt", m.DT)
	e.Uint("map", m.MapVers)
	e.Uint("wait_ms", uint64(m.Wait/time.Millisecond))
}

// Field reads one field.
func (m *batchMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "id":
		m.ID = d.Str(MaxID)
	case "n":
		m.N = d.Uint()
	case "bucket":
		m.Bucket = d.Str(names.MaxBucket)
	case "output_format":
		m.Format = d.Str(32)
	case "nostrm":
		m.NoStrm = d.Bool()
	case "onob":
		m.Onob = d.Bool()
	case "coer":
		m.Coer = d.Bool()
	case "max_soft_errors":
		m.MaxSoft = d.Int()
	case "coloc":
		m.Coloc = d.Uint()
	case "timeout_ms":
		m.Timeout = time.Duration(d.Max(uint64(MaxTimeout/time.Millisecond))) * time.Millisecond
	case "here":
		m.Here = d.Bool()
	case "dt":
		m.DT = d.Str(64)
	case "map":
		m.MapVers = d.Uint()
	case "wait_ms":
		m.Wait = time.Duration(d.Max(uint64(MaxTimeout/time.Millisecond))) * time.Millisecond
	default:
		d.Skip()
	}
}

// entriesMessage carries a part of a request's entries. In a sender's share each has
// its index in the batch; in a batch the order is the index.
type entriesMessage struct {
	Bucket  string // encode: entries of this bucket leave theirs out
	Indexed bool   // encode: write the indexes
	Entries []Entry
	Index   []uint32
}

// entriesPerFrame and entryBytes keep a frame's header well under its limit.
const (
	entriesPerFrame = 512
	entryBytes      = 256 << 10
)

func (*entriesMessage) Type() wire.Type { return wire.TEntries }

// Encode writes the fields.
func (m *entriesMessage) Encode(e *wire.Encoder) {
	e.Maps("in", len(m.Entries), func(i int) {
		t := &m.Entries[i]
		if m.Indexed {
			e.Uint("i", uint64(m.Index[i]))
		}
		if t.Bucket != m.Bucket {
			e.Str("bucket", t.Bucket)
		}
		e.Str("objname", t.ObjName)
		e.Str("archpath", t.ArchPath)
		e.Int("start", t.Start)
		e.Int("length", t.Length)
	})
}

// Field reads one field.
func (m *entriesMessage) Field(key string, d *wire.Decoder) {
	if key != "in" {
		d.Skip()
		return
	}
	d.Array(MaxEntries, func(_, n int) {
		if m.Entries == nil {
			m.Entries = make([]Entry, 0, min(n, entriesPerFrame))
			m.Index = make([]uint32, 0, min(n, entriesPerFrame))
		}
		var t Entry
		var index uint64
		d.Map(func(key string) {
			switch key {
			case "i":
				index = d.Max(MaxEntries)
			case "bucket":
				t.Bucket = d.Str(names.MaxBucket)
			case "provider":
				t.Provider = d.Str(names.MaxBucket)
			case "objname":
				t.ObjName = d.Str(names.MaxObject)
			case "archpath":
				t.ArchPath = d.Str(names.MaxMember)
			case "start":
				t.Start = d.Int()
			case "length":
				t.Length = d.Int()
			default:
				d.Skip()
			}
		})
		m.Entries = append(m.Entries, t)
		m.Index = append(m.Index, uint32(index))
	})
}

// acceptedMessage is the first answer of a DT.
type acceptedMessage struct {
	ID string
	DT string
	N  uint64
}

func (*acceptedMessage) Type() wire.Type { return wire.TAccepted }

// Encode writes the fields.
func (m *acceptedMessage) Encode(e *wire.Encoder) {
	e.Str("id", m.ID)
	e.Str("dt", m.DT)
	e.Uint("n", m.N)
}

// Field reads one field.
func (m *acceptedMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "id":
		m.ID = d.Str(MaxID)
	case "dt":
		m.DT = d.Str(64)
	case "n":
		m.N = d.Uint()
	default:
		d.Skip()
	}
}

// redirectMessage sends the client to the DT; End follows.
type redirectMessage struct {
	Name string
	Addr string
}

func (*redirectMessage) Type() wire.Type { return wire.TRedirect }

// Encode writes the fields.
func (m *redirectMessage) Encode(e *wire.Encoder) {
	e.Str("name", m.Name)
	e.Str("addr", m.Addr)
}

// Field reads one field.
func (m *redirectMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "name":
		m.Name = d.Str(64)
	case "addr":
		m.Addr = d.Str(256)
	default:
		d.Skip()
	}
}

// chunkMessage carries a piece of an entry as its payload. The pieces of an entry
// follow each other; the first has the size and version, the last the checksum.
type chunkMessage struct {
	Index   uint64
	Size    uint64 // bytes of the whole payload; on the first chunk
	Version uint64 // on the first chunk
	Sum     uint64 // xxh3-64 of the whole payload; on the last chunk
	Last    bool
}

func (*chunkMessage) Type() wire.Type { return wire.TChunk }

// Encode writes the fields. The keys have one letter: this is the one message that
// comes thousands of times a second.
func (m *chunkMessage) Encode(e *wire.Encoder) {
	e.Uint("i", m.Index)
	e.Uint("z", m.Size)
	e.Uint("v", m.Version)
	e.Uint("x", m.Sum)
	e.Bool("e", m.Last)
}

// Field reads one field.
func (m *chunkMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "i":
		m.Index = d.Max(MaxEntries)
	case "z":
		m.Size = d.Max(1 << 62)
	case "v":
		m.Version = d.Uint()
	case "x":
		m.Sum = d.Uint()
	case "e":
		m.Last = d.Bool()
	default:
		d.Skip()
	}
}

// errorMessage stands in the place of an entry that failed, or of the rest of one.
type errorMessage struct {
	Index uint64
	wire.End
}

func (*errorMessage) Type() wire.Type { return wire.TEntryError }

// Encode writes the fields.
func (m *errorMessage) Encode(e *wire.Encoder) {
	e.Uint("i", m.Index)
	m.End.Encode(e)
}

// Field reads one field.
func (m *errorMessage) Field(key string, d *wire.Decoder) {
	if key == "i" {
		m.Index = d.Max(MaxEntries)
		return
	}
	m.End.Field(key, d)
}

// aliveMessage is the sign of life of a sender whose next frame is long in coming. It may
// come before any frame, also within an entry, and means nothing else.
type aliveMessage struct{}

func (*aliveMessage) Type() wire.Type { return wire.TAlive }

// Encode writes no fields.
func (*aliveMessage) Encode(*wire.Encoder) {}

// Field knows no fields.
func (*aliveMessage) Field(_ string, d *wire.Decoder) { d.Skip() }

// Meta is what is known of an entry before its payload comes (strm false).
type Meta struct {
	Size    int64 // bytes
	Version uint64
	Err     error // why there will be no payload
}

// metaMessage carries the metadata of consecutive entries, or of a sender's next ones.
type metaMessage struct {
	Index []uint64
	Metas []Meta
}

func (*metaMessage) Type() wire.Type { return wire.TEntryMeta }

// Encode writes the fields.
func (m *metaMessage) Encode(e *wire.Encoder) {
	e.Maps("meta", len(m.Metas), func(i int) {
		t := &m.Metas[i]
		e.Uint("i", m.Index[i])
		e.Uint("z", uint64(t.Size))
		e.Uint("v", t.Version)
		if t.Err != nil {
			f := errs.Flatten(t.Err)
			e.Uint("code", uint64(f.Code))
			e.Str("msg", wire.Clip(f.Msg, wire.MaxText/4))
			e.Str("node", f.Node)
		}
	})
}

// Field reads one field.
func (m *metaMessage) Field(key string, d *wire.Decoder) {
	if key != "meta" {
		d.Skip()
		return
	}
	d.Array(MaxEntries, func(int, int) {
		var t Meta
		var i, code uint64
		var msg, node string
		d.Map(func(key string) {
			switch key {
			case "i":
				i = d.Max(MaxEntries)
			case "z":
				t.Size = int64(d.Max(1 << 62))
			case "v":
				t.Version = d.Uint()
			case "code":
				code = d.Max(1<<16 - 1)
			case "msg":
				msg = d.Str(wire.MaxText)
			case "node":
				node = d.Str(wire.MaxText)
			default:
				d.Skip()
			}
		})
		if code != 0 {
			t.Err = &errs.Error{Code: errs.Code(code), Msg: msg, Node: node}
		}
		m.Index = append(m.Index, i)
		m.Metas = append(m.Metas, t)
	})
}
