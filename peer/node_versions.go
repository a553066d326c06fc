package peer

import (
	"context"
	"fmt"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// VersionsAt asks the node at addr what it has of each of the names of a bucket, on
// its own disks. The answer is as long as list and in its order.
func (c *Client) VersionsAt(ctx context.Context, addr, bucket string, list []string) ([]VersionInfo, error) {
	out, _, err := c.PlacedVersionsAt(ctx, addr, bucket, list)
	return out, err
}

// PlacedVersionsAt is VersionsAt that also tells which placement the node went by when it
// answered; 0 when that changed meanwhile.
func (c *Client) PlacedVersionsAt(ctx context.Context, addr, bucket string, list []string) (out []VersionInfo, placement uint64, err error) {
	out = make([]VersionInfo, 0, len(list))
	for later := list; len(later) > 0; {
		req := &NamesRequest{Kind: wire.TVersions, Bucket: bucket}
		req.Names, later = cutNames(later)
		var m VersionListMessage
		if err := c.At(ctx, addr, req, func(call *Call, _ wire.Head) error { return call.R.Decode(&m) }); err != nil {
			return nil, 0, err
		}
		if len(m.Versions) != len(req.Names) {
			return nil, 0, errs.New(errs.Protocol, "versions", fmt.Sprintf("%d answers for %d names", len(m.Versions), len(req.Names)))
		}
		if len(out) == 0 {
			placement = m.Placement
		} else if placement != m.Placement {
			placement = 0
		}
		out = append(out, m.Versions...)
	}
	return out, placement, nil
}

// TombstoneAt deletes the copy that the node at addr has, at a version that the owner
// picked.
func (c *Client) TombstoneAt(ctx context.Context, addr, bucket, object string, version uint64) error {
	return c.At(ctx, addr, &TombstoneRequest{Bucket: bucket, Object: object, Version: version}, discardAt)
}
