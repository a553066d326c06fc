package server_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"testing"

	"sheaf/internal/errs"
	"sheaf/internal/testcluster"
	"sheaf/peer"
	"sheaf/peer/wire"
)

// scope says what a call's rights are about.
type scope int

const (
	always   scope = iota // the role alone counts
	inBucket              // the role, in the bucket that the call names
	all                   // the role, and no restriction
)

// callRow says who may make a call. make gives the frames of one that does no harm
// where it is allowed, about a bucket.
type callRow struct {
	need  peer.Role
	scope scope
	make  func(bucket string) []wire.Message
}

// one is a call of one frame.
func one(m func(bucket string) wire.Message) func(string) []wire.Message {
	return func(b string) []wire.Message { return []wire.Message{m(b)} }
}

func ask(kind wire.Type) func(string) []wire.Message {
	return one(func(string) wire.Message { return &peer.Ask{Kind: kind} })
}

func objectCall(kind wire.Type) func(string) []wire.Message {
	return one(func(b string) wire.Message { return &peer.ObjectRequest{Kind: kind, Bucket: b, Object: "none"} })
}

func copyCall(kind wire.Type) func(string) []wire.Message {
	return one(func(b string) wire.Message {
		return &peer.CopyRequest{Kind: kind, From: peer.ObjectName{Bucket: b, Object: "none"}, To: peer.ObjectName{Bucket: b, Object: "o"}}
	})
}

// raw is a message written by hand, for those whose types another package keeps to itself.
type raw struct {
	kind   wire.Type
	fields func(e *wire.Encoder)
}

func (m *raw) Type() wire.Type               { return m.kind }
func (m *raw) Encode(e *wire.Encoder)        { m.fields(e) }
func (*raw) Field(_ string, d *wire.Decoder) { d.Skip() }

func batch(kind wire.Type) func(string) []wire.Message {
	return func(b string) []wire.Message {
		return []wire.Message{
			&raw{kind, func(e *wire.Encoder) {
				e.Str("id", "rights")
				e.Uint("n", 2)
				e.Str("bucket", "open")
				e.Bool("coer", true)
				e.Bool("here", true)
			}},
			&raw{wire.TEntries, func(e *wire.Encoder) {
				e.Maps("in", 2, func(i int) {
					if i == 1 {
						e.Str("bucket", b) // the second entry's bucket counts as well
					}
					e.Str("objname", "none")
				})
			}},
		}
	}
}

func state(kind wire.Type) func(string) []wire.Message {
	return func(string) []wire.Message {
		return []wire.Message{&peer.MapMessage{Kind: kind, Map: peer.NewMap("", 0, nil)}, &wire.End{}}
	}
}

// body is a call whose payload is empty.
func body(m func(bucket string) wire.Message) func(string) []wire.Message {
	return func(b string) []wire.Message {
		return []wire.Message{m(b), &wire.End{Sum: 0x2d06800538d394c2}} // the checksum of nothing
	}
}

