package peer

import (
	"testing"

	"sheaf/peer/wire"
	"sheaf/peer/wire/wiretest"
)

func FuzzMessages(f *testing.F) {
	all := map[wire.Type]func() wire.Message{
		wire.TPut:        func() wire.Message { return new(PutRequest) },
		wire.TObject:     func() wire.Message { return new(ObjectMessage) },
		wire.TList:       func() wire.Message { return new(ListRequest) },
		wire.TNames:      func() wire.Message { return new(NamesMessage) },
		wire.TTable:      func() wire.Message { return new(TableMessage) },
		wire.TNodeStatus: func() wire.Message { return new(NodeStatus) },
	}
	for _, k := range []wire.Type{wire.TMap, wire.TMapPush, wire.TJoin} {
		all[k] = func() wire.Message { return &MapMessage{Kind: k, Map: &Map{}} }
	}
	for _, k := range []wire.Type{wire.TBucket, wire.TBucketCreate, wire.TBucketDestroy} {
		all[k] = func() wire.Message { return &BucketMessage{Kind: k} }
	}
	for _, k := range []wire.Type{wire.TGet, wire.THead, wire.TDelete, wire.TMembers} {
		all[k] = func() wire.Message { return &ObjectRequest{Kind: k} }
	}
	wiretest.Fuzz(f, "testdata/vectors", all)
}
