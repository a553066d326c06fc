package fusefs

import (
	"context"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/zeebo/xxh3"

	"sheaf/internal/errs"
)

// controlNode is the file "control". Each lookup makes a new one: the kernel holds
// an inode's lock during a write and during O_TRUNC, so sessions on one inode would
// wait for each other, and one that waits for a place among the batches would keep
// out the one that wants to release some.
type controlNode struct {
	fs.Inode
	readOnly
	f *FS
}

var (
	_ fs.NodeOpener    = (*controlNode)(nil)
	_ fs.NodeSetattrer = (*controlNode)(nil)
	_ fs.NodeGetattrer = (*controlNode)(nil)
)

func (c *controlNode) attr(out *fuse.Attr) {
	mode := uint32(syscall.S_IFREG | 0o600)
	if c.f.opt.AllowOther {
		mode |= 0o066
	}
	c.f.attr(out, mode, 0, c.f.started)
}

func (c *controlNode) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	c.attr(&out.Attr)
	return 0
}

// Setattr lets `echo … > control` truncate; there is nothing else to set.
func (c *controlNode) Setattr(_ context.Context, _ fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	size, ok := in.GetSize()
	if !ok || size != 0 || in.Valid&(fuse.FATTR_MODE|fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
		return syscall.EROFS
	}
	c.attr(&out.Attr)
	return 0
}

// Access allows what the mode does: the file is there to be written.
func (c *controlNode) Access(context.Context, uint32) syscall.Errno { return 0 }

func (c *controlNode) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	s := &session{
		f:        c.f,
		nonblock: flags&syscall.O_NONBLOCK != 0,
		deaf:     flags&syscall.O_ACCMODE == syscall.O_WRONLY,
		writing:  make(chan struct{}, 1),
		reading:  make(chan struct{}, 1),
	}
	c.f.batches.enter(s)
	c.f.m.sessions.Inc()
	// Without STREAM a blocked read would hold the file's position against a write.
	return s, fuse.FOPEN_DIRECT_IO | fuse.FOPEN_STREAM | fuse.FOPEN_NOFLUSH, 0
}

// session is one open control file. Requests of the kernel drive it; it has no
// goroutine of its own.
type session struct {
	f        *FS
	nonblock bool // as opened: go-fuse doesn't hand on what fcntl sets later
	deaf     bool // opened for writing only: nobody will read events

	writing chan struct{} // held by the one write that is in progress; guards:
	parser  parser
	failed  struct { // the last piece of a write, when it failed
		sum   uint64
		n     int
		errno syscall.Errno
	}

	reading chan struct{} // held by the one read that is in progress; guards:
	rest    []byte        // of a line longer than the reader's buffer

	mu     sync.Mutex
	events eventQueue
	wake   chan struct{} // closed by the next event; nil while nobody waits
}

var (
	_ fs.FileReader   = (*session)(nil)
	_ fs.FileWriter   = (*session)(nil)
	_ fs.FileReleaser = (*session)(nil)
	_ fs.FileFlusher  = (*session)(nil)
)

