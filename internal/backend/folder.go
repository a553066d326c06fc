package backend

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"sheaf/internal/errs"
)

// workPrefix begins the names of files being written, which lie at the folder's top and
// aren't objects. What a crash leaves of them is removed when it is a day old.
const (
	workPrefix = ".sheaf-work-"
	workAge    = 24 * time.Hour
)

// folder is a folder whose files are the objects; os.Root keeps every name, and every
// symbolic link, inside it.
type folder struct{ root *os.Root }

var _ store = (*folder)(nil)

func openFolder(loc Location, o Options) (*folder, error) {
	dir, err := filepath.EvalSymlinks(loc.Folder)
	if err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "backend", err)
	}
	if !allowed(dir, o) {
		return nil, errs.New(errs.PermissionDenied, "backend", fmt.Sprintf("folder %s lies in none of the folders that this node allows for backends (--backend-root)", loc.Folder))
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "backend", err)
	}
	f := &folder{root: root}
	f.clean()
	return f, nil
}

// allowed compares folders with symbolic links followed, so that a link in an allowed
// folder doesn't lead out of it.
func allowed(dir string, o Options) bool {
	if o.AnyFolder {
		return true
	}
	for _, r := range o.Roots {
		r, err := filepath.EvalSymlinks(r)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(r, dir); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// clean removes work files that nobody can be writing any more.
func (f *folder) clean() {
	all, err := fs.ReadDir(f.root.FS(), ".")
	if err != nil {
		return // the first call says what is wrong
	}
	for _, e := range all {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), workPrefix) && info.Mode().IsRegular() && time.Since(info.ModTime()) > workAge {
			_ = f.root.Remove(e.Name()) // it is tried again at the next start
		}
	}
}

// file gives the path of an object inside the folder; false for a name that no file can have.
func file(name string) (string, bool) {
	if name == "" || path.Clean(name) != name || name[0] == '/' || strings.HasPrefix(name, workPrefix) {
		return "", false
	}
	return filepath.FromSlash(name), true
}

// of describes a file as an object.
func of(name string, info fs.FileInfo) Object {
	return Object{Name: name, Size: info.Size(), ModTime: info.ModTime(), Version: fmt.Sprintf("%x-%x", info.ModTime().UnixNano(), info.Size())}
}

func (f *folder) head(_ context.Context, name string) (Object, error) {
	p, ok := file(name)
	if !ok {
		return Object{}, fs.ErrNotExist
	}
	info, err := f.root.Stat(p)
	if err != nil {
		return Object{}, err
	}
	if !info.Mode().IsRegular() {
		return Object{}, fs.ErrNotExist
	}
	return of(name, info), nil
}

func (f *folder) get(_ context.Context, name string, off, length int64, version string) (Object, io.ReadCloser, error) {
	p, ok := file(name)
	if !ok {
		return Object{}, nil, fs.ErrNotExist
	}
	// Without O_NONBLOCK a pipe that somebody put there would block for ever.
	fd, err := f.root.OpenFile(p, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Object{}, nil, err
	}
	info, err := fd.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = fs.ErrNotExist
	case err == nil && version != "" && of(name, info).Version != version:
		err = errChanged
	}
	if err != nil {
		_ = fd.Close()
		return Object{}, nil, err
	}
	obj := of(name, info)
	if length < 0 {
		length = max(obj.Size-off, 0)
	}
	return obj, &folderReader{SectionReader: io.NewSectionReader(fd, off, length), f: fd, obj: obj}, nil
}

// folderReader reads a file and tells at its end whether it was changed meanwhile.
type folderReader struct {
	*io.SectionReader
	f   *os.File
	obj Object
}

func (r *folderReader) Read(p []byte) (int, error) {
	n, err := r.SectionReader.Read(p)
	if at, _ := r.Seek(0, io.SeekCurrent); err == io.EOF || err == nil && at == r.Size() {
		if info, e := r.f.Stat(); e == nil && of(r.obj.Name, info).Version != r.obj.Version {
			return 0, errChanged
		}
	}
	return n, err
}

func (r *folderReader) Close() error { return r.f.Close() }

// put writes a work file, makes it durable and gives it its name.
func (f *folder) put(ctx context.Context, name string, r io.Reader, o PutOptions) (Object, error) {
	p, ok := file(name)
	if !ok {
		return Object{}, errs.New(errs.InvalidArgument, "", fmt.Sprintf("a folder has no file of the name %q", name))
	}
	if len(o.Attrs) > 0 {
		return Object{}, errs.New(errs.NotSupported, "", "a folder keeps no attributes of objects")
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	work := workPrefix + hex.EncodeToString(id[:])
	w, err := f.root.OpenFile(work, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return Object{}, err
	}
	defer func() {
		_ = w.Close()
		_ = f.root.Remove(work) // not there any more when it was renamed
	}()
	n, err := io.Copy(w, &canceled{ctx, r})
	if err == nil && o.Size >= 0 && n != o.Size {
		err = errSize
	}
	if err == nil {
		err = w.Sync()
	}
	if err != nil {
		return Object{}, err
	}
	dir := filepath.Dir(p)
	if err := f.mkdirs(dir); err != nil {
		return Object{}, err
	}
	if info, err := f.root.Lstat(p); err == nil && info.IsDir() {
		return Object{}, errs.New(errs.InvalidArgument, "", "a folder holds other objects under this name: it can't be a file too")
	}
	if o.Absent {
		err = f.root.Link(work, p)
	} else {
		err = f.root.Rename(work, p)
	}
	if err != nil {
		return Object{}, err
	}
	if err := f.syncDir(dir); err != nil {
		return Object{}, err
	}
	info, err := w.Stat()
	if err != nil {
		return Object{}, err
	}
	return of(name, info), nil
}

// mkdirs makes a folder and those above it, each durable before what lies in it.
func (f *folder) mkdirs(dir string) error {
	if info, err := f.root.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	if err := f.mkdirs(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := f.root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return f.syncDir(filepath.Dir(dir))
}

func (f *folder) syncDir(dir string) error {
	d, err := f.root.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// canceled is a reader that ends with its context.
type canceled struct {
	ctx context.Context
	r   io.Reader
}

func (c *canceled) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

func (f *folder) delete(ctx context.Context, name string) error {
	if _, err := f.head(ctx, name); err != nil {
		return err
	}
	if err := f.root.Remove(name); err != nil {
		return err
	}
	dir := filepath.Dir(name)
	if err := f.syncDir(dir); err != nil {
		return err
	}
	// Folders exist for their objects. One that isn't empty stays by itself.
	for ; dir != "." && f.root.Remove(dir) == nil; dir = filepath.Dir(dir) {
	}
	return nil
}

func (f *folder) close() error { return f.root.Close() }

// fault: the operating system's errors carry their meaning, but for a few that name a
// folder where an object was meant.
func (f *folder) fault(err error) *errs.Error {
	var e *errs.Error
	if errors.As(err, &e) {
		out := *e
		return &out
	}
	code := errs.CodeOf(err)
	switch {
	case errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		code = errs.InvalidArgument
	case errors.Is(err, syscall.ESTALE), errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENOTCONN), errors.Is(err, syscall.ENODEV):
		code = errs.Unavailable
	case code == errs.Internal:
		var pe *fs.PathError
		var le *os.LinkError
		if errors.As(err, &pe) || errors.As(err, &le) {
			code = errs.PermissionDenied // os.Root: the path leaves the folder
		}
	}
	return &errs.Error{Code: code, Err: err}
}
