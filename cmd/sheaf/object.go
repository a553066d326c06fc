package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// object names what a command works on: BUCKET/OBJECT, or BUCKET/OBJECT@/MEMBER.
type object struct{ Bucket, Name, Member string }

// parseObject reads an object's name, or a member's.
func parseObject(s string) (object, error) {
	var o object
	o.Bucket, o.Name, o.Member = names.Split(s)
	if err := names.CheckBucket(o.Bucket); err != nil {
		return o, err
	}
	if o.Name == "" {
		return o, errs.New(errs.InvalidArgument, "", fmt.Sprintf("%q names no object: want BUCKET/OBJECT", s))
	}
	if err := names.CheckObject(o.Name); err != nil {
		return o, err
	}
	if o.Member != "" {
		return o, names.CheckMember(o.Member)
	}
	return o, nil
}

// parseWhole is parseObject for commands that change objects: members can't be.
func parseWhole(s string) (object, error) {
	o, err := parseObject(s)
	if err == nil && o.Member != "" {
		err = errs.New(errs.InvalidArgument, "", fmt.Sprintf("%q is a member of a shard: only whole objects can be changed", s))
	}
	return o, err
}

// parsePrefix reads BUCKET[/PREFIX]; slash tells whether there was a "/".
func parsePrefix(s string) (bucket, prefix string, slash bool, err error) {
	bucket, prefix, slash = strings.Cut(s, "/")
	if err := names.CheckBucket(bucket); err != nil {
		return "", "", false, err
	}
	return bucket, prefix, slash, names.CheckPrefix(prefix)
}

// interruptible makes a reader whose reads end with ctx, also where r's own don't: a
// terminal, a pipe. Its goroutine ends with r or, blocked in a read, with the process.
func interruptible(ctx context.Context, r io.Reader) io.Reader {
	pr, pw := io.Pipe()
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{pw}, struct{ io.Reader }{r}, make([]byte, 256<<10))
		pw.CloseWithError(err) // nil: io.EOF
	}()
	context.AfterFunc(ctx, func() { pw.CloseWithError(ctx.Err()) })
	return pr
}
