package store

import (
	"context"
	"os"
	"slices"
)

// bury removes the files for which another mountpath has a newer tombstone, and the
// tombstones for which another has a newer file.
func (b *bucket) bury(ctx context.Context) error {
	if len(b.branches) == 1 {
		return nil
	}
	for _, br := range b.branches {
		if !br.mount.enabled() {
			continue
		}
		var dead []Record
		err := br.mount.catalog.Load().tombs(b.name, func(r Record) bool {
			dead = append(dead, r)
			return ctx.Err() == nil
		})
		if err = br.mount.watch(err); err != nil && !isDown(err) {
			return err
		}
		for _, t := range dead {
			if err := b.buryOne(br, t); err != nil && !isDown(err) {
				return err
			}
		}
	}
	return ctx.Err()
}

func (b *bucket) buryOne(br *branch, t Record) error {
	for _, other := range b.branches {
		if !other.mount.enabled() {
			continue
		}
		r, ok, err := other.mount.catalog.Load().get(b.name, t.Name)
		switch err = other.mount.watch(err); {
		case isDown(err):
		case err != nil:
			return err
		case other == br || !ok || r.Deleted:
		case r.Version > t.Version:
			if err := br.mount.watch(br.mount.catalog.Load().del(b.name, t.Name)); err != nil {
				return err
			}
		default:
			at := []place{other.long(t.Name)}
			if p, ok := other.plain(t.Name); ok {
				at = []place{p, at[0]}
			}
			at = slices.DeleteFunc(at, func(p place) bool { _, err := os.Lstat(p.path); return err != nil })
			if err := b.removeAll(t.Name, at, other); err != nil {
				return err
			}
			if err := other.mount.watch(other.mount.catalog.Load().del(b.name, t.Name)); err != nil {
				return err
			}
		}
	}
	return nil
}
