package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"sheaf/internal/errs"
)

// later is how long a client is told to wait when the server names no time itself.
const later = time.Second

// fault says what an error of the SDK means. Its text is made here, from the server's
// code and message: the SDK's own repeats requests.
func (s *s3Store) fault(err error) *errs.Error {
	var e *errs.Error
	if errors.As(err, &e) {
		out := *e
		return &out
	}
	var api smithy.APIError
	var http *awshttp.ResponseError
	code, msg, status := "", "", 0
	if errors.As(err, &api) {
		code, msg = api.ErrorCode(), api.ErrorMessage()
	}
	if errors.As(err, &http) {
		status = http.HTTPStatusCode()
	}
	if code == "" && status == 0 {
		return transportFault(err)
	}
	out := &errs.Error{Code: codeOf(code, status), Msg: fmt.Sprintf("the server answers %d %s", status, code)}
	if msg != "" {
		out.Msg += ": " + clip(msg)
	}
	if out.Code == errs.Unavailable {
		wait := later
		if http != nil && http.Response != nil {
			if n, err := strconv.Atoi(http.Response.Header.Get("Retry-After")); err == nil && n > 0 {
				wait = min(time.Duration(n)*time.Second, time.Minute)
			}
		}
		out.Err = &throttled{wait}
	}
	return out
}

func codeOf(code string, status int) errs.Code {
	switch code {
	case "NoSuchKey", "NotFound", "NoSuchVersion":
		return errs.NotFound
	case "NoSuchBucket":
		return errs.Unavailable // of the bucket there, not of an object in it
	case "PreconditionFailed":
		return errs.VersionMismatch
	case "InvalidRange":
		return errs.RangeNotSatisfiable
	case "EntityTooLarge":
		return errs.TooLarge
	case "RequestTimeout":
		return errs.Timeout
	case "BadDigest", "XAmzContentChecksumMismatch":
		return errs.ChecksumMismatch
	case "QuotaExceeded", "InsufficientStorage":
		return errs.NoSpace
	}
	switch {
	case status == 401 || status == 403:
		return errs.PermissionDenied
	case status == 404:
		return errs.NotFound
	case status == 405 || status == 501:
		return errs.NotSupported
	case status == 408:
		return errs.Timeout
	case status == 409 || status == 429 || status >= 500:
		return errs.Unavailable
	case status == 412:
		return errs.VersionMismatch
	case status == 416:
		return errs.RangeNotSatisfiable
	case status >= 400:
		return errs.InvalidArgument
	}
	return errs.Internal
}

// transportFault is an error without an answer of the server.
func transportFault(err error) *errs.Error {
	var ne net.Error
	var op *net.OpError
	switch {
	case errors.Is(err, context.Canceled):
		return &errs.Error{Code: errs.Canceled, Err: context.Canceled}
	case errors.As(err, &ne) && ne.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return &errs.Error{Code: errs.Timeout, Msg: "no byte came from the server for too long", Err: &throttled{later}}
	case errors.As(err, &op):
		return &errs.Error{Code: errs.Unavailable, Msg: op.Error(), Err: &throttled{later}}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return &errs.Error{Code: errs.Unavailable, Msg: "the connection to the server broke", Err: &throttled{later}}
	}
	// The innermost cause: what wraps it repeats the request.
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return &errs.Error{Code: errs.Unavailable, Msg: clip(err.Error())}
}

func clip(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}
