package server

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer"
)

// stateFile lies in every mountpath, so that losing one disk doesn't lose it.
const stateFile = ".sheaf-node.json"

// bucketRecord is a bucket as the cluster knows it. The record with the highest Epoch
// wins; a deleted bucket's is kept, so that a node that was away learns of it.
type bucketRecord struct {
	Name     string    `json:"name"`
	Provider string    `json:"provider"`
	Created  time.Time `json:"created"`
	Epoch    uint64    `json:"epoch"`
	Deleted  bool      `json:"deleted,omitempty"`
	Placed   uint64    `json:"placed,omitempty"` // the epoch at which Copies last changed; 0: never
	peer.BucketProps
}

// state is what all nodes of a cluster agree on: who they are and which buckets
// there are. It is immutable; merging makes a new one.
type state struct {
	Name    string         // of this node
	Want    peer.NodeState // what this node is when it is alive: Up, Leaving or Left
	Map     *peer.Map
	Buckets map[string]bucketRecord
}

// newer orders two records of a bucket. Equal epochs can only come of a clock set back;
// any order will do that all nodes share.
func (b bucketRecord) newer(o bucketRecord) bool {
	switch {
	case b.Epoch != o.Epoch:
		return b.Epoch > o.Epoch
	case b.Deleted != o.Deleted:
		return b.Deleted
	case !b.Created.Equal(o.Created):
		return b.Created.After(o.Created)
	}
	return fmt.Sprint(b.BucketProps) > fmt.Sprint(o.BucketProps)
}

// merge joins two views. changed tells whether the result differs from s.
func (s *state) merge(m *peer.Map, buckets []bucketRecord) (_ *state, changed bool) {
	out := &state{Name: s.Name, Want: s.Want, Map: s.Map.Merge(m), Buckets: s.Buckets}
	changed = out.Map != s.Map
	for _, b := range buckets {
		if have, ok := out.Buckets[b.Name]; ok && !b.newer(have) {
			continue
		}
		if !changed || len(out.Buckets) == len(s.Buckets) {
			out.Buckets = cloneBuckets(out.Buckets)
		}
		out.Buckets[b.Name] = b
		changed = true
	}
	return out, changed
}

func cloneBuckets(m map[string]bucketRecord) map[string]bucketRecord {
	out := make(map[string]bucketRecord, len(m)+1)
	for k, v := range m {
		out[k] = v
	}
	return out
}

// bucket gives a bucket that exists.
func (s *state) bucket(name string) (bucketRecord, bool) {
	b, ok := s.Buckets[name]
	return b, ok && !b.Deleted
}

// with gives the state with one node's record replaced by a newer one.
func (s *state) with(node peer.Node) *state {
	out, _ := s.merge(peer.NewMap(s.Map.Cluster, s.Map.Version, []peer.Node{node}), nil)
	return out
}

// asserted gives the state with this node's own record as it is in truth: me. Who hears
// that it is down, or at an old address, answers with a newer record (SWIM's refutation).
// A node that was told that it has left doesn't: what it holds may be long out of date.
func (s *state) asserted(me peer.Node) *state {
	i := s.Map.Find(me.Name)
	if i < 0 {
		return s.with(me)
	}
	have := s.Map.Nodes[i]
	me.State, me.Weight, me.Epoch = s.Want, have.Weight, have.Epoch
	if have == me || have.State == peer.Left {
		return s
	}
	me.Epoch++
	return s.with(me)
}

// digest stands for all that the state says of nodes and buckets: two nodes with one
// digest have nothing to tell each other.
func (s *state) digest() uint64 {
	h := xxh3.New()
	var b [17]byte
	binary.BigEndian.PutUint64(b[:], s.Map.Hash())
	_, _ = h.Write(b[:8]) // never fails
	for _, r := range s.sortedBuckets(true) {
		_, _ = h.WriteString(r.Name)
		binary.BigEndian.PutUint64(b[:], r.Epoch)
		binary.BigEndian.PutUint64(b[8:], uint64(r.Created.UnixNano()))
		b[16] = 0
		if r.Deleted {
			b[16] = 1
		}
		_, _ = h.Write(b[:])
	}
	return h.Sum64()
}

// sortedBuckets lists the records by name.
func (s *state) sortedBuckets(deleted bool) []bucketRecord {
	var out []bucketRecord
	for _, b := range s.Buckets {
		if deleted || !b.Deleted {
			out = append(out, b)
		}
	}
	slices.SortFunc(out, func(a, b bucketRecord) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// savedState is the state on disk.
type savedState struct {
	Name    string         `json:"name"`
	Want    peer.NodeState `json:"want"`
	Cluster string         `json:"cluster"`
	Version uint64         `json:"version"`
	Nodes   []peer.Node    `json:"nodes"`
	Buckets []bucketRecord `json:"buckets"`
}

// loadState reads the newest state among the folders; an empty one when there is none.
func loadState(dirs []string) (*state, error) {
	s := &state{Map: peer.NewMap("", 0, nil), Buckets: map[string]bucketRecord{}}
	for _, d := range dirs {
		path := filepath.Join(d, stateFile)
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, errs.Wrap(errs.CodeOf(err), "read node state", err)
		}
		var v savedState
		if err := json.Unmarshal(b, &v); err != nil {
			return nil, errs.Wrap(errs.Internal, "read node state "+path, err)
		}
		if s.Name != "" && v.Name != s.Name {
			return nil, errs.New(errs.InvalidArgument, "read node state", fmt.Sprintf("%s belongs to node %q, another folder to %q", d, v.Name, s.Name))
		}
		s.Name = v.Name
		s.Want = max(s.Want, v.Want)
		for i, b := range v.Buckets {
			v.Buckets[i].BucketProps = b.WithDefaults() // of a version before there were any
		}
		s, _ = s.merge(peer.NewMap(v.Cluster, v.Version, v.Nodes), v.Buckets)
	}
	return s, nil
}

// save writes the state to every folder: a new file, synced, then renamed over the old.
func (s *state) save(dirs []string) error {
	b, err := json.MarshalIndent(savedState{Name: s.Name, Want: s.Want, Cluster: s.Map.Cluster, Version: s.Map.Version, Nodes: s.Map.Nodes, Buckets: s.sortedBuckets(true)}, "", " ")
	if err != nil {
		return errs.Wrap(errs.Internal, "save node state", err)
	}
	for _, d := range dirs {
		if err := writeSynced(filepath.Join(d, stateFile), b); err != nil {
			return errs.Wrap(errs.CodeOf(err), "save node state", err)
		}
	}
	return nil
}

func writeSynced(path string, b []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp)
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
