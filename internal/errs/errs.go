// Package errs is Sheaf's one error type.
//
//	disk, socket ──▶ *errs.Error{op, bucket, object, member, node, code, cause}
//	                     ├─ Code.Errno()  what the mount answers
//	                     ├─ Code.Exit()   what the command exits with
//	                     └─ Code          the number on the wire
//
// It stands below every other package. Invariants: codes are append-only; one
// table maps a code to everything outside Go; nobody decides by an error's text.
package errs

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
)

// Error is a failure with its code and what it happened to. Empty fields are
// left out of the message.
type Error struct {
	Code   Code
	Op     string // what was being done: "put", "getbatch", "open shard"
	Bucket string
	Object string
	Member string // archpath inside a shard
	Node   string // the node that failed, when it isn't this one
	Entry  int    // 1 + index of the batch entry that failed; 0 for none
	Msg    string // anything a reader needs beyond the code
	Err    error  // cause; not sent on the wire except as text
}

// New makes an error from a code and a message.
func New(code Code, op, msg string) *Error { return &Error{Code: code, Op: op, Msg: msg} }

// Wrap gives err a code and an op; a nil err stays nil. The code of an *Error
// inside err wins over the given one only through CodeOf, so pass what is meant.
func Wrap(code Code, op string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Code: code, Op: op, Err: err}
}

// Name returns bucket/object@/member with what is known.
func (e *Error) Name() string {
	switch {
	case e.Bucket == "" && e.Object == "":
		return ""
	case e.Object == "":
		return e.Bucket
	case e.Member != "":
		return e.Bucket + "/" + e.Object + "@/" + e.Member
	}
	return e.Bucket + "/" + e.Object
}

// Error joins what is known: "op name: code: message: cause (node n1)".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Op)
	if n := e.Name(); n != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(n)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.Code.String())
	if e.Msg != "" {
		b.WriteString(": ")
		b.WriteString(e.Msg)
	}
	if e.Err != nil {
		b.WriteString(": ")
		b.WriteString(e.Err.Error())
	}
	if e.Node != "" {
		b.WriteString(" (node ")
		b.WriteString(e.Node)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is(err, &Error{Code: c}) match on the code alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Op == "" && t.Object == "" && t.Msg == ""
}

// CodeOf finds the code of any error: that of the outermost *Error in its chain,
// else the one that the operating system's or the context's error stands for.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	switch {
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return Timeout
	}
	var no syscall.Errno
	if errors.As(err, &no) {
		return ofErrno(no)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NotFound
	case errors.Is(err, fs.ErrExist):
		return AlreadyExists
	case errors.Is(err, fs.ErrPermission):
		return PermissionDenied
	}
	var ne net.Error
	if errors.As(err, &ne) {
		if ne.Timeout() {
			return Timeout
		}
		return Unavailable
	}
	return Internal
}

func ofErrno(no syscall.Errno) Code {
	switch no {
	case syscall.ENOENT:
		return NotFound
	case syscall.EEXIST:
		return AlreadyExists
	case syscall.EACCES, syscall.EPERM:
		return PermissionDenied
	case syscall.ENOSPC, syscall.EDQUOT:
		return NoSpace
	case syscall.EROFS:
		return ReadOnly
	case syscall.EFBIG:
		return TooLarge
	case syscall.ENOTEMPTY:
		return NotEmpty
	case syscall.EISDIR:
		return IsDirectory
	case syscall.EBUSY, syscall.EADDRINUSE:
		return Busy
	case syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ENOTDIR:
		return InvalidArgument
	case syscall.ENOTSUP, syscall.ENOSYS:
		return NotSupported
	case syscall.ETIMEDOUT:
		return Timeout
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EPIPE:
		return Unavailable
	case syscall.EINTR:
		return Canceled
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return TooManyRequests
	}
	return Internal
}

// IsCode tells whether err has the code c.
func IsCode(err error, c Code) bool { return CodeOf(err) == c }

// Errno is what a system call that failed with err answers; 0 for nil.
func Errno(err error) syscall.Errno { return CodeOf(err).Errno() }

// Exit is the exit status for err; 0 for nil.
func Exit(err error) int { return CodeOf(err).Exit() }

// Flatten gives err as one *Error without a cause, whose text is kept in Msg:
// what can be sent to another node. Fields that the outer error leaves empty are
// taken from *Errors it wraps.
func Flatten(err error) *Error {
	out := &Error{Code: CodeOf(err)}
	var e *Error
	if !errors.As(err, &e) {
		out.Msg = err.Error()
		return out
	}
	*out = *e
	out.Err = nil
	for cause := e.Err; cause != nil; {
		var inner *Error
		if !errors.As(cause, &inner) {
			out.Msg = join(out.Msg, cause.Error())
			break
		}
		if out.Bucket == "" && out.Object == "" {
			out.Bucket, out.Object, out.Member = inner.Bucket, inner.Object, inner.Member
		}
		if out.Node == "" {
			out.Node = inner.Node
		}
		if inner.Code != out.Code {
			out.Msg = join(out.Msg, inner.Code.String())
		}
		out.Msg = join(out.Msg, inner.Msg)
		cause = inner.Err
	}
	return out
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + ": " + b
}