var calls = map[wire.Type]callRow{
	wire.TMapGet:        {peer.Reader, always, ask(wire.TMapGet)},
	wire.TMapPush:       {peer.NodeRole, always, state(wire.TMapPush)},
	wire.TJoin:          {peer.NodeRole, always, state(wire.TJoin)},
	wire.TStatus:        {peer.Reader, always, ask(wire.TStatus)},
	wire.TBucketList:    {peer.Reader, always, ask(wire.TBucketList)},
	wire.TBucketShow:    {peer.Reader, inBucket, one(func(b string) wire.Message { return &peer.BucketMessage{Kind: wire.TBucketShow, Name: b} })},
	wire.TBucketCreate:  {peer.Writer, all, one(func(b string) wire.Message { return &peer.BucketMessage{Kind: wire.TBucketCreate, Name: b} })},
	wire.TBucketSet:     {peer.Writer, all, one(func(b string) wire.Message { return &peer.BucketSet{Name: b} })},
	wire.TBucketDestroy: {peer.Writer, all, one(func(b string) wire.Message { return &peer.BucketMessage{Kind: wire.TBucketDestroy, Name: b} })},
	wire.TPut:           {peer.Writer, inBucket, body(func(b string) wire.Message { return &peer.PutRequest{Bucket: b, Object: "o", IfVersion: 1} })},
	wire.TAppend: {peer.Writer, inBucket, body(func(b string) wire.Message {
		return &peer.PutRequest{Append: true, Bucket: b, Object: "o", IfVersion: 1}
	})},
	wire.TCopy:    {peer.Writer, inBucket, copyCall(wire.TCopy)},
	wire.TRename:  {peer.Writer, inBucket, copyCall(wire.TRename)},
	wire.TStage:   {peer.NodeRole, always, body(func(b string) wire.Message { return &peer.StageRequest{Bucket: b, Object: "o"} })},
	wire.TGet:     {peer.Reader, inBucket, objectCall(wire.TGet)},
	wire.THead:    {peer.Reader, inBucket, objectCall(wire.THead)},
	wire.TMembers: {peer.Reader, inBucket, objectCall(wire.TMembers)},
	wire.TDelete:  {peer.Writer, inBucket, objectCall(wire.TDelete)},
	wire.TList:    {peer.Reader, inBucket, one(func(b string) wire.Message { return &peer.ListRequest{Bucket: b} })},
	wire.TBatch:   {peer.Reader, inBucket, batch(wire.TBatch)},
	wire.TVersions: {peer.NodeRole, always, one(func(b string) wire.Message {
		return &peer.NamesRequest{Kind: wire.TVersions, Bucket: b, Names: []string{"none"}}
	})},
	wire.TTombstone: {peer.NodeRole, always, one(func(b string) wire.Message { return &peer.TombstoneRequest{Bucket: b, Object: "none", Version: 1} })},
	wire.TReplicate: {peer.NodeRole, always, body(func(b string) wire.Message {
		return &peer.ReplicateRequest{Bucket: b, Info: peer.ObjectInfo{Name: "none", Version: 1}, Deleted: true}
	})},
	wire.TEvict:         {peer.Writer, inBucket, objectCall(wire.TEvict)},
	wire.TPrefetch:      {peer.Reader, inBucket, one(func(b string) wire.Message { return &peer.NamesRequest{Kind: wire.TPrefetch, Bucket: b} })},
	wire.TSettled:       {peer.NodeRole, always, one(func(string) wire.Message { return &peer.SettledMessage{Node: "none"} })},
	wire.TMountpathList: {peer.Admin, always, ask(wire.TMountpathList)},
	wire.TMountpathSet:  {peer.Admin, always, one(func(string) wire.Message { return &peer.MountpathSetRequest{Dir: "none"} })},
	wire.TRebalance:     {peer.Admin, always, ask(wire.TRebalance)},
	wire.TLeave:         {peer.Admin, always, ask(wire.TLeave)},
	wire.TGossip:        {peer.NodeRole, always, one(func(string) wire.Message { return &raw{wire.TGossip, func(e *wire.Encoder) { e.Str("from", "x") }} })},
	wire.TSend:          {peer.NodeRole, always, batch(wire.TSend)},
}

// caller is a certificate with what it may do.
type caller struct {
	name   string
	rights peer.Rights
}

func callers() []caller {
	var out []caller
	for role := peer.Reader; role <= peer.NodeRole; role++ {
		out = append(out, caller{role.String(), peer.Rights{Role: role}})
	}
	for _, r := range []peer.Rights{
		{Role: peer.Reader, Buckets: map[string]peer.Role{"open": peer.Reader}},
		{Role: peer.Writer, Buckets: map[string]peer.Role{"open": peer.Writer}},
		{Role: peer.Writer, Buckets: map[string]peer.Role{"open": peer.Reader, "shut": peer.Writer}},
		{Role: peer.Writer, Buckets: map[string]peer.Role{"another": peer.Writer}},
	} {
		out = append(out, caller{fmt.Sprintf("%s-%d", r.Role, len(out)), r})
	}
	return out
}

// may is the rule, written down apart from the code that keeps it.
func (c caller) may(r callRow, bucket string) bool {
	if c.rights.Role < r.need {
		return false
	}
	switch {
	case c.rights.Buckets == nil || r.scope == always:
		return true
	case r.scope == all:
		return false
	}
	return c.rights.Buckets[bucket] >= r.need
}

