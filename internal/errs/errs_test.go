package errs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// The numbers are a promise to other programs: a change here breaks them.
func TestNumbersNeverChange(t *testing.T) {
	want := []Code{OK, NotFound, AlreadyExists, PermissionDenied, InvalidArgument, TooLarge, TooManyRequests, NoSpace,
		ChecksumMismatch, VersionMismatch, Timeout, Unavailable, Canceled, Internal, NotSupported, NotEmpty,
		RangeNotSatisfiable, Protocol, ReadOnly, BucketNotFound, SenderLost, SenderTimeout, BadShard, TooManyEntries,
		IsDirectory, Busy}
	if len(want) != len(table) {
		t.Fatalf("%d codes listed here, %d in the table", len(want), len(table))
	}
	for i, c := range want {
		if int(c) != i {
			t.Errorf("%v is %d, want %d", c, c, i)
		}
		if table[i].name == "" || (i > 0 && (table[i].errno == 0 || table[i].exit == 0)) {
			t.Errorf("code %d has an incomplete row", i)
		}
	}
}

func TestCodeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Code
	}{
		{nil, OK},
		{&Error{Code: BadShard}, BadShard},
		{fmt.Errorf("outer: %w", &Error{Code: NoSpace, Err: io.EOF}), NoSpace},
		{&Error{Code: Unavailable, Err: &Error{Code: NotFound}}, Unavailable},
		{&os.PathError{Op: "open", Path: "/x", Err: syscall.ENOSPC}, NoSpace},
		{fs.ErrNotExist, NotFound},
		{context.Canceled, Canceled},
		{fmt.Errorf("x: %w", context.DeadlineExceeded), Timeout},
		{syscall.ECONNREFUSED, Unavailable},
		{errors.New("anything"), Internal},
	} {
		if got := CodeOf(c.err); got != c.want {
			t.Errorf("CodeOf(%v) = %v, want %v", c.err, got, c.want)
		}
	}
	if Errno(&Error{Code: NotFound}) != syscall.ENOENT || Exit(&Error{Code: NotFound}) != 3 {
		t.Error("NotFound maps wrongly")
	}
	if Code(60000).Errno() != syscall.EIO || Code(60000).Exit() != ExitFailed {
		t.Error("an unknown code isn't treated as internal")
	}
}

func TestMessage(t *testing.T) {
	e := &Error{Code: NotFound, Op: "get", Bucket: "b", Object: "s.tar", Member: "m", Node: "n2", Msg: "gone", Err: io.EOF}
	const want = "get b/s.tar@/m: not found: gone: EOF (node n2)"
	if e.Error() != want {
		t.Errorf("got  %q\nwant %q", e.Error(), want)
	}
	if !errors.Is(e, io.EOF) || !errors.Is(e, &Error{Code: NotFound}) || errors.Is(e, &Error{Code: NoSpace}) {
		t.Error("errors.Is doesn't match on cause and code")
	}
}
