package batching

import (
	"testing"

	"sheaf/peer/wire"
	"sheaf/peer/wire/wiretest"
)

func FuzzMessages(f *testing.F) {
	wiretest.Fuzz(f, "../peer/testdata/vectors", map[wire.Type]func() wire.Message{
		wire.TBatch:      func() wire.Message { return &batchMessage{Kind: wire.TBatch} },
		wire.TSend:       func() wire.Message { return &batchMessage{Kind: wire.TSend} },
		wire.TEntries:    func() wire.Message { return new(indexedEntries) },
		wire.TAccepted:   func() wire.Message { return new(acceptedMessage) },
		wire.TRedirect:   func() wire.Message { return new(redirectMessage) },
		wire.TChunk:      func() wire.Message { return new(chunkMessage) },
		wire.TEntryError: func() wire.Message { return new(errorMessage) },
		wire.TEntryMeta:  func() wire.Message { return new(metaMessage) },
		wire.TAlive:      func() wire.Message { return new(aliveMessage) },
	})
}
