package fusefs

import (
	"encoding/json"
	"syscall"

	"sheaf/internal/errs"
)

// maxEvents bounds what a session that doesn't read keeps. Beyond it the errors of
// single entries are left out (the batch's index has them all), and new commands
// are refused.
const maxEvents = 32 << 10

// event is one line of a session's answers. Pointers tell 0 from absent.
type event struct {
	Event string `json:"event"`
	ID    string `json:"id,omitempty"`
	N     *int   `json:"n,omitempty"`
	From  *int   `json:"from,omitempty"`
	To    *int   `json:"to,omitempty"`
	I     *int   `json:"i,omitempty"`
	OK    *int   `json:"ok,omitempty"`
	Err   *int   `json:"err,omitempty"`
	Bytes *int64 `json:"bytes,omitempty"`
	MS    *int64 `json:"ms,omitempty"`
	Errno string `json:"errno,omitempty"`
	Code  int    `json:"code,omitempty"` // errs.Code: finer than the errno
	Msg   string `json:"msg,omitempty"`
}

// queued is an event in the queue: a ready one can still grow, all others are
// already text.
type queued struct {
	id       string
	text     []byte // nil for a ready event
	from, to int
}

func (q queued) line() []byte {
	if q.text != nil {
		return q.text
	}
	return line(event{Event: "ready", ID: q.id, From: &q.from, To: &q.to})
}

func line(e any) []byte {
	text, err := json.Marshal(e)
	if err != nil { // can't be: strings and numbers only
		return nil
	}
	return append(text, '\n')
}

// eventQueue is a session's events in order. It is guarded by the session.
type eventQueue struct {
	q    []queued
	head uint64            // how many were taken: the number of q[0]
	last map[string]uint64 // batch → number of its last event
}

func (e *eventQueue) full() bool { return len(e.q) >= maxEvents }

func (e *eventQueue) push(id string, text []byte) {
	e.add(queued{id: id, text: text})
}

// pushReady joins entry i with the range before it, if nothing of the batch was
// said since.
func (e *eventQueue) pushReady(id string, i int) {
	if k, ok := e.last[id]; ok && k >= e.head {
		if l := &e.q[k-e.head]; l.text == nil && l.to+1 == i {
			l.to = i
			return
		}
	}
	e.add(queued{id: id, from: i, to: i})
}

func (e *eventQueue) add(q queued) {
	if e.last == nil {
		e.last = map[string]uint64{}
	}
	if q.id != "" {
		e.last[q.id] = e.head + uint64(len(e.q))
	}
	e.q = append(e.q, q)
}

// take moves whole lines into dest, and a line that is longer than all of dest in
// part; what is left of it comes back.
func (e *eventQueue) take(dest []byte) (n int, rest []byte) {
	for len(e.q) > 0 {
		l := e.q[0].line()
		if n > 0 && len(l) > len(dest)-n {
			break
		}
		if k, ok := e.last[e.q[0].id]; ok && k == e.head {
			delete(e.last, e.q[0].id)
		}
		e.q[0] = queued{}
		e.q = e.q[1:]
		e.head++
		m := copy(dest[n:], l)
		n += m
		if m < len(l) {
			return n, l[m:]
		}
	}
	if len(e.q) == 0 {
		e.q = nil
	}
	return n, nil
}

func (s *session) pushAccepted(b *batch) {
	n := b.n()
	s.push(b.id, line(event{Event: "accepted", ID: b.id, N: &n}))
}

func (s *session) pushReady(id string, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return
	}
	s.events.pushReady(id, i)
	s.wakeLocked()
}

func (s *session) pushEntryError(id string, i int, r row, msg string) {
	s.mu.Lock()
	full := s.events.full()
	s.mu.Unlock()
	if !full {
		s.push(id, line(event{Event: "error", ID: id, I: &i, Errno: errnoName(r.errno), Code: int(r.code), Msg: msg}))
	}
}

func (s *session) pushDone(b *batch, st batchStatus) {
	s.push(b.id, line(event{
		Event: "done", ID: b.id, N: &st.N, OK: &st.OK, Err: &st.Err, Bytes: &st.Bytes, MS: &st.MS,
		I: st.I, Errno: st.Errno, Code: st.Code, Msg: st.Msg,
	}))
}

func (s *session) pushRefused(id string, no syscall.Errno, err error) {
	s.push("", line(event{Event: "error", ID: id, Errno: errnoName(no), Code: int(errs.CodeOf(err)), Msg: err.Error()}))
}

func (s *session) pushStatus(st batchStatus) {
	s.push(st.ID, line(struct {
		Event string `json:"event"`
		batchStatus
	}{"status", st}))
}

func (s *session) pushAnswer(name, id string) {
	s.push(id, line(event{Event: name, ID: id}))
}

func (s *session) push(id string, text []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deaf {
		return
	}
	s.events.push(id, text)
	s.wakeLocked()
}
