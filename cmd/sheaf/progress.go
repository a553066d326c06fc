package main

import (
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/schollz/progressbar/v3"
)

// progress shows on a terminal how far a transfer is. A nil one, which is what
// everybody else than a person gets, takes every call and shows nothing.
type progress struct {
	label string
	bar   *progressbar.ProgressBar

	bytes, files           atomic.Int64 // done
	totalBytes, totalFiles atomic.Int64 // known so far

	now atomic.Pointer[string] // what stands in label's place

	stop, done chan struct{}
}

const redrawEvery = 200 * time.Millisecond

// newProgress begins to show a transfer on f. close must follow.
func newProgress(f *os.File, label string) *progress {
	if !isTerminal(f) {
		return nil
	}
	p := &progress{label: label, stop: make(chan struct{}), done: make(chan struct{}),
		bar: progressbar.NewOptions64(-1, progressbar.OptionSetWriter(f), progressbar.OptionShowBytes(true), progressbar.OptionUseIECUnits(true),
			progressbar.OptionShowCount(), progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionSetWidth(20), progressbar.OptionSetDescription(label))}
	go p.draw() // ends with close
	return p
}

func (p *progress) draw() {
	defer close(p.done)
	t := time.NewTicker(redrawEvery)
	defer t.Stop()
	for {
		select {
		case <-p.stop:
			_ = p.bar.Clear()
			return
		case <-t.C:
		}
		if total := p.totalBytes.Load(); total > 0 {
			p.bar.ChangeMax64(max(total, p.bytes.Load()))
		}
		if files := p.totalFiles.Load(); files > 0 {
			p.bar.Describe(fmt.Sprintf("%s %d/%d files", p.label, p.files.Load(), files))
		}
		if label := p.now.Load(); label != nil {
			p.bar.Describe(*label)
		}
		_ = p.bar.Set64(p.bytes.Load()) // what it can't show isn't worth an error
	}
}

// expect adds to what is to come.
func (p *progress) expect(files, bytes int64) {
	if p != nil {
		p.totalFiles.Add(files)
		p.totalBytes.Add(bytes)
	}
}

func (p *progress) add(bytes int64) {
	if p != nil {
		p.bytes.Add(bytes)
	}
}

// at is for work that others do: they say how far it is.
func (p *progress) at(bytes int64, label string) {
	if p != nil {
		p.bytes.Store(bytes)
		p.now.Store(&label)
	}
}

func (p *progress) fileDone() {
	if p != nil {
		p.files.Add(1)
	}
}

// close takes the bar off the screen.
func (p *progress) close() {
	if p != nil {
		close(p.stop)
		<-p.done
	}
}

// meter counts what is read from a file, also when it is read again from its beginning.
type meter struct {
	*os.File
	p *progress
	n int64
}

var _ io.ReadSeeker = (*meter)(nil)

// Read implements io.Reader.
func (m *meter) Read(b []byte) (int, error) {
	n, err := m.File.Read(b)
	m.n += int64(n)
	m.p.add(int64(n))
	return n, err
}

// Seek implements io.Seeker.
func (m *meter) Seek(offset int64, whence int) (int64, error) {
	at, err := m.File.Seek(offset, whence)
	if err == nil {
		m.p.add(at - m.n)
		m.n = at
	}
	return at, err
}

// metered counts what is written to w.
type metered struct {
	w io.Writer
	p *progress
}

// Write implements io.Writer.
func (m metered) Write(b []byte) (int, error) {
	n, err := m.w.Write(b)
	m.p.add(int64(n))
	return n, err
}
