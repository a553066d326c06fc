package server

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer"
)

// A listing's token is where the page ended: a format, 4 bytes that stand for what was
// asked, and the last key, in URL-safe base64. It says nothing of the nodes, so that any
// node goes on with it, at any time.
const (
	tokenFormat = 1
	tokenHead   = 1 + 4
)

func listToken(bucket string, o peer.ListOptions, last string) string {
	b := binary.LittleEndian.AppendUint32([]byte{tokenFormat}, listHash(bucket, o))
	return base64.RawURLEncoding.EncodeToString(append(b, last...))
}

// readListToken gives the key after which a page begins, "" without a token. A token of
// another listing would skip names without a word.
func readListToken(bucket string, o peer.ListOptions) (after string, err error) {
	if o.Token == "" {
		return "", nil
	}
	b, err := base64.RawURLEncoding.DecodeString(o.Token)
	switch {
	case err != nil, len(b) <= tokenHead, len(b) > tokenHead+names.MaxObject, b[0] != tokenFormat:
		return "", errs.New(errs.InvalidArgument, "list", "the token isn't one that a listing gave")
	case binary.LittleEndian.Uint32(b[1:]) != listHash(bucket, o):
		return "", errs.New(errs.InvalidArgument, "list", "the token belongs to a listing of another bucket, prefix or delimiter")
	}
	return string(b[tokenHead:]), nil
}

func listHash(bucket string, o peer.ListOptions) uint32 {
	return uint32(xxh3.HashString(bucket + "\x00" + o.Delimiter + "\x00" + o.Prefix))
}
