package fusefs

import (
	"encoding/binary"
	"syscall"

	"sheaf/internal/errs"
)

// The index file: a header and one row an entry (docs/mount.md, "A batch's files").
const (
	tableMagic  = "SHEAFIX1"
	tableHeader = 64
	tableRow    = 32
)

// row is one entry's line in the index.
type row struct {
	off, size int64 // where its payload lies in data
	sum       uint64
	code      errs.Code
	errno     syscall.Errno
}

// table is the bytes of a batch's index, in memory from the batch's begin: a row
// is written once, before it is published, so published rows are read without a lock.
type table []byte

func newTable(n int) table {
	t := make(table, tableHeader+tableRow*n)
	copy(t, tableMagic)
	binary.LittleEndian.PutUint32(t[8:], tableHeader)
	binary.LittleEndian.PutUint32(t[12:], tableRow)
	binary.LittleEndian.PutUint64(t[16:], uint64(n))
	return t
}

// end is how many bytes the first n rows and the header take.
func tableEnd(n int) int64 { return tableHeader + tableRow*int64(n) }

func (t table) set(i int, r row) {
	b := t[tableHeader+tableRow*i:][:tableRow]
	binary.LittleEndian.PutUint64(b, uint64(r.off))
	binary.LittleEndian.PutUint64(b[8:], uint64(r.size))
	binary.LittleEndian.PutUint64(b[16:], r.sum)
	binary.LittleEndian.PutUint32(b[24:], uint32(r.code))
	binary.LittleEndian.PutUint32(b[28:], uint32(r.errno))
}

func (t table) row(i int) row {
	b := t[tableHeader+tableRow*i:][:tableRow]
	return row{
		off:   int64(binary.LittleEndian.Uint64(b)),
		size:  int64(binary.LittleEndian.Uint64(b[8:])),
		sum:   binary.LittleEndian.Uint64(b[16:]),
		code:  errs.Code(binary.LittleEndian.Uint32(b[24:])),
		errno: syscall.Errno(binary.LittleEndian.Uint32(b[28:])),
	}
}

// batchErrno is the errno of an entry or batch that failed with code. Of a system
// call that was interrupted EINTR is said; nothing here was, so it is ECANCELED.
func batchErrno(code errs.Code) syscall.Errno {
	if code == errs.Canceled {
		return syscall.ECANCELED
	}
	return code.Errno()
}
