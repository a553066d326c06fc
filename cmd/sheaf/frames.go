package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// frameJSON is the line before an entry's payload.
type frameJSON struct {
	I      int       `json:"i"`
	Name   string    `json:"name"`
	Opaque string    `json:"opaque,omitempty"`
	Size   int64     `json:"size"`
	Sum    string    `json:"sum,omitempty"`
	Code   errs.Code `json:"code,omitempty"`
	Error  string    `json:"error,omitempty"`
}

// endJSON is the last line.
type endJSON struct {
	End     bool  `json:"end"`
	Entries int   `json:"entries"`
	Failed  int   `json:"failed"`
	Bytes   int64 `json:"bytes"`
}

// frames writes a batch entry by entry. An entry is complete and checked before its
// line is written: an entry that fails in its middle can still become a placeholder.
func (p *program) frames(ctx context.Context, client *batching.Client, req *batching.Request, f *os.File, quiet bool) (batching.Totals, error) {
	s, err := client.GetBatch(ctx, req)
	if err != nil {
		return batching.Totals{}, err
	}
	defer s.Close()
	var held spool
	defer held.close()
	w := bufio.NewWriterSize(f, 256<<10)
	for it, err := range s.Items() {
		if err != nil {
			return s.Totals(), err
		}
		e := it.Entry
		head := frameJSON{I: it.Index, Name: (&errs.Error{Bucket: e.Bucket, Object: e.ObjName, Member: e.ArchPath}).Name(), Opaque: e.Opaque}
		fails := it.Err
		if fails == nil {
			if err := held.reset(); err != nil {
				return s.Totals(), err
			}
			if _, err := it.WriteTo(&held); held.err != nil {
				return s.Totals(), held.err
			} else if err != nil && !req.Coer {
				return s.Totals(), err
			} else {
				fails = err
			}
		}
		if fails != nil {
			head.Code, head.Error = errs.CodeOf(fails), fails.Error()
			if !quiet {
				p.errorf("entry %d: %v", it.Index, fails)
			}
		} else {
			head.Size, head.Sum = held.size, formatSum(it.Sum())
		}
		if err := writeJSON(w, head); err != nil {
			return s.Totals(), err
		}
		if fails == nil {
			if err := held.copyTo(w); err != nil {
				return s.Totals(), err
			}
		}
	}
	t := s.Totals()
	if err := writeJSON(w, endJSON{End: true, Entries: len(req.In), Failed: t.Failed, Bytes: t.Bytes}); err != nil {
		return t, err
	}
	return t, w.Flush()
}

// spoolMemory is how much of an entry is held in memory; the rest goes to a file.
const spoolMemory = 8 << 20

// spool holds one entry. The zero value is empty.
type spool struct {
	mem  bytes.Buffer
	file *os.File // without a name
	size int64
	err  error // the first failed write
}

// reset empties the spool.
func (s *spool) reset() error {
	s.mem.Reset()
	s.size = 0
	if s.file == nil {
		return nil
	}
	if err := s.file.Truncate(0); err != nil {
		return err
	}
	_, err := s.file.Seek(0, io.SeekStart)
	return err
}

// Write implements io.Writer.
func (s *spool) Write(b []byte) (n int, err error) {
	defer func() {
		s.size += int64(n)
		if s.err == nil {
			s.err = err
		}
	}()
	if s.size == int64(s.mem.Len()) && s.size+int64(len(b)) <= spoolMemory {
		return s.mem.Write(b)
	}
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "sheaf-batch-"); err != nil {
			return 0, err
		}
		if err := os.Remove(s.file.Name()); err != nil {
			return 0, err
		}
	}
	return s.file.Write(b)
}

// copyTo writes out what the spool holds.
func (s *spool) copyTo(w io.Writer) error {
	if _, err := w.Write(s.mem.Bytes()); err != nil || s.size == int64(s.mem.Len()) {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err := io.Copy(w, s.file)
	return err
}

func (s *spool) close() {
	if s.file != nil {
		_ = s.file.Close()
	}
}
