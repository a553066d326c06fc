package errs

import (
	"fmt"
	"syscall"
)

// Code says what went wrong, independent of where. The numbers are on the wire
// and in files: they are only ever added, never changed or reused.
type Code uint16

const (
	OK                  Code = 0
	NotFound            Code = 1
	AlreadyExists       Code = 2
	PermissionDenied    Code = 3
	InvalidArgument     Code = 4
	TooLarge            Code = 5
	TooManyRequests     Code = 6
	NoSpace             Code = 7
	ChecksumMismatch    Code = 8
	VersionMismatch     Code = 9
	Timeout             Code = 10
	Unavailable         Code = 11
	Canceled            Code = 12
	Internal            Code = 13
	NotSupported        Code = 14
	NotEmpty            Code = 15
	RangeNotSatisfiable Code = 16
	Protocol            Code = 17
	ReadOnly            Code = 18
	BucketNotFound      Code = 19
	SenderLost          Code = 20
	SenderTimeout       Code = 21
	BadShard            Code = 22
	TooManyEntries      Code = 23
	IsDirectory         Code = 24
	Busy                Code = 25
)

// Exit statuses of the command line (docs/operations.md lists them).
const (
	ExitOK          = 0
	ExitFailed      = 1
	ExitUsage       = 2
	ExitNotFound    = 3
	ExitRefused     = 4
	ExitUnavailable = 5
)

// table is the one place that says what a code means outside Go.
var table = [...]struct {
	name  string
	errno syscall.Errno
	exit  int
}{
	OK:                  {"ok", 0, ExitOK},
	NotFound:            {"not found", syscall.ENOENT, ExitNotFound},
	AlreadyExists:       {"already exists", syscall.EEXIST, ExitFailed},
	PermissionDenied:    {"permission denied", syscall.EACCES, ExitRefused},
	InvalidArgument:     {"invalid argument", syscall.EINVAL, ExitUsage},
	TooLarge:            {"too large", syscall.EFBIG, ExitFailed},
	TooManyRequests:     {"too many requests", syscall.EAGAIN, ExitUnavailable},
	NoSpace:             {"no space left", syscall.ENOSPC, ExitFailed},
	ChecksumMismatch:    {"checksum mismatch", syscall.EIO, ExitFailed},
	VersionMismatch:     {"version mismatch", syscall.ESTALE, ExitFailed},
	Timeout:             {"timed out", syscall.ETIMEDOUT, ExitUnavailable},
	Unavailable:         {"unavailable", syscall.EHOSTUNREACH, ExitUnavailable},
	Canceled:            {"canceled", syscall.EINTR, ExitFailed},
	Internal:            {"internal error", syscall.EIO, ExitFailed},
	NotSupported:        {"not supported", syscall.EOPNOTSUPP, ExitFailed},
	NotEmpty:            {"not empty", syscall.ENOTEMPTY, ExitRefused},
	RangeNotSatisfiable: {"range not satisfiable", syscall.ERANGE, ExitFailed},
	Protocol:            {"protocol violation", syscall.EPROTO, ExitFailed},
	ReadOnly:            {"read-only", syscall.EROFS, ExitRefused},
	BucketNotFound:      {"bucket not found", syscall.ENOENT, ExitNotFound},
	SenderLost:          {"sender lost", syscall.EHOSTUNREACH, ExitUnavailable},
	SenderTimeout:       {"sender timed out", syscall.ETIMEDOUT, ExitUnavailable},
	BadShard:            {"bad shard", syscall.EBADMSG, ExitFailed},
	TooManyEntries:      {"too many entries", syscall.E2BIG, ExitFailed},
	IsDirectory:         {"is a directory", syscall.EISDIR, ExitFailed},
	Busy:                {"busy", syscall.EBUSY, ExitRefused},
}

// Known tells whether c is a code this build knows; a peer of a later version
// may send others, which are treated as Internal.
func (c Code) Known() bool { return int(c) < len(table) }

// String gives the words used in messages.
func (c Code) String() string {
	if !c.Known() {
		return fmt.Sprintf("error %d", uint16(c))
	}
	return table[c].name
}

// Errno is what a mount answers.
func (c Code) Errno() syscall.Errno {
	if !c.Known() {
		return syscall.EIO
	}
	return table[c].errno
}

// Exit is the exit status of the command line.
func (c Code) Exit() int {
	if !c.Known() {
		return ExitFailed
	}
	return table[c].exit
}

// Retryable tells whether the same call may succeed later without a change.
func (c Code) Retryable() bool {
	switch c {
	case TooManyRequests, Timeout, Unavailable, SenderLost, SenderTimeout:
		return true
	}
	return false
}

// Soft tells whether a batch entry failing with c may become a placeholder when
// the request continues on error (the paper, section 2.4.2). All else is hard
// and aborts the batch.
func (c Code) Soft() bool {
	switch c {
	case NotFound, RangeNotSatisfiable, ChecksumMismatch, VersionMismatch,
		SenderLost, SenderTimeout, BadShard, Unavailable, Timeout, NotSupported:
		return true
	}
	return false
}
