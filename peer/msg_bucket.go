package peer

import (
	"slices"
	"time"

	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// BucketMessage is a bucket's record: TBucket in answers and between nodes,
// TBucketCreate with its properties, TBucketDestroy and TBucketShow as requests,
// which need only the name.
type BucketMessage struct {
	Kind     wire.Type
	Name     string
	Provider string
	Created  time.Time
	Epoch    uint64 // grows with each change; the highest wins
	Deleted  bool   // kept so that a node that was away learns of it
	Force    bool   // TBucketDestroy: with all its objects
	Placed   uint64 // the epoch at which the number of copies was last changed; 0: never
	Props    BucketProps
}

func (m *BucketMessage) Type() wire.Type { return m.Kind }

// Info is the record as a client sees it.
func (m *BucketMessage) Info() BucketInfo {
	return BucketInfo{Name: m.Name, Provider: m.Provider, Created: m.Created, Epoch: m.Epoch, BucketProps: m.Props.WithDefaults()}
}

// Encode writes the fields.
func (m *BucketMessage) Encode(e *wire.Encoder) {
	e.Str("name", m.Name)
	e.Str("provider", m.Provider)
	e.Int("created", nanos(m.Created))
	e.Uint("epoch", m.Epoch)
	e.Bool("deleted", m.Deleted)
	e.Bool("force", m.Force)
	e.Uint("placed", m.Placed)
	encodeProps(e, &m.Props)
}

// Field reads one field.
func (m *BucketMessage) Field(key string, d *wire.Decoder) {
	switch key {
	case "name":
		m.Name = d.Str(names.MaxBucket)
	case "provider":
		m.Provider = d.Str(names.MaxBucket)
	case "created":
		m.Created = time.Unix(0, d.Int())
	case "epoch":
		m.Epoch = d.Uint()
	case "deleted":
		m.Deleted = d.Bool()
	case "force":
		m.Force = d.Bool()
	case "placed":
		m.Placed = d.Uint()
	default:
		propsField(&m.Props, key, d)
	}
}

func encodeProps(e *wire.Encoder, p *BucketProps) {
	e.Uint("copies", uint64(max(p.Copies, 0)))
	e.Str("durability", p.Durability)
	e.Str("backend", p.Backend)
	e.Bool("validate", p.Validate)
}

func propsField(p *BucketProps, key string, d *wire.Decoder) {
	switch key {
	case "copies":
		p.Copies = int(d.Max(1 << 16))
	case "durability":
		p.Durability = d.Str(names.MaxBucket)
	case "backend":
		p.Backend = d.Str(maxBackend)
	case "validate":
		p.Validate = d.Bool()
	default:
		d.Skip()
	}
}

// BucketSet changes a bucket's properties: those that Set names.
type BucketSet struct {
	Name  string
	Set   []string // of copies, durability, backend, validate
	Props BucketProps
}

func (*BucketSet) Type() wire.Type { return wire.TBucketSet }

// NewBucketSet makes the message of a change.
func NewBucketSet(name string, ch BucketChange) *BucketSet {
	m := &BucketSet{Name: name, Props: ch.Apply(BucketProps{})}
	for key, is := range map[string]bool{"copies": ch.Copies != nil, "durability": ch.Durability != nil, "backend": ch.Backend != nil, "validate": ch.Validate != nil} {
		if is {
			m.Set = append(m.Set, key)
		}
	}
	slices.Sort(m.Set)
	return m
}

// Change is what the message asks for.
func (m *BucketSet) Change() BucketChange {
	var ch BucketChange
	for _, key := range m.Set {
		switch key {
		case "copies":
			ch.Copies = &m.Props.Copies
		case "durability":
			ch.Durability = &m.Props.Durability
		case "backend":
			ch.Backend = &m.Props.Backend
		case "validate":
			ch.Validate = &m.Props.Validate
		}
	}
	return ch
}

// Encode writes the fields.
func (m *BucketSet) Encode(e *wire.Encoder) {
	e.Str("name", m.Name)
	e.Strs("set", m.Set)
	encodeProps(e, &m.Props)
}

// Field reads one field.
func (m *BucketSet) Field(key string, d *wire.Decoder) {
	switch key {
	case "name":
		m.Name = d.Str(names.MaxBucket)
	case "set":
		m.Set = d.Strs(16, 32)
	default:
		propsField(&m.Props, key, d)
	}
}
