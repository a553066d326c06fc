package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	layoutFile = ".sheaf-layout"
	maxLayout  = 1 << 20
)

// layout says which mountpaths a store consists of. Each of them keeps a copy, so that
// the others know of one that is lost.
type layout struct {
	Generation uint64 `json:"generation"`
	// Scattered: objects may lie on another mountpath than HRW says, and older versions of
	// them too, since mountpaths came since the last complete Resilver.
	Scattered  bool   `json:"scattered"`
	Mountpaths []slot `json:"mountpaths"`
}

// slot is one mountpath of a layout.
type slot struct {
	ID       string `json:"id"`
	Dir      string `json:"dir"`
	Mounted  bool   `json:"mounted,omitempty"`  // a file system is mounted at the folder
	Disabled string `json:"disabled,omitempty"` // why it isn't in use
	ByHand   bool   `json:"by_hand,omitempty"`
}

// readLayout reads a mountpath's copy, an empty one where there is none that makes sense.
func readLayout(dir string) (layout, error) {
	var l layout
	b, err := readFile(filepath.Join(dir, layoutFile), maxLayout)
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	} else if err != nil {
		return l, err
	}
	if json.Unmarshal(b, &l) != nil {
		// It was renamed into place whole; what says nothing is as good as none.
		return layout{}, nil
	}
	return l, nil
}

// write puts a copy on a mountpath, durably.
func (l layout) write(s *Store, m *mountpath) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	path := filepath.Join(m.dir, layoutFile)
	if have, err := readFile(path, maxLayout); err == nil && bytes.Equal(have, b) {
		return nil
	}
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := s.disk.sync(f); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return s.disk.syncDir(m.dir)
}

// expects finds the slot of a folder whose mountpath wasn't found by its identity.
func (l layout) expects(dir string, have map[string]bool) (slot, bool) {
	i := slices.IndexFunc(l.Mountpaths, func(sl slot) bool { return sl.Dir == dir && !have[sl.ID] })
	if i < 0 {
		return slot{}, false
	}
	return l.Mountpaths[i], true
}

func (l layout) slot(id string) (slot, bool) {
	i := slices.IndexFunc(l.Mountpaths, func(sl slot) bool { return sl.ID == id })
	if i < 0 {
		return slot{}, false
	}
	return l.Mountpaths[i], true
}

// scatters tells whether objects may not be where the mountpaths in use make HRW say:
// one is among them that wasn't there, or not in use, at the time of the layout. That
// some are gone makes no difference to where those of the others belong.
func (l layout) scatters(up []*mountpath) bool {
	if l.Scattered {
		return true
	}
	fresh := 0
	for _, m := range up {
		if sl, ok := l.slot(m.id()); ok && sl.Disabled == "" {
			continue
		}
		if fresh++; !m.fresh {
			return len(up) > 1
		}
	}
	return fresh != 0 && fresh != len(up)
}

// saveLayout writes the layout to every mountpath in use, with the state that changes
// give to some. One copy is enough. The caller holds layoutMu.
func (s *Store) saveLayout(changes map[*mountpath]*fault) {
	l := layout{Generation: s.generation + 1, Scattered: s.scattered.Load()}
	for _, m := range s.mounts {
		sl := slot{ID: m.id(), Dir: m.dir, Mounted: m.ident.Load().mounted}
		f, ok := changes[m]
		if !ok {
			f = m.down.Load()
		}
		if f != nil {
			sl.Disabled, sl.ByHand = f.err.Error(), f.byHand
		}
		l.Mountpaths = append(l.Mountpaths, sl)
	}
	s.generation = l.Generation
	for _, m := range s.mounts {
		f, ok := changes[m]
		if !ok {
			f = m.down.Load()
		}
		if f != nil && !f.byHand {
			continue
		}
		if err := l.write(s, m); err != nil {
			s.log.Error("a mountpath's layout can't be written", "folder", m.dir, "err", err)
		}
	}
}

// isMounted tells whether a file system is mounted at a folder.
func isMounted(dir string) bool {
	var in, above unix.Stat_t
	return unix.Stat(dir, &in) == nil && unix.Stat(filepath.Dir(dir), &above) == nil && in.Dev != above.Dev
}
