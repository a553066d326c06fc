// Package names says which bucket, object and member names exist.
//
//	manifest, command line, wire ──▶ names.Check… ──▶ everything below trusts them
//
// Names come from hostile places (manifests, archives, peers) and end up in
// paths of the local disk and of the mount. Invariant: a name that passed a
// check here has no NUL, is valid UTF-8, is bounded, and no component of it is
// "." or "..".
package names

import (
	"fmt"
	"path"
	"strings"
	"unicode/utf8"

	"sheaf/internal/errs"
)

const (
	MaxBucket = 63   // bytes, as in S3
	MaxObject = 1024 // bytes, as in S3
	MaxMember = 4096 // bytes; PATH_MAX
	MaxAttrs  = 2048 // bytes of all keys and values of an object's attributes, and 4 for each
	// Local is the provider of buckets whose objects live only in the cluster.
	// On disk and in listings it is written out; in requests it may be empty.
	Local = "sheaf"
)

func bad(what, name, why string) error {
	return errs.New(errs.InvalidArgument, "", fmt.Sprintf("%s %q: %s", what, clip(name), why))
}

// clip keeps a hostile name from flooding a log line.
func clip(s string) string {
	if len(s) <= 100 {
		return s
	}
	return strings.ToValidUTF8(s[:100], "") + "…"
}

// CheckBucket: 1 to 63 of a-z, A-Z, 0-9, '.', '_', '-', beginning with a letter or digit.
func CheckBucket(b string) error {
	switch {
	case b == "":
		return bad("bucket", b, "the name is empty")
	case len(b) > MaxBucket:
		return bad("bucket", b, fmt.Sprintf("the name has %d bytes, the limit is %d", len(b), MaxBucket))
	}
	for i := 0; i < len(b); i++ {
		c := b[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return bad("bucket", b, "a name has letters, digits, '.', '_' and '-', and begins with a letter or digit")
		}
	}
	return nil
}

func check(what, s string, limit int) error {
	switch {
	case s == "":
		return bad(what, s, "the name is empty")
	case len(s) > limit:
		return bad(what, s, fmt.Sprintf("the name has %d bytes, the limit is %d", len(s), limit))
	case strings.IndexByte(s, 0) >= 0:
		return bad(what, s, "the name contains a NUL byte")
	case !utf8.ValidString(s):
		return bad(what, s, "the name isn't valid UTF-8")
	}
	for rest := s; ; {
		part, tail, more := strings.Cut(rest, "/")
		if part == "." || part == ".." {
			return bad(what, s, fmt.Sprintf("a component is %q", part))
		}
		if !more {
			return nil
		}
		rest = tail
	}
}

// CheckObject: 1 to 1 024 bytes of UTF-8 without NUL; no component "." or "..".
func CheckObject(o string) error { return check("object", o, MaxObject) }

// CheckPrefix is CheckObject for the beginning of a name: empty is fine.
func CheckPrefix(p string) error {
	if p == "" {
		return nil
	}
	if p = strings.TrimRight(p, "/"); p == "" {
		return nil
	}
	return check("prefix", p, MaxObject)
}

// CheckMember: as for objects but up to 4 096 bytes and never absolute.
func CheckMember(m string) error {
	if err := check("member", m, MaxMember); err != nil {
		return err
	}
	if m[0] == '/' {
		return bad("member", m, "the name is absolute")
	}
	return nil
}

// CheckAttrs: keys and values in UTF-8 without NUL, no empty key, all together, with
// 4 bytes for each attribute, at most MaxAttrs bytes.
func CheckAttrs(attrs map[string]string) error {
	total := 0
	for k, v := range attrs {
		total += len(k) + len(v) + 4
		for _, s := range [...]string{k, v} {
			if strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) {
				return bad("attribute", k, "keys and values are UTF-8 without NUL")
			}
		}
		if k == "" {
			return bad("attribute", k, "the key is empty")
		}
	}
	if total > MaxAttrs {
		return errs.New(errs.InvalidArgument, "", fmt.Sprintf("attributes of %d bytes, the limit is %d", total, MaxAttrs))
	}
	return nil
}

// Provider normalizes a provider: "" and "ais" (AIStore's word for its own
// buckets) mean Local. Anything else is refused until such buckets exist.
func Provider(p string) (string, error) {
	switch p {
	case "", Local, "ais":
		return Local, nil
	}
	return "", bad("provider", p, "only \"sheaf\" is known")
}

// IsShard tells by its name whether an object is an archive whose members can
// be addressed.
func IsShard(object string) bool { return path.Ext(object) == ".tar" }

// Split cuts "bucket/object" or "bucket/shard.tar@/member" as it is written on a
// command line or in a plain-text manifest. Object and member may come back empty.
func Split(s string) (bucket, object, member string) {
	bucket, object, _ = strings.Cut(s, "/")
	if o, m, ok := strings.Cut(object, "@/"); ok && IsShard(o) {
		return bucket, o, m
	}
	return bucket, object, ""
}
