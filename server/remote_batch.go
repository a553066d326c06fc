package server

import (
	"context"
	"sync"

	"sheaf/batching"
	"sheaf/peer"
)

// fetchAhead fetches the objects of a share that aren't kept here, several at a time and in
// the order in which they will be asked for, so that the batch waits for the slowest of them
// and not for their sum. What it has begun ends with ctx, unless somebody else reads it too.
func (n *Node) fetchAhead(ctx context.Context, share []batching.Entry) {
	var todo []*route
	seen := map[peer.ObjectName]bool{}
	for i := range share {
		e := &share[i]
		name := peer.ObjectName{Bucket: e.Bucket, Object: e.ObjName}
		if seen[name] {
			continue
		}
		rt, err := n.route(e.Bucket, e.ObjName)
		if err != nil || rt.rec.Backend == "" || !rt.mine() || e.ArchPath == "" && !wholeEntry(e) {
			continue // a part is read when it is asked for
		}
		seen[name] = true
		todo = append(todo, rt)
	}
	if len(todo) == 0 {
		return
	}
	n.wg.Go(func() { // ends with ctx, or when all have come
		slots := make(chan struct{}, n.o.FetchAtOnce)
		var all sync.WaitGroup
		defer all.Wait()
		for _, rt := range todo {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			case <-n.ctx.Done():
				return
			}
			all.Go(func() {
				defer func() { <-slots }()
				_ = n.needKept(ctx, rt) // whoever reads it meets the same error
			})
		}
	})
}
