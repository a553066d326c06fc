package fusefs

import (
	"context"
	"slices"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"sheaf/internal/names"
	"sheaf/peer"
)

// dirHandle lists a folder page by page: one page is in memory, whatever the
// folder's size. The kernel's READDIRPLUS is answered from the page, without a call
// an entry. go-fuse calls one method at a time.
type dirHandle struct {
	d *dirNode

	page   []dirEntry
	next   int         // of page
	token  string      // of the following page; "" after the last
	loaded bool        // a page was read since the begin or a seek
	at     time.Time   // when page was asked for
	starts []pageStart // of the pages met so far, for seeks
}

// dirEntry is one name in a folder.
type dirEntry struct {
	name string
	dir  bool
	info peer.ObjectInfo // of an object
}

// pageStart is where a page begins: how many entries were before it, and the token
// that the page before it gave.
type pageStart struct {
	before uint64
	token  string
}

var (
	_ fs.FileReaddirenter = (*dirHandle)(nil)
	_ fs.FileLookuper     = (*dirHandle)(nil)
	_ fs.FileSeekdirer    = (*dirHandle)(nil)
)

// Readdirent gives the next entry, nil after the last. go-fuse numbers them: the
// offset of an entry is how many were given up to it.
func (h *dirHandle) Readdirent(ctx context.Context) (*fuse.DirEntry, syscall.Errno) {
	for h.next == len(h.page) {
		if h.loaded && h.token == "" {
			return nil, 0
		}
		if err := h.load(ctx); err != nil {
			return nil, h.d.f.errno(ctx, "list", err)
		}
	}
	e := &h.page[h.next]
	h.next++
	object := h.d.prefix + e.name
	if e.dir {
		return &fuse.DirEntry{Name: e.name, Mode: syscall.S_IFDIR, Ino: dirID(h.d.bucket, object+"/").Ino}, 0
	}
	return &fuse.DirEntry{Name: e.name, Mode: syscall.S_IFREG, Ino: fileID(h.d.bucket, object, "", 0).Ino}, 0
}

// load reads the next page.
func (h *dirHandle) load(ctx context.Context) error {
	h.d.f.m.ops.WithLabelValues("readdir_page").Inc()
	start := &h.starts[len(h.starts)-1]
	if h.loaded {
		start = &pageStart{before: start.before + uint64(len(h.page)), token: h.token}
	}
	at := time.Now()
	p, err := h.d.f.tree.List(ctx, h.d.bucket, peer.ListOptions{Prefix: h.d.prefix, Delimiter: "/", Token: start.token})
	if err != nil {
		return err
	}
	page, unsure := entriesOf(p, h.d.prefix)
	for _, name := range unsure {
		isDir, err := h.d.f.isDir(ctx, h.d.bucket, h.d.prefix+name)
		if err != nil {
			return err
		}
		if isDir {
			page = slices.DeleteFunc(page, func(e dirEntry) bool { return !e.dir && e.name == name })
		}
	}
	if h.loaded {
		h.starts = append(h.starts, *start)
	}
	h.page, h.next, h.token, h.at, h.loaded = page, 0, p.Token, at, true
	return nil
}

// entriesOf turns a page of a listing into names of a folder: what can't be a file
// name is left out, and so is an object whose folder is in the same page. Of an
// object whose folder may only come with a later page the name is in unsure: "a"
// sorts before "a-x", and that before "a/".
func entriesOf(p *peer.ListPage, prefix string) (entries []dirEntry, unsure []string) {
	last := ""
	entries = make([]dirEntry, 0, len(p.Objects)+len(p.Prefixes))
	dirs := make(map[string]bool, len(p.Prefixes))
	for _, full := range p.Prefixes {
		last = max(last, full)
		name := strings.TrimSuffix(strings.TrimPrefix(full, prefix), "/")
		if isName(name) {
			dirs[name] = true
			entries = append(entries, dirEntry{name: name, dir: true})
		}
	}
	if n := len(p.Objects); n > 0 {
		last = max(last, p.Objects[n-1].Name)
	}
	for _, o := range p.Objects {
		name := strings.TrimPrefix(o.Name, prefix)
		if !isName(name) || dirs[name] {
			continue
		}
		entries = append(entries, dirEntry{name: name, info: o})
		if p.Token != "" && strings.HasPrefix(last, o.Name) && last < o.Name+"/" {
			unsure = append(unsure, name)
		}
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].name < entries[j].name })
	return entries, unsure
}

// isName tells whether a part of an object's name can be a file's.
func isName(s string) bool {
	return s != "" && len(s) <= nameMax && s != "." && s != ".." && !strings.ContainsAny(s, "/\x00")
}

// Lookup gives the node of an entry that was just listed.
func (h *dirHandle) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	i := h.next - 1
	if i < 0 || h.page[i].name != name {
		i = sort.Search(len(h.page), func(i int) bool { return h.page[i].name >= name })
	}
	// After an interrupted listing the kernel asks for older entries, which may be of
	// a page that is gone; and the name of a shard's folder means the folder.
	shard, at := strings.CutSuffix(name, "@")
	if i >= len(h.page) || h.page[i].name != name || at && names.IsShard(shard) {
		return h.d.Lookup(ctx, name, out)
	}
	e := &h.page[i]
	if e.dir {
		h.d.f.entryOut(out)
		h.d.f.dirAttr(&out.Attr)
		return h.d.f.dirChild(ctx, &h.d.Inode, name, h.d.bucket, h.d.prefix+name+"/"), 0
	}
	return h.d.object(ctx, name, e.info, h.at, out), 0
}

// Seekdir goes to where off entries were given, by reading their page again.
func (h *dirHandle) Seekdir(ctx context.Context, off uint64) syscall.Errno {
	k := sort.Search(len(h.starts), func(i int) bool { return h.starts[i].before > off }) - 1
	h.starts = h.starts[:k+1]
	h.page, h.next, h.token, h.loaded = nil, 0, "", false
	for n := h.starts[k].before; n < off; n++ {
		e, errno := h.Readdirent(ctx)
		if errno != 0 || e == nil {
			return errno
		}
	}
	return 0
}
