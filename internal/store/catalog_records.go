package store

import (
	"errors"
	"io"

	"github.com/cockroachdb/pebble/v2"
)

// put notes an object whose file is in place. It isn't synced: the file says it too. If it
// can't be noted, the catalog no longer mirrors the files and fails.
func (c *catalog) put(bucket string, r Record, place uint8) error {
	key := liveKey(bucket, r.Name)
	had, err := c.has(key)
	if err != nil {
		return c.fail(err)
	}
	dead, err := c.has(tombKey(bucket, r.Name))
	if err != nil {
		return c.fail(err)
	}
	b := c.db.NewBatch()
	defer b.Close()
	if err = b.Set(key, encodeLive(r, place), nil); dead && err == nil {
		err = b.Delete(tombKey(bucket, r.Name), nil)
	}
	if err != nil {
		return c.fail(err)
	}
	if err := c.apply(b, false); err != nil {
		return err
	}
	if !had {
		c.objects.Add(1)
	}
	return nil
}

// tomb notes a deletion, and returns when that is on disk.
func (c *catalog) tomb(bucket string, r Record) error {
	return c.replace(bucket, r.Name, func(b *pebble.Batch) error {
		return b.Set(tombKey(bucket, r.Name), encodeTomb(r), nil)
	}, true)
}

// del forgets a name, live or deleted. If it can't, the catalog fails.
func (c *catalog) del(bucket, name string) error {
	dead, err := c.has(tombKey(bucket, name))
	if err != nil {
		return c.fail(err)
	}
	live, err := c.has(liveKey(bucket, name))
	if err != nil {
		return c.fail(err)
	}
	if !dead && !live {
		return nil
	}
	err = c.replace(bucket, name, func(b *pebble.Batch) error {
		return b.Delete(tombKey(bucket, name), nil)
	}, false)
	if err != nil {
		return c.fail(err)
	}
	return nil
}

// replace takes a name's live record away and does what is to be done of its tombstone.
func (c *catalog) replace(bucket, name string, tomb func(*pebble.Batch) error, sync bool) error {
	key := liveKey(bucket, name)
	had, err := c.has(key)
	if err != nil {
		return err
	}
	b := c.db.NewBatch()
	defer b.Close()
	if err := tomb(b); err != nil {
		return err
	}
	if had {
		if err := b.Delete(key, nil); err != nil {
			return err
		}
	}
	if err := c.apply(b, sync); err != nil {
		return err
	}
	if had {
		c.objects.Add(-1)
	}
	return nil
}

// get gives what is known of a name.
func (c *catalog) get(bucket, name string) (r Record, ok bool, err error) {
	r, ok, err = c.live(bucket, name)
	if ok || err != nil {
		return r, ok, err
	}
	v, ok, err := c.read(tombKey(bucket, name))
	if err != nil {
		return Record{}, false, err
	}
	if ok {
		r, err := decodeTomb(name, v)
		return r, err == nil, c.valueFault(err)
	}
	// A tombstone may have become an object meanwhile.
	return c.live(bucket, name)
}

func (c *catalog) live(bucket, name string) (Record, bool, error) {
	v, ok, err := c.read(liveKey(bucket, name))
	if err != nil || !ok {
		return Record{}, false, err
	}
	r, _, err := decodeLive(name, v)
	return r, err == nil, c.valueFault(err)
}

func (c *catalog) valueFault(err error) error {
	if err == nil {
		return nil
	}
	return c.fail(err)
}

// drop forgets a bucket.
func (c *catalog) drop(bucket string) error {
	n, err := c.count(bucket)
	if err != nil {
		return err
	}
	b := c.db.NewBatch()
	defer b.Close()
	for _, space := range []byte{spaceLive, spaceTomb} {
		low, high := bucketBounds(space, bucket)
		if err := b.DeleteRange(low, high, nil); err != nil {
			return err
		}
	}
	if err := c.apply(b, true); err != nil {
		return err
	}
	c.objects.Add(-n)
	return nil
}

// count counts a bucket's live records.
func (c *catalog) count(bucket string) (n int64, err error) {
	low, high := bucketBounds(spaceLive, bucket)
	return n, c.each(low, high, func([]byte, []byte) (bool, error) {
		n++
		return true, nil
	})
}

// each gives the keys from low to below high and their values, which f may not keep.
func (c *catalog) each(low, high []byte, f func(key, value []byte) (bool, error)) (err error) {
	if err := c.enter(); err != nil {
		return err
	}
	defer c.use.RUnlock()
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return c.readFault(err)
	}
	defer func() {
		if e := it.Close(); e != nil && err == nil {
			err = c.readFault(e)
		}
	}()
	for ok := it.First(); ok; ok = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return c.readFault(err)
		}
		if more, err := f(it.Key(), v); err != nil || !more {
			return err
		}
	}
	return nil
}

// walk gives a bucket's rows until f, which may not call the catalog, is false.
func (c *catalog) walk(bucket string, q query, f func(row) bool) (err error) {
	w, err := newCatalogWalk(c, bucket, q)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for {
		r, err := w.next()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		if !f(r) {
			return nil
		}
	}
}

// tombs gives a bucket's tombstones in the order of names, until f, which may
// not call the catalog, is false.
func (c *catalog) tombs(bucket string, f func(Record) bool) error {
	low, high := bucketBounds(spaceTomb, bucket)
	return c.each(low, high, func(key, value []byte) (bool, error) {
		r, err := decodeTomb(string(key[len(low):]), value)
		if err != nil {
			return false, c.fail(err)
		}
		return f(r), nil
	})
}

// buckets lists the buckets that the catalog has anything of.
func (c *catalog) buckets() (all []string, err error) {
	if err := c.enter(); err != nil {
		return nil, err
	}
	defer c.use.RUnlock()
	seen := map[string]bool{}
	for _, space := range []byte{spaceLive, spaceTomb} {
		it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: []byte{space + 1}})
		if err != nil {
			return nil, c.readFault(err)
		}
		for ok := it.First(); ok; {
			name, err := keyBucket(it.Key())
			if err != nil {
				return nil, errors.Join(c.fail(err), it.Close())
			}
			if !seen[name] {
				seen[name], all = true, append(all, name)
			}
			_, high := bucketBounds(space, name)
			ok = it.SeekGE(high)
		}
		if err := it.Close(); err != nil {
			return nil, c.readFault(err)
		}
	}
	return all, nil
}
