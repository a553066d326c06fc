package server

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// progressFile lies in every mountpath beside the state: how far background work has come.
// Losing it costs time and nothing else.
const progressFile = ".sheaf-progress.json"

// savedProgress is the file. The newest of several counts.
type savedProgress struct {
	Saved     time.Time `json:"saved"`
	Clean     bool      `json:"clean"`               // the process ended in order
	Disks     []string  `json:"disks"`               // identities of the mountpaths
	Placement uint64    `json:"placement,omitempty"` // that Reconcile is a place in a pass of
	Reconcile cursor    `json:"reconcile"`
	Round     time.Time `json:"round"` // when the scrub's round began
	Scrub     cursor    `json:"scrub"` // where it is; zero: over
}

// progress keeps savedProgress on disk.
type progress struct {
	dirs []string
	log  *slog.Logger

	mu  sync.Mutex
	now savedProgress // guarded by mu
}

// loadProgress reads the newest file there is.
func loadProgress(dirs []string, log *slog.Logger) *progress {
	p := &progress{dirs: dirs, log: log}
	for _, d := range dirs {
		var s savedProgress
		b, err := os.ReadFile(filepath.Join(d, progressFile))
		if err == nil && json.Unmarshal(b, &s) == nil && s.Saved.After(p.now.Saved) {
			p.now = s
		}
	}
	return p
}

func (p *progress) get() savedProgress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

// set changes the progress and saves it where it can be.
func (p *progress) set(change func(*savedProgress)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.now)
	p.now.Saved = time.Now()
	b, err := json.MarshalIndent(p.now, "", " ")
	if err != nil {
		p.log.Error("the progress of background work can't be written", "err", err)
		return
	}
	saved := 0
	for _, d := range p.dirs {
		if err = writeSynced(filepath.Join(d, progressFile), b); err == nil {
			saved++
		}
	}
	if saved == 0 {
		p.log.Warn("the progress of background work can't be saved", "err", err)
	}
}
