package batching

import (
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
	"sheaf/peer/wire/wiretest"
)

func TestVectors(t *testing.T) {
	check := func(name string, m wire.Message, payload []byte, fresh func() wire.Message) {
		wiretest.Check(t, "../peer/testdata/vectors", name, m, payload, fresh)
	}
	check("batch", &batchMessage{Kind: wire.TBatch, ID: "b-1", N: 2, Bucket: "b", Format: "tar", NoStrm: true, Onob: true, Coer: true, MaxSoft: -1, Coloc: 2,
		Timeout: 90 * time.Second, Here: true, MapVers: 4}, nil, func() wire.Message { return &batchMessage{Kind: wire.TBatch} })
	check("send", &batchMessage{Kind: wire.TSend, ID: "b-1", N: 2, Bucket: "b", DT: "n1", MapVers: 4}, nil, func() wire.Message { return &batchMessage{Kind: wire.TSend} })
	check("send_wait", &batchMessage{Kind: wire.TSend, ID: "b-1", N: 2, Bucket: "b", DT: "n1", MapVers: 4, Wait: 10 * time.Second}, nil, func() wire.Message { return &batchMessage{Kind: wire.TSend} })
	check("alive", &aliveMessage{}, nil, func() wire.Message { return new(aliveMessage) })
	in := []Entry{{ObjName: "a"}, {Bucket: "c", ObjName: "s.tar", ArchPath: "m/n", Start: 10, Length: -1}}
	check("entries", &entriesMessage{Entries: in, Index: []uint32{0, 0}}, nil, func() wire.Message { return new(entriesMessage) })
	check("entries_share", &indexedEntries{entriesMessage{Indexed: true, Entries: in, Index: []uint32{5, 65535}}}, nil, func() wire.Message { return new(indexedEntries) })
	check("accepted", &acceptedMessage{ID: "b-1", DT: "n3", N: 2}, nil, func() wire.Message { return new(acceptedMessage) })
	check("redirect", &redirectMessage{Name: "n2", Addr: "10.0.0.2:7070"}, nil, func() wire.Message { return new(redirectMessage) })
	check("chunk_whole", &chunkMessage{Index: 0, Size: 5, Version: 1 << 60, Sum: 1 << 63, Last: true}, []byte("hello"), func() wire.Message { return new(chunkMessage) })
	check("chunk_first", &chunkMessage{Index: 3, Size: 300_000, Version: 8}, make([]byte, 70), func() wire.Message { return new(chunkMessage) })
	check("chunk_last", &chunkMessage{Index: 3, Sum: 0x1122334455667788, Last: true}, []byte{1}, func() wire.Message { return new(chunkMessage) })
	check("chunk_empty", &chunkMessage{Index: 9, Version: 1, Sum: 0x2d06800538d394c2, Last: true}, nil, func() wire.Message { return new(chunkMessage) })
	check("entry_error", &errorMessage{Index: 7, End: wire.End{Code: uint64(errs.NotFound), Op: "open", Bucket: "b", Object: "o", Node: "n2"}}, nil, func() wire.Message { return new(errorMessage) })
	check("entry_meta", &metaMessage{Index: []uint64{0, 1}, Metas: []Meta{{Size: 10, Version: 3}, {Err: errs.New(errs.NotFound, "", "gone")}}}, nil, func() wire.Message { return new(metaMessage) })
}

// indexedEntries compares a share with what decoding gives: whether indexes were
// written isn't kept.
type indexedEntries struct{ entriesMessage }

func (m *indexedEntries) Field(key string, d *wire.Decoder) {
	m.entriesMessage.Field(key, d)
	m.Indexed = true
}
