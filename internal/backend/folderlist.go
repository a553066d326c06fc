package backend

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"sheaf/internal/names"
)

// errFull ends the walk of a page that has all its names.
var errFull = errors.New("the page is full")

// list walks the folder in the order of whole names, passing over what lies before the
// page. Every folder on the way is read whole: a file system can't begin in its middle.
func (f *folder) list(ctx context.Context, o ListOptions) (Page, error) {
	w := &folderWalk{ctx: ctx, f: f, o: o}
	dir := "."
	if i := strings.LastIndexByte(o.Prefix, '/'); i > 0 {
		dir = o.Prefix[:i]
	}
	if dir != "." {
		if _, ok := file(dir); !ok {
			return Page{}, nil // no file lies there
		}
	}
	err := w.dir(dir)
	if err == errFull {
		w.page.Next, err = w.last, nil
	}
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		err = nil
	}
	return w.page, err
}

type folderWalk struct {
	ctx  context.Context
	f    *folder
	o    ListOptions
	page Page
	last string
}

func (w *folderWalk) dir(dir string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	rows, err := w.rows(dir)
	if err != nil {
		return err
	}
	for _, r := range rows {
		switch {
		case !strings.HasPrefix(r.key, w.o.Prefix):
			// An object, or folder, that the prefix doesn't reach.
		case !r.folder:
			err = w.file(r.key)
		case r.key <= w.o.After && (!strings.HasPrefix(w.o.After, r.key) || w.o.Delimiter != "" && r.key == w.o.After):
			// The page begins behind all that lies there.
		case w.o.Delimiter == "":
			err = gone(w.dir(strings.TrimSuffix(r.key, "/")))
		default:
			err = w.prefix(r.key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gone passes over a folder that was removed while the walk was on its way to it.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

type folderRow struct {
	key    string // whole name; of a folder with a "/" at its end
	folder bool
}

// rows reads one folder, in the order that the names below have.
func (w *folderWalk) rows(dir string) ([]folderRow, error) {
	all, err := fs.ReadDir(w.f.root.FS(), dir)
	if err != nil {
		return nil, err
	}
	rows := make([]folderRow, 0, len(all))
	for _, e := range all {
		key := e.Name()
		if dir == "." {
			if strings.HasPrefix(key, workPrefix) {
				continue
			}
		} else {
			key = path.Join(dir, key)
		}
		switch {
		case names.CheckObject(key) != nil:
		case e.IsDir():
			rows = append(rows, folderRow{key + "/", true})
		case e.Type().IsRegular() || e.Type()&fs.ModeSymlink != 0: // a link to a folder isn't followed: it could be a loop
			rows = append(rows, folderRow{key, false})
		}
	}
	slices.SortFunc(rows, func(a, b folderRow) int { return strings.Compare(a.key, b.key) })
	return rows, nil
}

func (w *folderWalk) file(key string) error {
	if key <= w.o.After {
		return nil
	}
	obj, err := w.f.head(w.ctx, key)
	if err != nil {
		return nil //nolint:nilerr // removed meanwhile, or a link that leads nowhere that may be read
	}
	if err := w.room(); err != nil {
		return err
	}
	w.page.Objects = append(w.page.Objects, obj)
	w.last = key
	return nil
}

func (w *folderWalk) prefix(key string) error {
	// A folder without any object isn't a prefix of one.
	probe := &folderWalk{ctx: w.ctx, f: w.f, o: ListOptions{Prefix: key, Limit: 0}}
	err := gone(probe.dir(strings.TrimSuffix(key, "/")))
	if err != errFull {
		return err
	}
	if err := w.room(); err != nil {
		return err
	}
	w.page.Prefixes = append(w.page.Prefixes, key)
	w.last = key
	return nil
}

// room tells whether the page can take one name more.
func (w *folderWalk) room() error {
	if len(w.page.Objects)+len(w.page.Prefixes) >= w.o.Limit {
		return errFull
	}
	return nil
}
