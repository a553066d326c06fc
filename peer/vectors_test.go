package peer

import (
	"strings"
	"testing"
	"time"

	"sheaf/peer/wire"
	"sheaf/peer/wire/wiretest"
)

func TestVectors(t *testing.T) {
	at := time.Unix(0, 1_700_000_000_123_456_789)
	check := func(name string, m wire.Message, payload []byte, fresh func() wire.Message) {
		wiretest.Check(t, "testdata/vectors", name, m, payload, fresh)
	}
	check("hello", &wire.Hello{Version: 1, Caps: []string{"x1", "x2"}, Node: "n1", Cluster: "00ff", MapVersion: 3}, nil, func() wire.Message { return new(wire.Hello) })
	check("hello_client", &wire.Hello{Version: 1}, nil, func() wire.Message { return new(wire.Hello) })
	check("end", &wire.End{}, nil, func() wire.Message { return new(wire.End) })
	check("end_counts", &wire.End{Entries: 128, Failed: 2, Bytes: 1 << 33, Sum: 0xdeadbeefcafef00d}, nil, func() wire.Message { return new(wire.End) })
	check("end_error", &wire.End{Code: 1, Op: "get", Bucket: "b", Object: "dir/ö", Member: "m", Node: "n2", Msg: "gone", Retry: 250}, nil, func() wire.Message { return new(wire.End) })

	check("end_entry", &wire.End{Code: 8, Op: "entry 6", Bucket: "b", Object: "o", Entry: 7}, nil, func() wire.Message { return new(wire.End) })

	m := NewMap("00ff", 7, []Node{{Name: "n2", Addr: "127.0.0.1:7071", Epoch: 9}, {Name: "n1", Addr: "host:7070", Admin: "127.0.0.1:80", Weight: 2, Epoch: 1 << 60}})
	for name, kind := range map[string]wire.Type{"map": wire.TMap, "map_push": wire.TMapPush, "join": wire.TJoin} {
		check(name, &MapMessage{Kind: kind, Map: m}, nil, func() wire.Message { return &MapMessage{Kind: kind} })
	}
	for name, kind := range map[string]wire.Type{"map_get": wire.TMapGet, "bucket_list": wire.TBucketList, "status": wire.TStatus} {
		check(name, &Ask{Kind: kind}, nil, func() wire.Message { return &Ask{Kind: kind} })
	}
	check("bucket", &BucketMessage{Kind: wire.TBucket, Name: "photos", Provider: "sheaf", Created: at, Epoch: 12, Deleted: true}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucket} })
	check("bucket_create", &BucketMessage{Kind: wire.TBucketCreate, Name: "photos"}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucketCreate} })
	check("bucket_destroy", &BucketMessage{Kind: wire.TBucketDestroy, Name: "photos", Force: true}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucketDestroy} })
	states := NewMap("00ff", 8, []Node{{Name: "n1", Addr: "a:1", Epoch: 9}, {Name: "n2", Addr: "a:2", Epoch: 9, State: Leaving},
		{Name: "n3", Addr: "a:3", Epoch: 9, State: Down}, {Name: "n4", Addr: "a:4", Epoch: 9, State: Left}})
	for name, kind := range map[string]wire.Type{"map_states": wire.TMap, "map_push_states": wire.TMapPush, "join_states": wire.TJoin} {
		check(name, &MapMessage{Kind: kind, Map: states}, nil, func() wire.Message { return &MapMessage{Kind: kind} })
	}
	props := BucketProps{Copies: 3, Durability: Relaxed, Backend: "s3://b?region=x", Validate: true}
	check("bucket_props", &BucketMessage{Kind: wire.TBucket, Name: "photos", Provider: "sheaf", Created: at, Epoch: 12, Props: props}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucket} })
	check("bucket_create_props", &BucketMessage{Kind: wire.TBucketCreate, Name: "photos", Props: props}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucketCreate} })
	check("bucket_set_all", NewBucketSet("photos", BucketChange{&props.Copies, &props.Durability, &props.Backend, &props.Validate}), nil, func() wire.Message { return new(BucketSet) })
	check("bucket_show", &BucketMessage{Kind: wire.TBucketShow, Name: "photos"}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucketShow} })
	check("bucket_set", NewBucketSet("photos", BucketChange{Copies: &props.Copies, Validate: new(bool)}), nil, func() wire.Message { return new(BucketSet) })
	for name, kind := range map[string]wire.Type{"get": wire.TGet, "head": wire.THead, "delete": wire.TDelete, "members": wire.TMembers} {
		check(name, &ObjectRequest{Kind: kind, Bucket: "b", Object: "s.tar", Member: "a/b", Start: 300, Length: -1, Forwarded: true}, nil, func() wire.Message { return &ObjectRequest{Kind: kind} })
	}
	check("put", &PutRequest{Bucket: "b", Object: strings.Repeat("o", 300), Size: 70000, Sized: true, Sum: 1 << 63, Summed: true}, nil, func() wire.Message { return new(PutRequest) })
	check("data", &Data{}, []byte("payload"), func() wire.Message { return new(Data) })
	check("object", &ObjectMessage{Name: "o", Size: 5, Version: 1 << 62, Checksum: 77, ModTime: at}, nil, func() wire.Message { return new(ObjectMessage) })
	check("list", &ListRequest{Bucket: "b", Options: ListOptions{Prefix: "p/", Delimiter: "/", StartAfter: "p/a", Limit: 1000}}, nil, func() wire.Message { return new(ListRequest) })
	check("names", &NamesMessage{Objects: []ObjectInfo{{Name: "p/b", Size: 1, Version: 2, Checksum: 3, ModTime: at}}, Prefixes: []string{"p/c/"}, Token: "p/c/"}, nil, func() wire.Message { return new(NamesMessage) })
	check("table", &TableMessage{Members: []MemberInfo{{Name: "x", Size: 9, ModTime: at}, {Name: "y/z", Size: 1 << 40, ModTime: at}}}, nil, func() wire.Message { return new(TableMessage) })
	check("node_status", &NodeStatus{Name: "n1", Version: "0.1.0", MapVersion: 2, UptimeMS: 99, Total: 1 << 40, Free: 1 << 39, MountpathCount: 2, Batches: 3, Senders: 4}, nil, func() wire.Message { return new(NodeStatus) })

	attrs := map[string]string{"label": "cat", "Ünïcode": "ö", "empty": ""}
	check("put_if", &PutRequest{Bucket: "b", Object: "o", Size: 7, Sized: true, Forwarded: true, IfAbsent: true, IfVersion: 1 << 62, Attrs: attrs}, nil, func() wire.Message { return new(PutRequest) })
	check("append", &PutRequest{Append: true, Bucket: "b", Object: "o", Size: 7, Sized: true, Sum: 1 << 63, Summed: true, Forwarded: true, IfAbsent: true, IfVersion: 1 << 62, Attrs: attrs}, nil,
		func() wire.Message { return &PutRequest{Append: true} })
	check("delete_if", &ObjectRequest{Kind: wire.TDelete, Bucket: "b", Object: "o", IfVersion: 1 << 62}, nil, func() wire.Message { return &ObjectRequest{Kind: wire.TDelete} })
	check("evict", &ObjectRequest{Kind: wire.TEvict, Bucket: "b", Object: "o", Forwarded: true}, nil, func() wire.Message { return &ObjectRequest{Kind: wire.TEvict} })
	for name, kind := range map[string]wire.Type{"copy": wire.TCopy, "rename": wire.TRename} {
		check(name, &CopyRequest{Kind: kind, From: ObjectName{"b", "o"}, To: ObjectName{"c", "p/q"}, Forwarded: true, IfAbsent: true, IfVersion: 9}, nil, func() wire.Message { return &CopyRequest{Kind: kind} })
	}
	check("prefetch", &NamesRequest{Kind: wire.TPrefetch, Bucket: "b", Names: []string{"o", "p/q"}, Forwarded: true}, nil, func() wire.Message { return &NamesRequest{Kind: wire.TPrefetch} })
	check("prefetched", &PrefetchedMessage{Started: 2}, nil, func() wire.Message { return new(PrefetchedMessage) })
	check("object_attrs", &ObjectMessage{Name: "o", Size: 5, Version: 1 << 62, Checksum: 77, ModTime: at, Attrs: attrs}, nil, func() wire.Message { return new(ObjectMessage) })
	check("list_token", &ListRequest{Bucket: "b", Options: ListOptions{Token: "opaque", Tombstones: true}, Forwarded: true}, nil, func() wire.Message { return new(ListRequest) })
	check("names_deleted", &NamesMessage{Objects: []ObjectInfo{{Name: "a", Size: 1, Version: 2, Checksum: 3, ModTime: at, Attrs: attrs}}, Token: "opaque",
		Deleted: []ObjectInfo{{Name: "b", Version: 4, ModTime: at}}}, nil, func() wire.Message { return new(NamesMessage) })
	check("names_deleted_prefixes", &NamesMessage{Prefixes: []string{"c/"}, DeletedPrefixes: []string{"c/", "d/"}}, nil, func() wire.Message { return new(NamesMessage) })

	check("node_status_tasks", &NodeStatus{Name: "n1", Version: "0.1.0", MapVersion: 2, UptimeMS: 99, Total: 1 << 40, Free: 1 << 39, MountpathCount: 2, Batches: 3, Senders: 4,
		State: Leaving, MapHash: 1 << 63, Settled: true, Objects: 1 << 33, TombstonesKept: 5,
		Reconcile: TaskStatus{Active: true, Objects: 1, Bytes: 2, Moved: 3, Failed: 4, Started: at}, Scrub: TaskStatus{Objects: 9, Finished: at}, Resilver: TaskStatus{Active: true},
		Mountpaths: []MountpathStatus{{Dir: "/mnt/a", ID: "00ff", Enabled: true, Free: 1, Total: 2, Objects: 3}, {Dir: "/mnt/b", Err: "input/output error"}}}, nil, func() wire.Message { return new(NodeStatus) })
	for name, kind := range map[string]wire.Type{"map_node": wire.TMap, "map_push_node": wire.TMapPush, "join_node": wire.TJoin} {
		check(name, &MapMessage{Kind: kind, Map: NewMap("00ff", 1, []Node{{Name: "n1", Addr: "a:1", Epoch: 9}}), Node: "n1"}, nil, func() wire.Message { return &MapMessage{Kind: kind} })
	}
	check("leave_force", &LeaveRequest{Node: "n3", Force: true}, nil, func() wire.Message { return new(LeaveRequest) })
	for name, kind := range map[string]wire.Type{"leave": wire.TLeave, "rebalance": wire.TRebalance, "mountpath_list": wire.TMountpathList} {
		check(name, &Ask{Kind: kind}, nil, func() wire.Message { return &Ask{Kind: kind} })
	}
	check("mountpaths", &MountpathsMessage{Mountpaths: []MountpathStatus{{Dir: "/mnt/b", ID: "00ff", Enabled: true, Err: "input/output error", Free: 1, Total: 2, Objects: 3}}}, nil, func() wire.Message { return new(MountpathsMessage) })
	check("mountpath_set", &MountpathSetRequest{Dir: "/mnt/b", Enabled: true}, nil, func() wire.Message { return new(MountpathSetRequest) })

	check("stage_version", &StageRequest{Bucket: "b", Object: "o", ModTime: at, Version: 1 << 60}, nil, func() wire.Message { return new(StageRequest) })
	check("stage", &StageRequest{Bucket: "b", Object: "o", Size: 7, Sized: true, Sum: 1 << 63, Summed: true, ModTime: at, Relaxed: true, Attrs: attrs}, nil, func() wire.Message { return new(StageRequest) })
	check("staged", &StagedMessage{Size: 7, Sum: 1 << 63, High: VersionInfo{Version: 1 << 62, Deleted: true, Size: 8, Checksum: 9}}, nil, func() wire.Message { return new(StagedMessage) })
	check("commit", &CommitMessage{Version: 1 << 62}, nil, func() wire.Message { return new(CommitMessage) })
	check("tombstone", &TombstoneRequest{Bucket: "b", Object: "o", Version: 1 << 62}, nil, func() wire.Message { return new(TombstoneRequest) })
	check("versions", &NamesRequest{Kind: wire.TVersions, Bucket: "b", Names: []string{"o", "p", "q"}}, nil, func() wire.Message { return &NamesRequest{Kind: wire.TVersions} })
	check("version_list", &VersionListMessage{Versions: []VersionInfo{{Version: 1, Size: 5, Checksum: 1 << 63}, {}, {Version: 3, Deleted: true}}}, nil, func() wire.Message { return new(VersionListMessage) })
	check("replicate", &ReplicateRequest{Bucket: "b", Info: ObjectInfo{Name: "o", Size: 5, Version: 1 << 62, Checksum: 77, ModTime: at, Attrs: attrs}}, nil, func() wire.Message { return new(ReplicateRequest) })
	check("replicate_deleted", &ReplicateRequest{Bucket: "b", Info: ObjectInfo{Name: "o", Version: 1 << 62, ModTime: at}, Deleted: true}, nil, func() wire.Message { return new(ReplicateRequest) })
	check("version_list_placed", &VersionListMessage{Versions: []VersionInfo{{Version: 1 << 62}}, Placement: 1 << 63}, nil, func() wire.Message { return new(VersionListMessage) })
	check("replicated_placed", &ReplicatedMessage{Version: 1 << 62, Placement: 1 << 63}, nil, func() wire.Message { return new(ReplicatedMessage) })
	check("settled", &SettledMessage{Node: "n2", Placement: 1 << 63, Walked: 78, Settled: 77}, nil, func() wire.Message { return new(SettledMessage) })
	check("bucket_placed", &BucketMessage{Kind: wire.TBucket, Name: "photos", Provider: "sheaf", Created: at, Epoch: 12, Placed: 12, Props: props}, nil, func() wire.Message { return &BucketMessage{Kind: wire.TBucket} })
	check("replicated", &ReplicatedMessage{Version: 1 << 62}, nil, func() wire.Message { return new(ReplicatedMessage) })
	check("replicated_error", &ReplicatedMessage{Version: 3, End: wire.End{Code: 7, Op: "put", Bucket: "b", Object: "o", Member: "m", Node: "n2", Msg: "full"}}, nil, func() wire.Message { return new(ReplicatedMessage) })
}
