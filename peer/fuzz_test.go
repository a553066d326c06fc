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
	for t, m := range map[wire.Type]func() wire.Message{
		wire.TAppend:       func() wire.Message { return &PutRequest{Append: true} },
		wire.TCopy:         func() wire.Message { return &CopyRequest{Kind: wire.TCopy} },
		wire.TRename:       func() wire.Message { return &CopyRequest{Kind: wire.TRename} },
		wire.TPrefetch:     func() wire.Message { return &NamesRequest{Kind: wire.TPrefetch} },
		wire.TVersions:     func() wire.Message { return &NamesRequest{Kind: wire.TVersions} },
		wire.TPrefetched:   func() wire.Message { return new(PrefetchedMessage) },
		wire.TMountpaths:   func() wire.Message { return new(MountpathsMessage) },
		wire.TMountpathSet: func() wire.Message { return new(MountpathSetRequest) },
		wire.TStage:        func() wire.Message { return new(StageRequest) },
		wire.TStaged:       func() wire.Message { return new(StagedMessage) },
		wire.TCommit:       func() wire.Message { return new(CommitMessage) },
		wire.TTombstone:    func() wire.Message { return new(TombstoneRequest) },
		wire.TVersionList:  func() wire.Message { return new(VersionListMessage) },
		wire.TReplicate:    func() wire.Message { return new(ReplicateRequest) },
		wire.TReplicated:   func() wire.Message { return new(ReplicatedMessage) },
		wire.TSettled:      func() wire.Message { return new(SettledMessage) },
		wire.TBucketSet:    func() wire.Message { return new(BucketSet) },
		wire.TLeave:        func() wire.Message { return new(LeaveRequest) },
	} {
		all[t] = m
	}
	for _, k := range []wire.Type{wire.TMap, wire.TMapPush, wire.TJoin} {
		all[k] = func() wire.Message { return &MapMessage{Kind: k, Map: &Map{}} }
	}
	for _, k := range []wire.Type{wire.TBucket, wire.TBucketCreate, wire.TBucketDestroy, wire.TBucketShow} {
		all[k] = func() wire.Message { return &BucketMessage{Kind: k} }
	}
	for _, k := range []wire.Type{wire.TGet, wire.THead, wire.TDelete, wire.TMembers, wire.TEvict} {
		all[k] = func() wire.Message { return &ObjectRequest{Kind: k} }
	}
	wiretest.Fuzz(f, "testdata/vectors", all)
}
