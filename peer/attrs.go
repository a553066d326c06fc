package peer

import (
	"maps"
	"slices"

	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// encodeAttrs writes an object's own attributes in the order of their keys: one set
// of attributes has one encoding.
func encodeAttrs(e *wire.Encoder, attrs map[string]string) {
	if len(attrs) == 0 {
		return
	}
	keys := slices.Sorted(maps.Keys(attrs))
	e.Maps("attrs", len(keys), func(i int) {
		e.Str("k", keys[i])
		e.Str("v", attrs[keys[i]])
	})
}

// decodeAttrs reads what encodeAttrs wrote.
func decodeAttrs(d *wire.Decoder) map[string]string {
	var out map[string]string
	d.Array(names.MaxAttrs/2, func(int, int) {
		var k, v string
		d.Map(func(key string) {
			switch key {
			case "k":
				k = d.Str(names.MaxAttrs)
			case "v":
				v = d.Str(names.MaxAttrs)
			default:
				d.Skip()
			}
		})
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v
	})
	if d.Err() != nil {
		return nil
	}
	if err := names.CheckAttrs(out); err != nil {
		d.Fail("%v", err)
		return nil
	}
	return out
}
