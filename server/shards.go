package server

import (
	"container/list"
	"context"
	"log/slog"
	"strings"
	"sync"

	"golang.org/x/sync/singleflight"

	"sheaf/index"
	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/internal/store"
)

// shards keeps the indexes of shards: in memory up to a number of bytes, beside the
// shard on disk, and built from the shard where neither is there or both are of
// another version. However many ask at once, a shard is read once.
type shards struct {
	ctx     context.Context // of the node; a build outlives the call that began it
	store   *store.Store
	limit   int64
	metrics *metrics
	log     *slog.Logger
	flight  singleflight.Group

	mu    sync.Mutex
	byKey map[string]*list.Element
	lru   *list.List // of *cachedIndex, most recently used first
	bytes int64
}

type cachedIndex struct {
	key     string // bucket/object
	version uint64
	x       *index.Index
	err     error // the shard has no index: it isn't read again for every member
}

func (c *cachedIndex) size() int64 {
	const overhead = 256
	if c.x == nil {
		return overhead
	}
	return overhead + int64(c.x.Bytes())
}

func newShards(ctx context.Context, s *store.Store, limit int64, m *metrics, log *slog.Logger) *shards {
	return &shards{ctx: ctx, store: s, limit: limit, metrics: m, log: log, byKey: map[string]*list.Element{}, lru: list.New()}
}

// open gives a shard with its index. The object must be closed.
func (s *shards) open(ctx context.Context, bucket, shard string) (*store.Object, *index.Index, error) {
	if !names.IsShard(shard) {
		return nil, nil, &errs.Error{Code: errs.BadShard, Op: "open shard", Bucket: bucket, Object: shard, Msg: "not an archive by its name: shards end in .tar"}
	}
	// Between opening the shard and finding its index it may be replaced: what doesn't
	// belong together is opened again.
	for range 10 {
		obj, err := s.store.Open(bucket, shard)
		if err != nil {
			return nil, nil, err
		}
		c, err := s.index(ctx, bucket+"/"+shard, obj.Info().Version, func() *cachedIndex { return s.load(bucket, shard) })
		if err == nil && c.version == obj.Info().Version && c.err == nil {
			return obj, c.x, nil
		}
		_ = obj.Close()
		if err != nil {
			return nil, nil, err
		}
		if c.err != nil {
			return nil, nil, c.err
		}
	}
	return nil, nil, &errs.Error{Code: errs.VersionMismatch, Op: "open shard", Bucket: bucket, Object: shard, Msg: "it is replaced faster than its index can be made"}
}

// index gives the cached index of that version, or what load finds now.
func (s *shards) index(ctx context.Context, key string, version uint64, load func() *cachedIndex) (*cachedIndex, error) {
	if c := s.get(key, version); c != nil {
		return c, nil
	}
	done := s.flight.DoChan(key, func() (any, error) {
		// Another flight may have landed since the look above.
		if c := s.get(key, version); c != nil {
			return c, nil
		}
		c := load()
		c.key = key
		if c.err == nil || errs.IsCode(c.err, errs.BadShard) {
			s.put(c)
		}
		return c, nil
	})
	select {
	case r := <-done:
		return r.Val.(*cachedIndex), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// load reads the kept index, or builds one and keeps it. It opens the shard for
// itself: it may outlive the caller.
func (s *shards) load(bucket, shard string) *cachedIndex {
	obj, err := s.store.Open(bucket, shard)
	if err != nil {
		return &cachedIndex{err: err}
	}
	defer obj.Close()
	c := &cachedIndex{version: obj.Info().Version}
	if blob, err := s.store.ReadIndex(bucket, shard); err == nil {
		if x, err := index.Parse(blob); err == nil && x.Matches(c.version, obj.Size()) {
			s.metrics.indexLoads.Inc()
			c.x = x
			return c
		}
	}
	if c.x, err = index.Build(s.ctx, obj, obj.Size(), c.version); err != nil {
		e := errs.Flatten(err)
		e.Bucket, e.Object = bucket, shard
		c.err = e
		return c
	}
	s.metrics.indexBuilds.Inc()
	blob, err := c.x.MarshalBinary()
	if err == nil {
		err = s.store.WriteIndex(bucket, shard, blob)
	}
	if err != nil {
		s.log.Warn("the index of a shard can't be kept and will be built again", "bucket", bucket, "shard", shard, "err", err)
	}
	return c
}

func (s *shards) get(key string, version uint64) *cachedIndex {
	s.mu.Lock()
	defer s.mu.Unlock()
	el := s.byKey[key]
	if el == nil {
		return nil
	}
	c := el.Value.(*cachedIndex)
	if c.version != version {
		return nil
	}
	s.lru.MoveToFront(el)
	return c
}

func (s *shards) put(c *cachedIndex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[c.key]; el != nil {
		s.remove(el)
	}
	s.byKey[c.key] = s.lru.PushFront(c)
	s.bytes += c.size()
	for s.bytes > s.limit && s.lru.Len() > 1 {
		s.remove(s.lru.Back())
	}
}

// remove takes an element out; mu is held.
func (s *shards) remove(el *list.Element) {
	c := el.Value.(*cachedIndex)
	s.lru.Remove(el)
	delete(s.byKey, c.key)
	s.bytes -= c.size()
}

// drop forgets one shard's index.
func (s *shards) drop(bucket, shard string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if el := s.byKey[bucket+"/"+shard]; el != nil {
		s.remove(el)
	}
}

// forget drops the indexes of a whole bucket.
func (s *shards) forget(bucket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, el := range s.byKey {
		if strings.HasPrefix(key, bucket+"/") {
			s.remove(el)
		}
	}
}
