package server_test

import (
	"io"
	"runtime"
	"testing"

	"sheaf/internal/testcluster"
	"sheaf/peer"
)

// Memory doesn't grow with an object: two nodes and a client in one process put and get one
// that is larger than all that they may hold together.
func TestLargeObjectsDontFillMemory(t *testing.T) {
	const size = 96 << 20
	c := testcluster.Start(t, testcluster.Options{Nodes: 2})
	copied(t, c, "b", 2)
	// What is reachable, not what the collector hasn't come to yet.
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before, peak := inUse(), uint64(0)
	left := int64(size)
	look := readerFunc(func(p []byte) (int, error) {
		if left == 0 {
			return 0, io.EOF
		}
		if left%(8<<20) < int64(len(p)) {
			peak = max(peak, inUse())
		}
		k := min(left, int64(len(p)))
		left -= k
		return int(k), nil
	})
	_, err := c.Peer.Put(bounded(t), "b", "large", look, peer.PutOptions{Size: size})
	must(t, err)
	_, body, err := c.Peer.Get(bounded(t), "b", "large", peer.GetOptions{})
	must(t, err)
	defer body.Close()
	var got int64
	buf := make([]byte, 1<<20)
	for err == nil {
		var k int
		k, err = body.Read(buf)
		if got/(8<<20) != (got+int64(k))/(8<<20) {
			peak = max(peak, inUse())
		}
		got += int64(k)
	}
	if err != io.EOF || got != size {
		t.Errorf("%d bytes came: %v", got, err)
	}
	if peak > before+size/2 {
		t.Errorf("%d MiB in use with an object of %d MiB, %d before", peak>>20, size>>20, before>>20)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
