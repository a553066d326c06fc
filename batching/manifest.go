package batching

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// ParseManifest reads a manifest as a user writes it: one JSON object with the
// fields of Request, or plain text with one "bucket/object" or
// "bucket/shard.tar@/member" a line (blank lines and lines that begin with '#'
// are passed over). The result is normalized. Errors have code InvalidArgument,
// or TooManyEntries past MaxEntries.
func ParseManifest(text []byte) (*Request, error) {
	if len(text) > MaxManifest {
		return nil, errs.New(errs.TooManyEntries, "manifest", fmt.Sprintf("%d bytes, the limit is %d", len(text), MaxManifest))
	}
	var req *Request
	var err error
	if t := bytes.TrimLeft(text, " \t\r\n"); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		req = new(Request)
		err = DecodeJSON(text, req)
	} else {
		req, err = parseLines(string(text))
	}
	if err != nil {
		return nil, err
	}
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	return req, nil
}

// DecodeJSON decodes exactly one JSON value into v, refusing unknown fields and
// anything after it, and says where the text is wrong.
func DecodeJSON(text []byte, v any) error {
	if !utf8.Valid(text) {
		return errs.New(errs.InvalidArgument, "manifest", "the text isn't UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errs.New(errs.InvalidArgument, "manifest", explainJSON(text, err))
	}
	if _, err := d.Token(); err != io.EOF {
		return errs.New(errs.InvalidArgument, "manifest", fmt.Sprintf("text after the JSON value at %s", place(text, d.InputOffset())))
	}
	return nil
}

func explainJSON(text []byte, err error) string {
	var syn *json.SyntaxError
	var typ *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syn):
		return fmt.Sprintf("not JSON at %s: %v", place(text, syn.Offset-1), syn)
	case errors.As(err, &typ):
		return fmt.Sprintf("field %q at %s: a %s where %s is wanted", typ.Field, place(text, typ.Offset), typ.Value, typ.Type)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "not JSON: the text ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// place turns a byte offset into line and column, both from 1.
func place(text []byte, off int64) string {
	off = min(max(off, 0), int64(len(text)))
	before := text[:off]
	line := 1 + bytes.Count(before, []byte{'\n'})
	return fmt.Sprintf("line %d column %d", line, len(before)-bytes.LastIndexByte(before, '\n'))
}

func parseLines(text string) (*Request, error) {
	req := new(Request)
	f := faults{code: errs.InvalidArgument}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		if len(req.In) == MaxEntries {
			return nil, errs.New(errs.TooManyEntries, "manifest", fmt.Sprintf("more than %d lines: split it into several batches", MaxEntries))
		}
		b, o, m := names.Split(line)
		e := Entry{Bucket: b, ObjName: o, ArchPath: m}
		err := e.normalize()
		if err == nil && m == "" && strings.HasSuffix(line, "@/") {
			err = errors.New("no member is named")
		}
		if err != nil {
			f.addf("line %d (%.80q): %v; want bucket/object or bucket/shard.tar@/member", n, line, err)
			continue
		}
		req.In = append(req.In, e)
	}
	if err := f.err("manifest"); err != nil {
		return nil, err
	}
	return req, nil
}
