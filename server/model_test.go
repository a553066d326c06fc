package server_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// event is one operation on one name as its caller saw it: when it began and ended, what it
// asked and what came of it.
type event struct {
	from, to  int64 // of one clock for all callers
	kind      string
	value     string // of a put; what a get or a rename found, "" for nothing
	ifAbsent  bool
	ifVersion uint64
	version   uint64 // that a put was given, or that a get found
	code      errs.Code
}

func (e event) String() string {
	return fmt.Sprintf("[%d,%d] %s %q absent %v if %d: version %d, %v", e.from, e.to, e.kind, e.value, e.ifAbsent, e.ifVersion, e.version, e.code)
}

// cell is what the model knows of a name: one object, or none.
type cell struct {
	value   string // "" for nothing
	version uint64
}

// step applies an operation at one moment. ok tells whether its outcome is one that the
// model allows there.
func (c cell) step(e event) (_ cell, ok bool) {
	there := c.value != ""
	want := errs.OK
	switch {
	case e.ifAbsent && there:
		want = errs.AlreadyExists
	case e.ifVersion != 0 && !there:
		want = errs.NotFound
	case e.ifVersion != 0 && e.ifVersion != c.version:
		want = errs.VersionMismatch
	case e.kind != "put" && !there:
		want = errs.NotFound
	}
	if e.code != want {
		return c, false
	}
	switch {
	case want != errs.OK:
		return c, true
	case e.kind == "put":
		return cell{e.value, e.version}, e.version > c.version // versions grow
	case e.kind == "get":
		return c, c.value == e.value && c.version == e.version
	case e.kind == "rename":
		return cell{version: c.version}, c.value == e.value
	}
	return cell{version: c.version}, true // a deletion
}

// linear tells whether there is an order of a name's operations in which each happens at one
// moment between its begin and end, and all outcomes are those of the model (Herlihy and
// Wing, 1990; the search is Wing and Gong's, with the states seen remembered).
func linear(events []event) bool {
	slices.SortFunc(events, func(a, b event) int { return int(a.from - b.from) })
	done := make([]bool, len(events))
	seen := map[string]bool{}
	var search func(c cell, left int) bool
	search = func(c cell, left int) bool {
		if left == 0 {
			return true
		}
		var key strings.Builder
		for _, d := range done {
			key.WriteByte(map[bool]byte{false: '0', true: '1'}[d])
		}
		fmt.Fprintf(&key, "%s %d", c.value, c.version)
		if seen[key.String()] {
			return false
		}
		seen[key.String()] = true
		first := int64(1 << 62) // whatever began after it can't have come before
		for i, e := range events {
			if !done[i] {
				first = min(first, e.to)
			}
		}
		for i, e := range events {
			if done[i] || e.from > first {
				continue
			}
			next, ok := c.step(e)
			if !ok {
				continue
			}
			done[i] = true
			if search(next, left-1) {
				return true
			}
			done[i] = false
		}
		return false
	}
	return search(cell{}, len(events))
}

func TestLinearCheckerTellsRightFromWrong(t *testing.T) {
	put := func(from, to int64, v string, version uint64) event {
		return event{from: from, to: to, kind: "put", value: v, version: version}
	}
	got := func(from, to int64, v string, version uint64) event {
		return event{from: from, to: to, kind: "get", value: v, version: version}
	}
	for what, f := range map[string]struct {
		events []event
		ok     bool
	}{
		"in order":                 {[]event{put(1, 2, "a", 1), got(3, 4, "a", 1)}, true},
		"an older value":           {[]event{put(1, 2, "a", 1), put(3, 4, "b", 2), got(5, 6, "a", 1)}, false},
		"either while it goes on":  {[]event{put(1, 2, "a", 1), put(3, 9, "b", 2), got(4, 5, "a", 1), got(6, 7, "b", 2)}, true},
		"back while it goes on":    {[]event{put(1, 2, "a", 1), put(3, 9, "b", 2), got(4, 5, "b", 2), got(6, 7, "a", 1)}, false},
		"two that win":             {[]event{{from: 1, to: 9, kind: "put", value: "a", version: 1, ifAbsent: true}, {from: 1, to: 9, kind: "put", value: "b", version: 2, ifAbsent: true}}, false},
		"a value that is lost":     {[]event{put(1, 2, "a", 1), {from: 3, to: 4, kind: "get", code: errs.NotFound}}, false},
		"one that is taken twice":  {[]event{put(1, 2, "a", 1), {from: 3, to: 9, kind: "rename", value: "a"}, {from: 3, to: 9, kind: "rename", value: "a"}}, false},
		"a version that goes back": {[]event{put(1, 2, "a", 5), put(3, 4, "b", 4)}, false},
	} {
		if linear(f.events) != f.ok {
			t.Errorf("%s: not %v", what, f.ok)
		}
	}
}

// Clients put, delete, rename and read a few names at once, with and without conditions,
// through all nodes: what they see must be what one that does one thing after the other
// could have seen.
func TestConcurrentOperations(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SHEAF_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("SHEAF_SEED=%d", seed)
	for copies := 1; copies <= 3; copies++ {
		t.Run(fmt.Sprintf("copies-%d", copies), func(t *testing.T) {
			t.Parallel()
			c := testcluster.Start(t, testcluster.Options{})
			copied(t, c, "b", copies)
			if copies == 2 {
				for _, n := range c.Nodes {
					n.Unsettle(true)
				}
			}
			concurrent(t, c, rand.New(rand.NewPCG(seed, uint64(copies))))
		})
	}
}

