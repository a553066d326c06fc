package server

import (
	"context"
	"sync"

	"sheaf/batching"
	"sheaf/internal/store"
	"sheaf/peer"
)

// askedAtOnce is how many names of a share are asked about in one go.
const askedAtOnce = 1000

// Prepare implements batching.Preparer. While the cluster isn't settled, all nodes are asked
// what they have of the share's objects, many in one call, ahead of the reading: one by one
// that would cost a round trip an entry.
func (s *source) Prepare(ctx context.Context, share []batching.Entry) batching.Source {
	s.n.fetchAhead(ctx, share)
	if s.n.trusts() || len(share) < 2 {
		return s
	}
	p := &prepared{source: s, hints: map[peer.ObjectName]*hint{}}
	s.n.wg.Go(func() { // ends with ctx, or when all was asked
		byBucket := map[string][]string{}
		seen := map[peer.ObjectName]bool{}
		for i := range share {
			name := peer.ObjectName{Bucket: share[i].Bucket, Object: share[i].ObjName}
			if seen[name] {
				continue
			}
			seen[name] = true
			list := append(byBucket[name.Bucket], name.Object)
			if len(list) == askedAtOnce {
				p.ask(ctx, name.Bucket, list)
				list = nil
			}
			byBucket[name.Bucket] = list
		}
		for bucket, list := range byBucket {
			if len(list) > 0 {
				p.ask(ctx, bucket, list)
			}
		}
	})
	return p
}

// prepared is a source that has asked all nodes beforehand.
type prepared struct {
	*source

	mu    sync.Mutex
	hints map[peer.ObjectName]*hint // guarded by mu
}

// hint is what all nodes of a map said of a name shortly before.
type hint struct {
	m *peer.Map
	answers
}

// Open implements batching.Source. An object that wasn't asked about yet is looked for by
// itself: the first entries don't wait for the answers about all.
func (p *prepared) Open(ctx context.Context, e *batching.Entry) (batching.Payload, error) {
	p.mu.Lock()
	hint := p.hints[peer.ObjectName{Bucket: e.Bucket, Object: e.ObjName}]
	p.mu.Unlock()
	return p.open(ctx, e, hint)
}

// ask asks all nodes about many names of a bucket. Where one doesn't answer there is no hint:
// it may have the newest.
func (p *prepared) ask(ctx context.Context, bucket string, list []string) {
	n := p.n
	st := n.state.Load()
	nodes := st.Map.Readable()
	all := make([][]peer.VersionInfo, len(nodes))
	var wg sync.WaitGroup
	for k, i := range nodes {
		wg.Go(func() { // ends with askTimeout
			if st.Map.Nodes[i].Name == st.Name {
				recs, err := n.store.LookupMany(bucket, list)
				if err == nil {
					all[k] = versionInfos(recs)
				}
				return
			}
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			if got, err := n.calls.VersionsAt(ctx, st.Map.Nodes[i].Addr, bucket, list); err == nil {
				all[k] = got
			}
		})
	}
	wg.Wait()
	for k := range nodes {
		if all[k] == nil {
			return
		}
	}
	n.metrics.surveys.Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	for j, name := range list {
		a := make(answers, len(nodes))
		for k, i := range nodes {
			a[k] = answer{node: i, VersionInfo: all[k][j]}
		}
		p.hints[peer.ObjectName{Bucket: bucket, Object: name}] = &hint{st.Map, a}
	}
}

func versionInfos(recs []store.Record) []peer.VersionInfo {
	out := make([]peer.VersionInfo, len(recs))
	for i, r := range recs {
		out[i] = versionInfo(r)
	}
	return out
}
