package run

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sheaf/batching"
)

// Mount is a mount as the processes see it that use it.
type Mount struct{ Path string }

// Object is the path of an object.
func (m Mount) Object(bucket, object string) string { return filepath.Join(m.Path, bucket, object) }

// Batch is the path of a batch's file.
func (m Mount) Batch(id string, elem ...string) string {
	return filepath.Join(append([]string{m.Path, ".sheaf", "batch", id}, elem...)...)
}

// Open opens a file with system calls that block. os.Open would ask the kernel whether
// the file can be polled and then read it without blocking, which is more calls for a
// file of a mount, and for the control file not what a session wants.
func Open(path string, flags int) (*os.File, error) {
	for {
		fd, err := syscall.Open(path, flags|syscall.O_CLOEXEC, 0)
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, syscall.EINTR) {
			return nil, &os.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// ReadFile opens a file, reads it to its end and closes it, appending to buf.
func ReadFile(path string, buf []byte) ([]byte, error) {
	f, err := Open(path, syscall.O_RDONLY)
	if err != nil {
		return buf, err
	}
	defer f.Close()
	return readAll(f, buf)
}

// readAll is io.ReadAll into the room that buf has.
func readAll(r io.Reader, buf []byte) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
}

// Timing is how long a batch took from the first byte of its manifest.
type Timing struct {
	First time.Duration // to the last byte of the first entry
	Last  time.Duration // to the last byte
}

// readSize is what is asked of the mount at a time, after the first entry: the most that
// one request carries. A read waits until all that it asks for is there.
const readSize = 1 << 20

// Fetch submits a manifest and reads the batch's data to its end, appending to buf.
// first is the size of the first entry.
func (m Mount) Fetch(s *Session, req *batching.Request, first int, buf []byte) ([]byte, Timing, error) {
	text, err := json.Marshal(req)
	if err != nil {
		return buf, Timing{}, err
	}
	var t Timing
	start := time.Now()
	if err := s.Write(text); err != nil {
		return buf, t, err
	}
	f, err := Open(m.Batch(req.ID, "data"), syscall.O_RDONLY)
	if err != nil {
		return buf, t, err
	}
	defer f.Close()
	for got := 0; ; {
		ask := readSize
		if got < first {
			ask = first - got
		}
		if cap(buf)-len(buf) < ask {
			buf = append(make([]byte, 0, 2*cap(buf)+ask), buf...)
		}
		n, err := f.Read(buf[len(buf) : len(buf)+ask])
		buf = buf[:len(buf)+n]
		if got += n; t.First == 0 && got >= first {
			t.First = time.Since(start)
		}
		if err == io.EOF {
			t.Last = time.Since(start)
			return buf, t, nil
		}
		if err != nil {
			return buf, t, err
		}
	}
}

// Session is an open control file.
type Session struct {
	f *os.File
	r *bufio.Reader
}

// OpenSession opens the control file. Close must follow.
func (m Mount) OpenSession() (*Session, error) {
	f, err := Open(filepath.Join(m.Path, ".sheaf", "control"), syscall.O_RDWR)
	if err != nil {
		return nil, err
	}
	return &Session{f: f, r: bufio.NewReader(f)}, nil
}

// Write writes a command.
func (s *Session) Write(command []byte) error {
	_, err := s.f.Write(command)
	return err
}

// Event is one line of a session's answers.
type Event struct {
	Event string `json:"event"`
	ID    string `json:"id"`
	N     int    `json:"n"`
	From  int    `json:"from"`
	To    int    `json:"to"`
	I     *int   `json:"i"`
	OK    int    `json:"ok"`
	Err   int    `json:"err"`
	Bytes int64  `json:"bytes"`
	Errno string `json:"errno"`
	Msg   string `json:"msg"`

	Line string `json:"-"` // as it was read, without the newline
}

// Next waits for an event.
func (s *Session) Next() (Event, error) {
	line, err := s.r.ReadString('\n')
	if err != nil {
		return Event{}, err
	}
	e := Event{Line: line[:len(line)-1]}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return Event{}, fmt.Errorf("event %q: %w", line, err)
	}
	return e, nil
}

// Release removes a batch and waits until it is gone, passing over what else was to be
// told of it.
func (s *Session) Release(id string) error {
	if err := s.Write(fmt.Appendf(nil, `{"op":"release","id":%q}`, id)); err != nil {
		return err
	}
	for {
		e, err := s.Next()
		if err != nil {
			return err
		}
		if e.Event == "released" && e.ID == id {
			return nil
		}
	}
}

// Close ends the session.
func (s *Session) Close() error { return s.f.Close() }
