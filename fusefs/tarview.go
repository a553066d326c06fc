package fusefs

import (
	"context"
	"sort"
	"sync"
	"syscall"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// tarLayout says where the members of a batch's archive begin. Nothing of the
// archive is stored: headers are made when they are read, payloads lie in the spool.
// The layout grows when somebody looks, so a batch whose archive nobody reads pays
// nothing for it.
type tarLayout struct {
	mu     sync.Mutex
	starts []int64 // of entry i's header; one more: the end of the last
}

func (b *batch) tar() *tarLayout {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.layout == nil {
		b.layout = &tarLayout{starts: []int64{0}}
	}
	return b.layout
}

// upTo gives the starts of the first n entries and the end of the last.
func (l *tarLayout) upTo(b *batch, n int) ([]int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.starts) - 1; i < n; i++ {
		h, err := b.tarHeader(i)
		if err != nil {
			return nil, err
		}
		size := b.table.row(i).size
		l.starts = append(l.starts, l.starts[i]+int64(len(h))+size+batching.TarPadding(size))
	}
	return l.starts[: n+1 : n+1], nil
}

// tarHeader makes entry i's header; a failed one is an empty member elsewhere.
func (b *batch) tarHeader(i int) ([]byte, error) {
	r := b.table.row(i)
	return batching.TarHeader(batching.ArchiveName(&b.req.In[i], b.req.Onob, r.code != errs.OK), r.size)
}

// tarView is the batch as an archive. Of a batch that failed as a whole the rest is
// EIO: a truncated archive must not look complete.
type tarView struct{ b *batch }

// size of a failed batch's archive includes the trailer that will never come, so
// that a reader goes on to where the error is.
func (v *tarView) size() (int64, bool, syscall.Errno) {
	p := v.b.progress()
	starts, err := v.b.tar().upTo(v.b, p.rows)
	if err != nil {
		return 0, false, syscall.EIO
	}
	n := starts[p.rows]
	if p.over {
		n += batching.TarTrailer
	}
	return n, p.over && p.errno == 0, 0
}

func (v *tarView) open(context.Context) syscall.Errno { return 0 }

func (v *tarView) read(ctx context.Context, dest []byte, off int64) (int, syscall.Errno) {
	for {
		p := v.b.progress()
		starts, err := v.b.tar().upTo(v.b, p.rows)
		if err != nil {
			return 0, syscall.EIO
		}
		if end := starts[p.rows]; p.over || end >= off+int64(len(dest)) {
			return v.piece(dest, off, starts, p)
		}
		if _, err := v.b.wait(ctx, func(now progress) bool { return now.rows > p.rows }); err != nil {
			return 0, syscall.EINTR
		}
	}
}

// piece puts together the archive's bytes from off on, as far as starts reaches.
func (v *tarView) piece(dest []byte, off int64, starts []int64, p progress) (int, syscall.Errno) {
	n := 0
	end := starts[p.rows]
	i := sort.Search(len(starts), func(i int) bool { return starts[i] > off }) - 1
	for ; i < p.rows && n < len(dest); i++ {
		m, errno := v.member(dest[n:], i, off+int64(n)-starts[i])
		if errno != 0 {
			return 0, errno
		}
		n += m
	}
	if n == len(dest) || !p.over {
		return n, 0
	}
	if p.errno != 0 {
		if n == 0 {
			return 0, syscall.EIO
		}
		return n, 0
	}
	zeros := max(0, min(int64(len(dest)-n), end+batching.TarTrailer-off-int64(n)))
	clear(dest[n : n+int(zeros)])
	return n + int(zeros), 0
}

// member copies entry i from the byte at, counted from its header: header, payload,
// padding.
func (v *tarView) member(dest []byte, i int, at int64) (n int, errno syscall.Errno) {
	h, err := v.b.tarHeader(i)
	if err != nil {
		return 0, syscall.EIO
	}
	r := v.b.table.row(i)
	head := int64(len(h))
	if at < head {
		n = copy(dest, h[at:])
	}
	if pos := at + int64(n) - head; pos < r.size && n < len(dest) {
		m, errno := v.b.payload(dest[n:], r.off+pos, r.off+r.size)
		if errno != 0 {
			return 0, errno
		}
		n += m
	}
	pad := head + r.size + batching.TarPadding(r.size) - at - int64(n)
	pad = min(pad, int64(len(dest)-n))
	clear(dest[n : n+int(pad)])
	return n + int(pad), 0
}
