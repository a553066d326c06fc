package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/internal/names"
	"sheaf/peer/wire"
)

// holder is a serving endpoint whose calls the test gives, and a client that may make
// them.
func holder(t *testing.T, handlers map[wire.Type]HandlerFunc) (addr string, c *Client) {
	t.Helper()
	dir := t.TempDir()
	if err := InitCA(dir); err != nil {
		t.Fatal(err)
	}
	if err := Issue(dir, dir, NodeName, NodeName, NodeRole); err != nil {
		t.Fatal(err)
	}
	id, err := LoadIdentity(dir, NodeName)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*Endpoint
	for i := range ends {
		if ends[i], err = NewEndpoint(EndpointOptions{Identity: id, Listen: "127.0.0.1:0"}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	for kind, h := range handlers {
		ends[0].Handle(kind, NodeRole, h)
	}
	if err := ends[0].Serve(); err != nil {
		t.Fatal(err)
	}
	return ends[0].Addr().String(), NewNodeClient(ends[1], func() *Map { return NewMap("", 0, nil) })
}

func TestStage(t *testing.T) {
	t.Parallel()
	forgotten := make(chan error, 10)
	addr, c := holder(t, map[wire.Type]HandlerFunc{wire.TStage: func(_ context.Context, c *ServerCall) error {
		var req StageRequest
		if err := c.R.Decode(&req); err != nil {
			return err
		}
		if req.Object == "full" {
			return errs.New(errs.NoSpace, "stage", "the disk is full")
		}
		data, err := io.ReadAll(ReceiveBody(c.R))
		if err != nil {
			forgotten <- err
			return err
		}
		m := &StagedMessage{Size: int64(len(data)), Sum: xxh3.Hash(data), High: VersionInfo{Version: 40, Deleted: true}}
		if req.Object == "torn" {
			m.Sum++
		}
		version, err := c.Staged(m)
		if err != nil {
			forgotten <- err
			return err
		}
		return c.W.Frame(&ObjectMessage{Name: req.Object, Size: m.Size, Version: version, Checksum: m.Sum, Attrs: req.Attrs}, nil)
	}})
	for _, size := range []int{0, 1, wire.ChunkSize, 3<<20 + 5} {
		data := noise(size)
		s, err := c.StageAt(bounded(t), addr, &StageRequest{Bucket: "b", Object: "o", Attrs: map[string]string{"a": "1"}})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := io.Copy(s, bytes.NewReader(data)); err != nil || n != int64(size) {
			t.Fatal(n, err)
		}
		staged, err := s.Staged()
		if err != nil || staged.Size != int64(size) || staged.Sum != xxh3.Hash(data) || staged.High.Version != 40 || !staged.High.Deleted {
			t.Fatalf("%+v %v", staged, err)
		}
		info, err := s.Commit(41)
		if err != nil || info.Version != 41 || info.Checksum != xxh3.Hash(data) || info.Attrs["a"] != "1" {
			t.Errorf("%+v %v", info, err)
		}
		s.Close()
	}

	begin := func(object string) *StageCall {
		s, err := c.StageAt(bounded(t), addr, &StageRequest{Bucket: "b", Object: object})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	// A holder that refuses says why, whenever the owner comes to ask.
	s := begin("full")
	_, err := io.Copy(s, bytes.NewReader(noise(8<<20)))
	if !errs.IsCode(err, errs.NoSpace) {
		t.Errorf("a full disk: %v", err)
	}
	s = begin("full")
	if _, err := s.Staged(); !errs.IsCode(err, errs.NoSpace) {
		t.Errorf("a full disk at the end: %v", err)
	}
	s = begin("torn")
	_, _ = s.Write([]byte("x"))
	if _, err := s.Staged(); !errs.IsCode(err, errs.ChecksumMismatch) {
		t.Errorf("other bytes: %v", err)
	}
	s.Close()
	<-forgotten
	// Without a commit, at any point, the holder forgets it.
	s = begin("half")
	_, _ = s.Write(noise(1 << 20))
	s.Close()
	if err := <-forgotten; err == nil {
		t.Error("half of it was taken for all")
	}
	s = begin("whole")
	_, _ = s.Write(noise(1 << 20))
	if _, err := s.Staged(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if err := <-forgotten; !errs.IsCode(err, errs.Canceled) {
		t.Errorf("without a commit: %v", err)
	}
	s = begin("none")
	if _, err := s.Staged(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(0); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("a commit without a version: %v", err)
	}
	<-forgotten
}

func TestReplicate(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	got := map[string]string{}
	addr, c := holder(t, map[wire.Type]HandlerFunc{wire.TReplicate: func(_ context.Context, c *ServerCall) error {
		r := NewReplicaReader(c)
		for {
			req, body, err := r.Next()
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return err
			}
			switch {
			case strings.HasPrefix(req.Info.Name, "unwanted"):
				err = errs.New(errs.NoSpace, "replicate", "the disk is full") // with all of its bytes unread
			case req.Deleted:
				mu.Lock()
				got[req.Info.Name] = "deleted"
				mu.Unlock()
			default:
				var data []byte
				if data, err = io.ReadAll(body); err == nil {
					mu.Lock()
					got[req.Info.Name] = fmt.Sprintf("%d bytes, %016x", len(data), xxh3.Hash(data))
					mu.Unlock()
				}
			}
			if err := r.Answer(9, req.Info.Version, err); err != nil {
				return err
			}
		}
	}})
	r, err := c.ReplicateAt(bounded(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	const n = 120
	type outcome struct {
		version uint64
		code    errs.Code
	}
	var answers []outcome
	done := make(chan error)
	go func() { // ends with the call
		for {
			m, err := r.Next()
			if err != nil {
				done <- err
				return
			}
			if m.Placement != 9 {
				t.Errorf("placement %d", m.Placement)
			}
			answers = append(answers, outcome{m.Version, errs.CodeOf(m.Err())})
		}
	}()
	var want []outcome
	held := map[string]string{}
	for i := range uint64(n) {
		req := &ReplicateRequest{Bucket: "b", Info: ObjectInfo{Name: fmt.Sprint("o", i), Version: 1000 + i, Size: int64(i * 700)}}
		data := noise(int(i) * 700)
		var body io.Reader = bytes.NewReader(data)
		code := errs.OK
		switch {
		case i%10 == 3:
			req.Deleted, body = true, nil
			held[req.Info.Name] = "deleted"
		case i%10 == 5:
			req.Info.Name, code = fmt.Sprint("unwanted", i), errs.NoSpace
		case i%10 == 7:
			body, code = io.MultiReader(bytes.NewReader(data[:len(data)/2]), &broken{errs.New(errs.ChecksumMismatch, "read", "the disk")}), errs.ChecksumMismatch
		default:
			held[req.Info.Name] = fmt.Sprintf("%d bytes, %016x", len(data), xxh3.Hash(data))
		}
		want = append(want, outcome{1000 + i, code})
		if err := r.Send(req, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Send(&ReplicateRequest{Bucket: "b", Info: ObjectInfo{Name: "o"}}, nil); !errs.IsCode(err, errs.InvalidArgument) {
		t.Errorf("a record without a version: %v", err)
	}
	if err := r.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != io.EOF {
		t.Fatal(err)
	}
	if len(answers) != len(want) {
		t.Fatalf("%d answers for %d objects", len(answers), len(want))
	}
	for i := range want {
		if answers[i] != want[i] {
			t.Errorf("answer %d is %+v, want %+v", i, answers[i], want[i])
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) != len(held) {
		t.Errorf("%d objects arrived, want %d", len(got), len(held))
	}
	for name, is := range held {
		if got[name] != is {
			t.Errorf("%s: %s, want %s", name, got[name], is)
		}
	}
}

// broken is a source that fails.
type broken struct{ err error }

func (b *broken) Read([]byte) (int, error) { return 0, b.err }

func TestVersions(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	addr, c := holder(t, map[wire.Type]HandlerFunc{wire.TVersions: func(_ context.Context, c *ServerCall) error {
		req := NamesRequest{Kind: wire.TVersions}
		if err := c.R.Decode(&req); err != nil {
			return err
		}
		asked.Add(1)
		m := &VersionListMessage{}
		for _, name := range req.Names {
			m.Versions = append(m.Versions, VersionInfo{Version: uint64(len(name)), Size: 1})
		}
		if req.Bucket == "liar" {
			m.Versions = m.Versions[1:]
		}
		return c.W.Frame(m, nil)
	}})
	for _, each := range []int{1, names.MaxObject} { // by number, and by bytes
		var list []string
		for i := range 2500 {
			list = append(list, strings.Repeat("n", 1+i%each))
		}
		got, err := c.VersionsAt(bounded(t), addr, "b", list)
		if err != nil || len(got) != len(list) {
			t.Fatal(len(got), err)
		}
		for i := range got {
			if got[i].Version != uint64(len(list[i])) {
				t.Fatalf("answer %d is of another name", i)
			}
		}
	}
	if asked.Load() < 3+2500/512 {
		t.Errorf("all of it in %d calls", asked.Load())
	}
	if got, err := c.VersionsAt(bounded(t), addr, "b", nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	if _, err := c.VersionsAt(bounded(t), addr, "liar", []string{"a", "b"}); !errs.IsCode(err, errs.Protocol) {
		t.Errorf("too few answers: %v", err)
	}
}

// What a node doesn't know is refused by name, and the connection lives on.
func TestUnknownCalls(t *testing.T) {
	t.Parallel()
	addr, c := holder(t, nil)
	for _, kind := range []wire.Type{3, wire.TStage, wire.TObject, 65535} {
		err := c.At(bounded(t), addr, &Ask{Kind: kind}, discardAt)
		if !errs.IsCode(err, errs.NotSupported) || !strings.Contains(err.Error(), fmt.Sprint("message ", kind)) {
			t.Errorf("call %d: %v", kind, err)
		}
	}
	if err := c.e.Ping(bounded(t), addr); err != nil {
		t.Error(err)
	}
	if _, err := c.StageAt(bounded(t), addr, &StageRequest{Bucket: "b", Object: "o"}); err != nil {
		t.Error(err)
	}
	if err := c.Leave(bounded(t), addr); !errs.IsCode(err, errs.NotSupported) {
		t.Error(err)
	}
	if !errors.Is(c.Rebalance(bounded(t), addr), &errs.Error{Code: errs.NotSupported}) {
		t.Error("Rebalance")
	}
}

// Requests whose options can't be met never leave.
func TestRequestsAreChecked(t *testing.T) {
	t.Parallel()
	c := NewNodeClient(nil, func() *Map { return NewMap("", 0, nil) })
	big := map[string]string{"k": strings.Repeat("v", names.MaxAttrs)}
	for name, err := range map[string]error{
		"both conditions": second(c.Put(t.Context(), "b", "o", nil, PutOptions{IfAbsent: true, IfVersion: 1})),
		"attributes":      second(c.Append(t.Context(), "b", "o", nil, PutOptions{Attrs: big})),
		"a name":          second(c.Copy(t.Context(), ObjectName{"b", "o"}, ObjectName{"b", "a/../b"}, CopyOptions{})),
		"the first name":  second(c.Rename(t.Context(), ObjectName{"", "o"}, ObjectName{"b", "o"}, CopyOptions{})),
		"copy conditions": second(c.Copy(t.Context(), ObjectName{"b", "o"}, ObjectName{"b", "p"}, CopyOptions{IfAbsent: true, IfVersion: 1})),
		"a prefetch":      second(c.PrefetchObjects(t.Context(), "b", []string{"ok", ""})),
		"a delete":        c.DeleteIf(t.Context(), "b", "", 7),
		"an evict":        c.Evict(t.Context(), ".", "o"),
	} {
		if !errs.IsCode(err, errs.InvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