// Every call by every kind of certificate: refused or let in as the table says. What
// comes of a call that is let in isn't the question here.
func TestRights(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "open", "shut")
	registered := c.Nodes[0].Calls()
	for kind, need := range registered {
		row, ok := calls[kind]
		if !ok {
			t.Errorf("call %d has no row in the table of rights", kind)
		} else if row.need != need {
			t.Errorf("call %d needs the role %s, the table says %s", kind, need, row.need)
		}
	}
	for kind := range calls {
		if _, ok := registered[kind]; !ok {
			t.Errorf("the table of rights has call %d, which no node answers", kind)
		}
	}
	for _, who := range callers() {
		dir := filepath.Join(t.TempDir(), "certs")
		must(t, peer.IssueRights(c.Certs, dir, peer.ClientName, who.name, who.rights))
		ep, err := peer.NewEndpoint(peer.EndpointOptions{Identity: testcluster.Identity(t, dir, peer.ClientName)})
		must(t, err)
		t.Cleanup(func() { _ = ep.Close() })
		for kind, row := range calls {
			for _, bucket := range []string{"open", "shut", "none"} {
				err := make1(t, ep, c.Endpoint(), row.make(bucket))
				if allowed := !errs.IsCode(err, errs.PermissionDenied); allowed != who.may(row, bucket) {
					t.Errorf("%s, call %d, bucket %s: %v", who.name, kind, bucket, err)
				}
			}
		}
	}
	for _, b := range []string{"open", "shut"} { // whoever was let in has destroyed or made them
		c.Bucket(t, b)
	}
}

// make1 makes one call and gives how it ended.
func make1(t *testing.T, ep *peer.Endpoint, addr string, frames []wire.Message) error {
	t.Helper()
	call, err := ep.Open(bounded(t), addr)
	must(t, err)
	defer call.Close()
	for _, m := range frames {
		must(t, call.W.Frame(m, nil))
	}
	must(t, call.CloseSend())
	for {
		if _, _, err := call.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// A restricted certificate learns nothing of other buckets, not even that they are there.
func TestRestrictedListing(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	c.Bucket(t, "open", "shut")
	dir := filepath.Join(t.TempDir(), "certs")
	must(t, peer.IssueRights(c.Certs, dir, peer.ClientName, "r", peer.Rights{Role: peer.Reader, Buckets: map[string]peer.Role{"open": peer.Reader, "none": peer.Reader}}))
	p, _ := testcluster.Client(t, testcluster.Identity(t, dir, peer.ClientName), c.Endpoint())
	list, err := p.Buckets(bounded(t))
	must(t, err)
	if len(list) != 1 || list[0].Name != "open" {
		t.Errorf("it sees %+v", list)
	}
	_, err = p.Head(bounded(t), "none", "o")
	fails(t, "a bucket of its own that isn't there", err, errs.BucketNotFound)
	for _, b := range []string{"shut", "nothing"} {
		_, err = p.Head(bounded(t), b, "o")
		fails(t, "bucket "+b, err, errs.PermissionDenied, "restricted", b)
	}
}

// A copy needs the right to read the first bucket and to write the second; a rename to
// write both.
func TestRightsOfCopies(t *testing.T) {
	c := testcluster.Start(t, testcluster.Options{Nodes: 1})
	buckets := []string{"read", "write", "none"}
	c.Bucket(t, buckets...)
	for _, b := range buckets {
		c.Put(t, b, "o", []byte("x"))
	}
	rights := map[string]peer.Role{"read": peer.Reader, "write": peer.Writer}
	dir := filepath.Join(t.TempDir(), "certs")
	must(t, peer.IssueRights(c.Certs, dir, peer.ClientName, "w", peer.Rights{Role: peer.Writer, Buckets: rights}))
	p, _ := testcluster.Client(t, testcluster.Identity(t, dir, peer.ClientName), c.Endpoint())
	for _, from := range buckets {
		for _, to := range buckets {
			for op, r := range map[string]struct {
				do   func(context.Context, peer.ObjectName, peer.ObjectName, peer.CopyOptions) (peer.ObjectInfo, error)
				need peer.Role
			}{"copy": {p.Copy, peer.Reader}, "rename": {p.Rename, peer.Writer}} {
				may := rights[from] >= r.need && rights[to] == peer.Writer
				_, err := r.do(bounded(t), peer.ObjectName{Bucket: from, Object: "o"}, peer.ObjectName{Bucket: to, Object: op}, peer.CopyOptions{})
				if may && err != nil || !may && !errs.IsCode(err, errs.PermissionDenied) {
					t.Errorf("%s from %s to %s: %v", op, from, to, err)
				}
				if err == nil && op == "rename" {
					c.Put(t, from, "o", []byte("x"))
				}
			}
		}
	}
}
