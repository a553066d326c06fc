// Package wire is how frames and messages look on a stream.
//
//	         frame                          frame
//	┌──────┬─────────────┬─────────┐┌──────┬─────────────┬───
//	│ u32  │ header      │ payload ││ u32  │ header      │ …      big-endian length of the header,
//	│ len  │ msgpack map │ raw     ││ len  │ msgpack map │        then a map {t, p, fields…}
//	└──────┴─────────────┴─────────┘└──────┴─────────────┴───
//	              t: message type   p: bytes of payload (absent: none)
//
// docs/protocol.md is the specification; golden vectors of every message are in
// peer/testdata/vectors.
//
// Invariants:
//   - a header is decoded only from memory, after its length was checked against
//     MaxHeader; a payload's length against MaxPayload;
//   - decoding goes into typed fields with a limit each, never into any: a count is
//     checked against the bytes that are left before anything is allocated for it,
//     and nesting stops at MaxDepth;
//   - a key that a reader doesn't know is skipped, a field with its zero value isn't
//     written, integers have their shortest form: one message has one encoding.
package wire

// Limits of the protocol.
const (
	Version    = 1         // of the protocol, exchanged in Hello
	ALPN       = "sheaf/1" // of the TLS handshake
	MaxHeader  = 1 << 20   // bytes of a frame's header
	MaxPayload = 256 << 10 // bytes of a frame's payload
	MaxDepth   = 16        // of nested maps and arrays
	MaxText    = 4096      // bytes of an error's text

	// ChunkSize is the payload that Sheaf itself puts in one frame at most.
	ChunkSize = 128 << 10
)

// Type is the number of a message. Numbers are only ever added.
type Type uint16

const (
	THello Type = 1
	TEnd   Type = 2

	TMapGet  Type = 10
	TMap     Type = 11
	TMapPush Type = 12
	TJoin    Type = 13

	TBucketCreate  Type = 20
	TBucketDestroy Type = 21
	TBucketList    Type = 22
	TBucket        Type = 23

	TPut     Type = 30
	TGet     Type = 31
	THead    Type = 32
	TDelete  Type = 33
	TList    Type = 34
	TMembers Type = 35
	TObject  Type = 36
	TNames   Type = 37
	TData    Type = 38
	TTable   Type = 39

	TBatch      Type = 40
	TEntries    Type = 41
	TAccepted   Type = 42
	TRedirect   Type = 43
	TChunk      Type = 44
	TEntryError Type = 45
	TEntryMeta  Type = 46
	TSend       Type = 47

	TStatus        Type = 50
	TNodeStatus    Type = 51
	TRebalance     Type = 53
	TMountpathList Type = 54
	TMountpaths    Type = 55
	TMountpathSet  Type = 56

	TAppend     Type = 60
	TCopy       Type = 61
	TRename     Type = 62
	TEvict      Type = 63
	TPrefetch   Type = 64
	TPrefetched Type = 65

	TStage       Type = 70
	TStaged      Type = 71
	TCommit      Type = 72
	TTombstone   Type = 73
	TVersions    Type = 74
	TVersionList Type = 75
	TReplicate   Type = 76
	TReplicated  Type = 77

	TAlive Type = 95

	TSettled Type = 105

	TGossip     Type = 80
	TBucketSet  Type = 81
	TBucketShow Type = 82
	TLeave      Type = 83
)

// Message is one message: its number and its fields.
type Message interface {
	Type() Type
	// Encode writes the fields.
	Encode(e *Encoder)
	// Field reads the value of one key, or calls d.Skip for a key it doesn't know.
	// Errors stay in d.
	Field(key string, d *Decoder)
}
