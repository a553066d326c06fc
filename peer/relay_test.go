package peer

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay stands between callers and a node: what is sent to its address reaches the node
// until it is cut; from then on packets vanish in both directions, as those of a machine
// that has lost its power.
type relay struct {
	addr string
	dead atomic.Bool
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	front, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	node, err := net.ResolveUDPAddr("udp", to)
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: front.LocalAddr().String()}
	var wg sync.WaitGroup
	backs := map[string]*net.UDPConn{} // by caller; only the goroutine below uses it until it ends
	t.Cleanup(func() {
		_ = front.Close()
		wg.Wait()
	})
	wg.Go(func() { // ends when front is closed
		defer func() {
			for _, b := range backs {
				_ = b.Close()
			}
		}()
		buf := make([]byte, 64<<10)
		for {
			n, from, err := front.ReadFromUDP(buf)
			if err != nil {
				return
			}
			back := backs[from.String()]
			if back == nil {
				if back, err = net.DialUDP("udp", nil, node); err != nil {
					return
				}
				backs[from.String()] = back
				wg.Go(func() { r.answer(front, back, from) }) // ends when back is closed
			}
			if !r.dead.Load() {
				_, _ = back.Write(buf[:n])
			}
		}
	})
	return r
}

func (r *relay) answer(front, back *net.UDPConn, to *net.UDPAddr) {
	buf := make([]byte, 64<<10)
	for {
		n, err := back.Read(buf)
		if err != nil {
			return
		}
		if !r.dead.Load() {
			_, _ = front.WriteToUDP(buf[:n], to)
		}
	}
}

// cut makes the node vanish, mend brings it back.
func (r *relay) cut()  { r.dead.Store(true) }
func (r *relay) mend() { r.dead.Store(false) }
