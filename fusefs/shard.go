package fusefs

import (
	"context"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"sheaf/internal/names"
	"sheaf/peer"
)

// shard knows the members of one shard. Its folder and all folders below share it.
type shard struct {
	f              *FS
	bucket, object string
	fetching       chan struct{} // held by the one who asks the cluster

	mu  sync.Mutex
	tab *memberTable
	at  time.Time // when the cluster last said that tab is current
}

func newShard(f *FS, bucket, object string) *shard {
	return &shard{f: f, bucket: bucket, object: object, fetching: make(chan struct{}, 1)}
}

// memberTable is a shard's members as a tree. It never changes.
type memberTable struct {
	version uint64
	root    *memberEntry
}

// memberEntry is a member, or a folder that a member's name implies. A folder hides
// a member of its name.
type memberEntry struct {
	size     int64
	mtime    time.Time
	children map[string]*memberEntry
	order    []string // the children's names, sorted
}

func (e *memberEntry) dir() bool { return e.children != nil }

func newMemberTable(version uint64, members []peer.MemberInfo) *memberTable {
	root := &memberEntry{children: map[string]*memberEntry{}}
	for _, m := range members {
		parts := strings.Split(m.Name, "/")
		if names.CheckMember(m.Name) != nil || slices.ContainsFunc(parts, func(p string) bool { return !isName(p) }) {
			continue
		}
		d := root
		for _, p := range parts[:len(parts)-1] {
			sub := d.children[p]
			if sub == nil || !sub.dir() {
				sub = &memberEntry{children: map[string]*memberEntry{}}
				d.children[p] = sub
			}
			d = sub
		}
		base := parts[len(parts)-1]
		if old := d.children[base]; old == nil || !old.dir() {
			d.children[base] = &memberEntry{size: m.Size, mtime: m.ModTime}
		}
	}
	root.sort()
	return &memberTable{version: version, root: root}
}

// sort goes as deep as names.MaxMember allows.
func (e *memberEntry) sort() {
	for name, c := range e.children {
		e.order = append(e.order, name)
		c.sort()
	}
	slices.Sort(e.order)
}

// find gives the entry of a path without a trailing slash; nil when there is none.
func (t *memberTable) find(path string) *memberEntry {
	e := t.root
	for path != "" && e != nil {
		var part string
		part, path, _ = strings.Cut(path, "/")
		e = e.children[part]
	}
	return e
}

// table gives the members of the shard's version of at most AttrTimeout ago. The
// members are asked for once a version.
func (s *shard) table(ctx context.Context) (*memberTable, error) {
	if t, ok := s.fresh(); ok {
		return t, nil
	}
	if !acquire(ctx, s.fetching) {
		return nil, ctx.Err()
	}
	defer func() { <-s.fetching }()
	old, ok := s.fresh()
	if ok {
		return old, nil
	}
	at := time.Now()
	if old != nil {
		info, err := s.f.objects.Head(ctx, s.bucket, s.object)
		if err != nil {
			return nil, err
		}
		if info.Version == old.version {
			s.keep(old, at)
			return old, nil
		}
	}
	info, members, err := s.f.tree.Members(ctx, s.bucket, s.object)
	if err != nil {
		return nil, err
	}
	t := newMemberTable(info.Version, members)
	s.keep(t, at)
	return t, nil
}

func (s *shard) fresh() (*memberTable, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.f.opt.AttrTimeout
	return s.tab, s.tab != nil && t > 0 && time.Since(s.at) < t+freshSlack
}

func (s *shard) keep(t *memberTable, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tab, s.at = t, at
}

// shardNode is a shard's folder, or one inside it.
type shardNode struct {
	fs.Inode
	readOnly
	f     *FS
	shard *shard
	path  string // inside the shard; "" is the shard's own folder
}

var (
	_ fs.NodeLookuper  = (*shardNode)(nil)
	_ fs.NodeReaddirer = (*shardNode)(nil)
	_ fs.NodeGetattrer = (*shardNode)(nil)
)

func (d *shardNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	d.f.dirAttr(&out.Attr)
	out.SetTimeout(d.f.opt.AttrTimeout)
	return 0
}

func (d *shardNode) join(name string) string {
	if d.path == "" {
		return name
	}
	return d.path + "/" + name
}

func (d *shardNode) folderID(name string) fs.StableAttr {
	return identity(syscall.S_IFDIR, "shard", d.shard.bucket, d.shard.object, d.join(name))
}

func (d *shardNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	d.f.m.ops.WithLabelValues("lookup").Inc()
	at := time.Now()
	t, err := d.shard.table(ctx)
	if err != nil {
		return nil, d.f.errno(ctx, "members", err)
	}
	here := t.find(d.path)
	if here == nil || here.children[name] == nil {
		return nil, syscall.ENOENT
	}
	d.f.entryOut(out)
	e, member := here.children[name], d.join(name)
	if e.dir() {
		d.f.dirAttr(&out.Attr)
		return child(ctx, &d.Inode, name, d.folderID(name), func() fs.InodeEmbedder {
			return &shardNode{f: d.f, shard: d.shard, path: member}
		}), 0
	}
	ch := child(ctx, &d.Inode, name, fileID(d.shard.bucket, d.shard.object, member, t.version), func() fs.InodeEmbedder {
		return &fileNode{
			f: d.f, bucket: d.shard.bucket, object: d.shard.object, member: member, shard: d.shard,
			v: version{e.size, t.version, e.mtime},
		}
	})
	ch.Operations().(*fileNode).confirm(at)
	d.f.fileAttr(&out.Attr, e.size, e.mtime)
	return ch, 0
}

// Readdir lists from the table; go-fuse then looks each entry up in it, which costs
// no call.
func (d *shardNode) Readdir(ctx context.Context) (fs.DirStream, syscall.Errno) {
	d.f.m.ops.WithLabelValues("readdir").Inc()
	t, err := d.shard.table(ctx)
	if err != nil {
		return nil, d.f.errno(ctx, "members", err)
	}
	here := t.find(d.path)
	if here == nil || !here.dir() {
		return nil, syscall.ENOENT
	}
	entries := make([]fuse.DirEntry, len(here.order))
	for i, name := range here.order {
		if here.children[name].dir() {
			entries[i] = fuse.DirEntry{Name: name, Mode: syscall.S_IFDIR, Ino: d.folderID(name).Ino}
		} else {
			entries[i] = fuse.DirEntry{Name: name, Mode: syscall.S_IFREG, Ino: fileID(d.shard.bucket, d.shard.object, d.join(name), 0).Ino}
		}
	}
	return fs.NewListDirStream(entries), 0
}