func (s *session) wakeLocked() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// acquire takes a one-place semaphore, as long as ctx lasts.
func acquire(ctx context.Context, sem chan struct{}) bool {
	select {
	case sem <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Write executes the commands that data completes. The offset means nothing.
func (s *session) Write(ctx context.Context, data []byte, _ int64) (uint32, syscall.Errno) {
	s.f.m.ops.WithLabelValues("control_write").Inc()
	if !acquire(ctx, s.writing) {
		return 0, syscall.EINTR
	}
	defer func() { <-s.writing }()
	if no := s.retried(data); no != 0 {
		return 0, no
	}
	for done := 0; done < len(data); {
		before := s.parser
		raw, n, err := s.parser.next(data[done:])
		id := ""
		if raw != nil {
			id, err = s.execute(ctx, raw)
		}
		no := s.f.sessionErrno(ctx, err)
		switch {
		case err == nil:
			done += n
		case no == syscall.EINTR || no == syscall.EAGAIN:
			// The caller will write the same again: this command counts as not written.
			s.parser = before
			if done > 0 {
				return uint32(done), 0
			}
			return 0, no
		default:
			s.pushRefused(id, no, err)
			s.parser.reset()
			if before.begun() {
				s.failed.sum, s.failed.n, s.failed.errno = xxh3.Hash(data), len(data), no
			}
			return 0, no
		}
	}
	return uint32(len(data)), 0
}

// retried finds the errno of a piece that is written again. The kernel cuts long
// writes; when a later piece fails it reports a short write, and the caller, who
// can't know why, writes that piece once more. It must not be read as a command.
func (s *session) retried(data []byte) syscall.Errno {
	no := s.failed.errno
	if no != 0 && (s.failed.n != len(data) || s.failed.sum != xxh3.Hash(data)) {
		no = 0
	}
	s.failed.errno = 0
	return no
}

// sessionErrno is what a write that completes a bad command fails with.
func (f *FS) sessionErrno(ctx context.Context, err error) syscall.Errno {
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		return syscall.EINTR
	}
	return errs.Errno(err)
}

// execute runs one command and gives the id it named.
func (s *session) execute(ctx context.Context, raw *rawCommand) (id string, err error) {
	s.mu.Lock()
	full := s.events.full()
	s.mu.Unlock()
	if full {
		return "", errs.New(errs.TooManyRequests, "control", "too many events wait to be read")
	}
	c, err := parseCommand(raw)
	if err != nil {
		return c.ID, err
	}
	if c.Op == "" {
		return c.ID, s.f.batches.submit(ctx, submission{
			req: &c.Request, ttl: time.Duration(c.TTL), bind: c.Bind, session: s, nonblock: s.nonblock,
		})
	}
	b := s.f.batches.get(c.ID)
	if b == nil {
		return c.ID, unknownBatch(c.ID)
	}
	switch c.Op {
	case "wait", "cancel":
		if !b.subscribe(s) {
			s.pushDone(b, b.status())
		} else if c.Op == "cancel" {
			b.stop()
		}
	case "status":
		s.pushStatus(b.status())
	case "release":
		s.f.batches.release(b)
		s.pushAnswer("released", b.id)
	case "detach":
		b.mu.Lock()
		b.bound = nil
		b.mu.Unlock()
		s.pushAnswer("detached", b.id)
	}
	return c.ID, nil
}

// Read gives whole events, one JSON object a line, and waits for the first.
func (s *session) Read(ctx context.Context, dest []byte, _ int64) (fuse.ReadResult, syscall.Errno) {
	s.f.m.ops.WithLabelValues("control_read").Inc()
	if !acquire(ctx, s.reading) {
		return nil, syscall.EINTR
	}
	defer func() { <-s.reading }()
	if len(s.rest) > 0 {
		n := copy(dest, s.rest)
		s.rest = s.rest[n:]
		return fuse.ReadResultData(dest[:n]), 0
	}
	for {
		s.mu.Lock()
		n, rest := s.events.take(dest)
		if n > 0 {
			s.rest = rest
			s.mu.Unlock()
			return fuse.ReadResultData(dest[:n]), 0
		}
		if s.wake == nil {
			s.wake = make(chan struct{})
		}
		ch := s.wake
		s.mu.Unlock()
		if s.nonblock {
			return nil, syscall.EAGAIN
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return nil, syscall.EINTR
		}
	}
}

// Flush means nothing: a child that closes what it inherited causes one.
func (s *session) Flush(context.Context) syscall.Errno { return 0 }

// Release ends the session. The kernel sends it once, after the last descriptor is
// closed, also by SIGKILL.
func (s *session) Release(ctx context.Context) syscall.Errno {
	s.writing <- struct{}{} // no write is in progress any more
	if s.parser.mode == inJSON {
		s.f.log.Warn("a session ended within a command", "bytes", len(s.parser.buf))
	}
	raw := s.parser.finish()
	s.mu.Lock()
	s.deaf, s.events = true, eventQueue{}
	s.mu.Unlock()
	if raw != nil {
		s.nonblock = false
		if id, err := s.execute(ctx, raw); err != nil {
			s.f.log.Warn("a manifest closed by the end of its session was refused", "id", id, "err", err)
		}
	}
	s.f.batches.leave(s)
	s.f.m.sessions.Dec()
	return 0
}
