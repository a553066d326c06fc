package store

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The folders of a bucket, by content.
const (
	contentObject = "%ob"
	contentHashed = "%lg"
	contentWork   = "%wk"
	contentIndex  = "%ix"
)

const (
	maxComponent = 255  // bytes, escaped; NAME_MAX
	maxPath      = 2048 // bytes, escaped; independent of the mountpath, which may be mounted elsewhere
)

// bucketDir is where a mountpath keeps a bucket.
func bucketDir(root, provider, bucket string) string {
	return root + "/@" + provider + "/" + bucket
}

// encodeName gives the path of an object below %ob. It is false when the name has
// none and belongs in the hashed place.
func encodeName(name string) (string, bool) {
	if name == "" {
		return "", false
	}
	var b strings.Builder
	b.Grow(len(name) + 8)
	for rest, more := name, true; more; {
		var part string
		part, rest, more = strings.Cut(rest, "/")
		at := b.Len()
		encodeComponent(&b, part)
		if b.Len()-at > maxComponent || b.Len() > maxPath {
			return "", false
		}
		if more {
			b.WriteByte('/')
		}
	}
	return b.String(), true
}

func encodeComponent(b *strings.Builder, c string) {
	switch c {
	case "":
		b.WriteString("%")
		return
	case ".":
		b.WriteString("%2E")
		return
	case "..":
		b.WriteString("%2E%2E")
		return
	}
	for {
		i := strings.IndexAny(c, "%\x00")
		if i < 0 {
			b.WriteString(c)
			return
		}
		b.WriteString(c[:i])
		if c[i] == '%' {
			b.WriteString("%25")
		} else {
			b.WriteString("%00")
		}
		c = c[i+1:]
	}
}

// decodeComponent is the reverse of encodeComponent. It is false for a file name
// that no object name gives.
func decodeComponent(f string) (string, bool) {
	switch f {
	case "%":
		return "", true
	case "%2E":
		return ".", true
	case "%2E%2E":
		return "..", true
	case "", ".", "..":
		return "", false
	}
	if strings.ContainsAny(f, "/\x00") {
		return "", false
	}
	if strings.IndexByte(f, '%') < 0 {
		return f, true
	}
	var b strings.Builder
	for {
		i := strings.IndexByte(f, '%')
		if i < 0 {
			b.WriteString(f)
			return b.String(), true
		}
		b.WriteString(f[:i])
		switch {
		case strings.HasPrefix(f[i:], "%25"):
			b.WriteByte('%')
		case strings.HasPrefix(f[i:], "%00"):
			b.WriteByte(0)
		default:
			return "", false
		}
		f = f[i+3:]
	}
}

// hashedName is the path of a name below %lg and %ix: 256 folders, then SHA-256, so
// that nobody can make two names that meet.
func hashedName(name string) string {
	sum := sha256.Sum256([]byte(name))
	h := hex.EncodeToString(sum[:])
	return h[:2] + "/" + h
}