func concurrent(t *testing.T, c *testcluster.Cluster, r *rand.Rand) {
	const clients, each, names = 4, 45, 3
	var clock atomic.Int64
	var mu sync.Mutex
	histories := map[string][]event{}
	latest := map[string]uint64{} // a version that the name had lately, for conditions
	var taken []string            // new names of renames
	moved := map[string]string{}  // of those that succeeded, what they found
	var wg sync.WaitGroup
	for i := range clients {
		r := rand.New(rand.NewPCG(r.Uint64(), uint64(i)))
		wg.Go(func() {
			for k := range each {
				name := fmt.Sprintf("o%d", r.IntN(names))
				addr := c.Nodes[r.IntN(len(c.Nodes))].Addr()
				mu.Lock()
				have := latest[name]
				mu.Unlock()
				e := event{value: fmt.Sprintf("%d.%d", i, k)}
				switch r.IntN(4) {
				case 0:
					e.ifVersion = have
				case 1:
					e.ifAbsent = true
				}
				var err error
				e.from = clock.Add(1)
				switch dice := r.IntN(10); {
				case dice < 4:
					e.kind = "put"
					var info peer.ObjectInfo
					info, err = c.Peer.PutAt(bounded(t), addr, &peer.PutRequest{Bucket: "b", Object: name, IfAbsent: e.ifAbsent, IfVersion: e.ifVersion}, strings.NewReader(e.value))
					e.version = info.Version
				case dice < 7:
					e.kind, e.value, e.ifAbsent, e.ifVersion = "get", "", false, 0
					var info peer.ObjectInfo
					var body io.ReadCloser
					if info, body, err = c.Peer.GetAt(bounded(t), addr, &peer.ObjectRequest{Kind: wire.TGet, Bucket: "b", Object: name}); err == nil {
						var data []byte
						data, err = io.ReadAll(body)
						_ = body.Close()
						e.value, e.version = string(data), info.Version
					}
				case dice < 9:
					e.kind, e.value, e.ifAbsent = "delete", "", false
					err = c.Peer.At(bounded(t), addr, &peer.ObjectRequest{Kind: wire.TDelete, Bucket: "b", Object: name, IfVersion: e.ifVersion}, func(*peer.Call, wire.Head) error { return nil })
				default:
					// To a name of its own, so that what came of it can be told afterwards.
					e.kind, e.value, e.ifAbsent, e.ifVersion = "rename", "", false, 0
					to := fmt.Sprintf("r%d.%d", i, k)
					_, err = c.Peer.CopyAt(bounded(t), addr, &peer.CopyRequest{Kind: wire.TRename, From: peer.ObjectName{Bucket: "b", Object: name}, To: peer.ObjectName{Bucket: "b", Object: to}})
					data, gerr := getAt(t, c.Peer, addr, &peer.ObjectRequest{Bucket: "b", Object: to})
					mu.Lock()
					taken = append(taken, to)
					mu.Unlock()
					switch errs.CodeOf(err) {
					case errs.OK, errs.VersionMismatch:
						if gerr != nil {
							t.Errorf("%s isn't there after a rename that ended with %v: %v", to, err, gerr)
						}
						if e.value = string(data); err == nil {
							mu.Lock()
							moved[to] = e.value
							mu.Unlock()
						}
					default:
						if !errs.IsCode(gerr, errs.NotFound) {
							t.Errorf("%s is there after a rename that ended with %v", to, err)
						}
					}
				}
				e.to, e.code = clock.Add(1), errs.CodeOf(err)
				if e.kind == "rename" && e.code == errs.VersionMismatch {
					continue // the name was written to meanwhile, and both are there: nothing happened to it
				}
				switch e.code {
				case errs.OK, errs.NotFound, errs.AlreadyExists, errs.VersionMismatch:
				default:
					t.Errorf("%s %s: %v", e.kind, name, err)
				}
				mu.Lock()
				histories[name] = append(histories[name], e)
				if e.version != 0 {
					latest[name] = e.version
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for name, events := range histories {
		if !linear(events) {
			t.Errorf("no order of these explains what was seen of %s:", name)
			for _, e := range events {
				t.Log(e)
			}
		}
	}
	once := map[string]string{}
	for to, value := range moved {
		if other, twice := once[value]; twice {
			t.Errorf("both %s and %s took %q away", to, other, value)
		}
		once[value] = to
	}
	// In the end all nodes show the same, and every holder has it.
	all := slices.Clone(taken)
	for i := range names {
		all = append(all, fmt.Sprintf("o%d", i))
	}
	b, err := c.Peer.Bucket(bounded(t), "b")
	must(t, err)
	for _, name := range all {
		owner := holdersOf(c, "b", name, b.Copies)[0]
		rec := records(t, c, "b", name)[owner]
		held(t, c, "b", name, b.Copies, rec.Version, rec.Deleted)
		for _, n := range c.Nodes {
			_, err := getAt(t, c.Peer, n.Addr(), &peer.ObjectRequest{Bucket: "b", Object: name})
			if there := rec.Version != 0 && !rec.Deleted; there && err != nil || !there && !errs.IsCode(err, errs.NotFound) {
				t.Errorf("%s through %s: %v; the owner's record is %+v", name, n.Name(), err, rec)
			}
		}
	}
	noWorkFiles(t, c)
}
