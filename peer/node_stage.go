package peer

import (
	"context"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// StageCall brings one holder its copy of an object: Write the payload, then Staged,
// then Commit. Close without a Commit makes the holder forget it. Not safe for
// concurrent use.
type StageCall struct {
	call *Call
	sum  xxh3.Hasher
	n    uint64
	err  error // of the stream: nothing more can be written
}

// StageAt begins a StageCall at the node at addr.
func (c *Client) StageAt(ctx context.Context, addr string, req *StageRequest) (*StageCall, error) {
	call, err := c.e.Open(ctx, addr)
	if err != nil {
		return nil, err
	}
	s := &StageCall{call: call}
	if err := s.frame(req, nil); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Write sends a piece of the payload. When the holder refuses it, the error is the
// holder's own.
func (s *StageCall) Write(p []byte) (int, error) {
	total := 0
	for len(p) > 0 {
		k := min(len(p), wire.ChunkSize)
		_, _ = s.sum.Write(p[:k])
		if err := s.frame(&Data{}, p[:k]); err != nil {
			return total, err
		}
		s.n += uint64(k)
		total += k
		p = p[k:]
	}
	return total, nil
}

// frame writes one frame; a failure to do so is explained by the holder's trailer.
func (s *StageCall) frame(m wire.Message, payload []byte) error {
	if s.err == nil {
		if err := s.call.W.Frame(m, payload); err != nil {
			s.err = s.refused(err)
		}
	}
	return s.err
}

// refused gives the holder's reason for taking no more, if it can be had.
func (s *StageCall) refused(err error) error {
	switch _, _, ended := s.call.Next(); {
	case ended == nil || ended == io.EOF:
		return s.call.err("stage", err)
	default:
		return ended
	}
}

// Staged says that the payload is whole and waits until the holder has it in a work
// file.
func (s *StageCall) Staged() (StagedMessage, error) {
	var m StagedMessage
	if err := s.frame(&wire.End{Bytes: s.n, Sum: s.sum.Sum64()}, nil); err != nil {
		return m, err
	}
	if err := s.call.W.Flush(); err != nil {
		s.err = s.refused(err)
		return m, s.err
	}
	h, _, err := s.call.Next()
	switch {
	case err == io.EOF:
		return m, errs.New(errs.Protocol, "stage", "the holder ended the call before the commit")
	case err != nil:
		return m, err
	case h.Type != wire.TStaged:
		return m, errs.New(errs.Protocol, "stage", fmt.Sprintf("message %d in place of Staged", h.Type))
	}
	if err := s.call.R.Decode(&m); err != nil {
		return m, err
	}
	if m.Size != int64(s.n) || m.Sum != s.sum.Sum64() {
		return m, errs.New(errs.ChecksumMismatch, "stage", fmt.Sprintf("the holder has %d bytes with checksum %016x, %d with %016x were sent", m.Size, m.Sum, s.n, s.sum.Sum64()))
	}
	return m, nil
}

// Commit makes the copy visible under a version and waits until it is. The info is
// of what the holder has then: of a newer object when there is one.
func (s *StageCall) Commit(version uint64) (ObjectInfo, error) {
	if err := s.frame(&CommitMessage{Version: version}, nil); err != nil {
		return ObjectInfo{}, err
	}
	if err := s.call.CloseSend(); err != nil {
		return ObjectInfo{}, err
	}
	return s.call.object("commit")
}

// Close ends the call.
func (s *StageCall) Close() { s.call.Close() }

// object reads an answer that is an Object and the End.
func (c *Call) object(op string) (ObjectInfo, error) {
	var info ObjectMessage
	got := false
	for {
		h, _, err := c.Next()
		if err == io.EOF {
			return ObjectInfo(info), answered(op, got, nil)
		}
		if err == nil && h.Type == wire.TObject {
			got = true
			err = c.R.Decode(&info)
		}
		if err != nil {
			return ObjectInfo{}, err
		}
	}
}

// Staged is the holder's side of a StageCall after the payload is in a work file: it
// says so and waits for the version to commit under. An error means that there will
// be no commit.
func (c *ServerCall) Staged(m *StagedMessage) (version uint64, err error) {
	if err := c.W.Frame(m, nil); err != nil {
		return 0, err
	}
	if err := c.W.Flush(); err != nil {
		return 0, errs.Wrap(errs.Canceled, "stage", err)
	}
	var commit CommitMessage
	switch _, err := c.R.Expect(&commit); {
	case errs.IsCode(err, errs.Protocol):
		return 0, err
	case err != nil:
		return 0, errs.Wrap(errs.Canceled, "stage", cutShort(err))
	case commit.Version == 0:
		return 0, errs.New(errs.InvalidArgument, "stage", "a commit without a version")
	}
	return commit.Version, nil
}
