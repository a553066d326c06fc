package peer

import (
	"sheaf/peer/wire"
)

// Ask is a request without fields: TMapGet, TBucketList, TStatus, TLeave, TRebalance
// or TMountpathList.
type Ask struct{ Kind wire.Type }

func (m *Ask) Type() wire.Type { return m.Kind }

// Encode writes no fields.
func (*Ask) Encode(*wire.Encoder) {}

// Field knows no fields.
func (*Ask) Field(_ string, d *wire.Decoder) { d.Skip() }
