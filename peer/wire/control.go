package wire

import "sheaf/internal/errs"

// Hello is exchanged once, on the first stream of a connection: the dialer sends
// its own, the other side answers with its own and End.
type Hello struct {
	Version    uint64   // protocol version spoken
	Caps       []string // capabilities beyond it; unknown ones are passed over
	Node       string   // node name; "" for a client
	Cluster    string   // cluster id; "" when not known yet
	MapVersion uint64   // of the cluster map that the sender has
}

func (*Hello) Type() Type { return THello }

// Encode writes the fields.
func (m *Hello) Encode(e *Encoder) {
	e.Uint("version", m.Version)
	e.Strs("caps", m.Caps)
	e.Str("node", m.Node)
	e.Str("cluster", m.Cluster)
	e.Uint("map", m.MapVersion)
}

// Field reads one field.
func (m *Hello) Field(key string, d *Decoder) {
	switch key {
	case "version":
		m.Version = d.Uint()
	case "caps":
		m.Caps = d.Strs(64, 64)
	case "node":
		m.Node = d.Str(64)
	case "cluster":
		m.Cluster = d.Str(64)
	case "map":
		m.MapVersion = d.Uint()
	default:
		d.Skip()
	}
}

// End is the trailer of every stream: without it the answer isn't whole. Code 0
// means all went well; else the other fields say what failed and where.
type End struct {
	Code    uint64 // errs.Code
	Op      string
	Bucket  string
	Object  string
	Member  string
	Node    string
	Msg     string
	Entries uint64 // entries delivered, placeholders included, where the call has entries
	Failed  uint64 // placeholders among them
	Bytes   uint64 // bytes of payload
	Sum     uint64 // xxh3-64 of all payload, for calls that deliver one byte stream
	Retry   uint64 // milliseconds after which to try again, with TooManyRequests
	Entry   uint64 // 1 + index of the entry that ended a batch; 0 for none
}

func (*End) Type() Type { return TEnd }

// Encode writes the fields.
func (m *End) Encode(e *Encoder) {
	e.Uint("code", m.Code)
	e.Str("op", m.Op)
	e.Str("bucket", m.Bucket)
	e.Str("objname", m.Object)
	e.Str("archpath", m.Member)
	e.Str("node", m.Node)
	e.Str("msg", m.Msg)
	e.Uint("entries", m.Entries)
	e.Uint("failed", m.Failed)
	e.Uint("bytes", m.Bytes)
	e.Uint("sum", m.Sum)
	e.Uint("retry_ms", m.Retry)
	e.Uint("entry", m.Entry)
}

// Field reads one field.
func (m *End) Field(key string, d *Decoder) {
	switch key {
	case "code":
		m.Code = d.Max(1<<16 - 1)
	case "op":
		m.Op = d.Str(MaxText)
	case "bucket":
		m.Bucket = d.Str(MaxText)
	case "objname":
		m.Object = d.Str(MaxText)
	case "archpath":
		m.Member = d.Str(MaxText)
	case "node":
		m.Node = d.Str(MaxText)
	case "msg":
		m.Msg = d.Str(MaxText)
	case "entries":
		m.Entries = d.Uint()
	case "failed":
		m.Failed = d.Uint()
	case "bytes":
		m.Bytes = d.Uint()
	case "sum":
		m.Sum = d.Uint()
	case "retry_ms":
		m.Retry = d.Uint()
	case "entry":
		m.Entry = d.Max(1 << 31)
	default:
		d.Skip()
	}
}

// Err is the failure that the trailer reports, nil for none.
func (m *End) Err() error {
	if m.Code == 0 {
		return nil
	}
	return &errs.Error{Code: errs.Code(m.Code), Op: m.Op, Bucket: m.Bucket, Object: m.Object, Member: m.Member, Node: m.Node, Msg: m.Msg, Entry: int(m.Entry)}
}

// SetErr fills in the trailer from err; the chain of causes becomes text. node
// names this node unless the error names one.
func (m *End) SetErr(err error, node string) {
	if err == nil {
		return
	}
	e := errs.Flatten(err)
	m.Code = uint64(e.Code)
	m.Op, m.Bucket, m.Object, m.Member = Clip(e.Op, MaxText), Clip(e.Bucket, MaxText), Clip(e.Object, MaxText), Clip(e.Member, MaxText)
	m.Node, m.Msg = Clip(e.Node, MaxText), Clip(e.Msg, MaxText)
	m.Entry = uint64(e.Entry)
	if m.Node == "" {
		m.Node = node
	}
}
