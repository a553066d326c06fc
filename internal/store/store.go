package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

const (
	stripes    = 1024
	bufferSize = 512 << 10 // bytes in flight of one Put, whatever the object's size
)

// Info describes an object.
type Info struct {
	Name     string
	Size     int64             // bytes
	Version  uint64            // grows with every write of the name, also across a delete
	Checksum uint64            // xxh3-64 (seed 0) of the whole payload
	ModTime  time.Time         // when the store took it
	Attrs    map[string]string // custom attributes, nil for none; not to be changed
}

// Usage is the space of one mountpath, in bytes.
type Usage struct {
	Dir         string
	Free, Total int64
}

// Store is a set of mountpaths with the buckets on them. All methods may be called
// concurrently; every error they return is an *errs.Error.
type Store struct {
	log      *slog.Logger
	now      func() time.Time
	onFault  func(dir string, err error)
	provider string
	mounts   []*mountpath
	disk     disk
	folders  *folderSyncs
	buffers  sync.Pool // *[bufferSize]byte; Put takes one and gives it back
	hashers  sync.Pool // *xxh3.Hasher

	workID atomic.Uint64
	loose  atomic.Bool    // a relaxed write was made since Open, so what is in place may not be durable
	calls  sync.WaitGroup // every call under way; Close waits for it
	quit   chan struct{}  // closed by Close

	// scattered: an object may lie on another mountpath than HRW says, and older versions
	// of it on others; so a search looks everywhere. It is set before a mountpath comes into use
	// beside others, and cleared when everything was moved to where it belongs.
	scattered atomic.Bool
	changes   atomic.Uint64 // how often a mountpath came into use or went out of it

	resilvering sync.Mutex // one Resilver at a time

	layoutMu   sync.Mutex // taken last: a fault shows under any other lock
	generation uint64     // of the layout; guarded by layoutMu

	admin   sync.Mutex // one change of buckets or mountpaths at a time
	stripes [stripes]stripe

	mu      sync.RWMutex
	closed  bool
	buckets map[string]*bucket
}

// stripe serializes the commits of the names that hash to it.
type stripe struct {
	sync.Mutex
	high uint64 // the highest version committed under this stripe
}

// disk is the part of the operating system that tests let fail.
type disk struct {
	sync    func(*os.File) error
	syncDir func(dir string) error
	fault   func(op, path string) error // asked before an operation; nil: never
}

// Open takes the folders, which nobody else may use until Close, and removes what
// a crash left: work files, destroyed buckets.
func Open(o Options) (_ *Store, err error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return nil, &errs.Error{Code: errs.InvalidArgument, Op: "open store", Err: err}
	}
	s := &Store{
		log:      o.Logger,
		now:      o.Now,
		onFault:  o.OnMountpathFault,
		provider: names.Local,
		disk:     disk{sync: (*os.File).Sync, syncDir: syncDir},
		buckets:  map[string]*bucket{},
		quit:     make(chan struct{}),
	}
	s.folders = &folderSyncs{do: func(dir string) error { return s.disk.syncDir(dir) }, folders: map[string]*folderSync{}}
	s.buffers.New = func() any { return new([bufferSize]byte) }
	s.hashers.New = func() any { return xxh3.New() }
	defer func() {
		if err != nil {
			close(s.quit)
			s.calls.Wait()
			for _, m := range s.mounts {
				m.close()
			}
			err = fail("open store", "", "", err)
		}
	}()
	if err := sameFolder(o.Dirs); err != nil {
		return nil, err
	}
	if err := s.take(o.Dirs); err != nil {
		return nil, err
	}
	for _, m := range s.up() {
		if err := m.watch(m.openCatalog()); err != nil && !isDown(err) {
			return nil, err
		}
	}
	if err := s.load(); err != nil {
		return nil, err
	}
	if err := s.checkCatalogs(context.Background()); err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits for the calls under way and gives the folders back. Open objects stay
// readable.
func (s *Store) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	s.mu.Unlock()
	if was {
		return nil
	}
	close(s.quit)
	s.calls.Wait()
	var all []error
	for _, m := range s.mounts {
		if s.loose.Load() && m.enabled() {
			// A clean catalog vouches for what relaxed writes left to the kernel.
			if err := unix.Syncfs(int(m.lock.Fd())); err != nil {
				m.agrees = false
				all = append(all, fmt.Errorf("sync folder %q: %w", m.dir, err))
			}
		}
		if err := m.close(); m.enabled() {
			all = append(all, err)
		} else if err != nil {
			s.log.Debug("a disabled mountpath was closed", "folder", m.dir, "err", err)
		}
	}
	return fail("close store", "", "", errors.Join(all...))
}

// enter begins a call, which must end with s.calls.Done.
func (s *Store) enter() error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errs.New(errs.Unavailable, "", "the store is closed")
	}
	s.calls.Add(1)
	return nil
}

// begin is enter for a call on a bucket and, unless object is nil, an object of it.
func (s *Store) begin(name string, object *string) (*bucket, error) {
	if err := names.CheckBucket(name); err != nil {
		return nil, err
	}
	if object != nil && (*object == "" || len(*object) > names.MaxObject) {
		return nil, names.CheckObject(*object)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, errs.New(errs.Unavailable, "", "the store is closed")
	}
	b, ok := s.buckets[name]
	if !ok {
		return nil, errs.New(errs.BucketNotFound, "", "")
	}
	s.calls.Add(1)
	return b, nil
}

// stripe gives the lock of an object's commits.
func (s *Store) stripe(bucket, name string) *stripe {
	return &s.stripes[xxh3.HashString(bucket+"/"+name)%stripes]
}

// Usage gives the space of every mountpath in use.
func (s *Store) Usage() ([]Usage, error) {
	const op = "usage"
	if err := s.enter(); err != nil {
		return nil, fail(op, "", "", err)
	}
	defer s.calls.Done()
	var all []Usage
	for _, m := range s.up() {
		free, total, err := m.space()
		if err = m.watch(err); isDown(err) {
			continue
		} else if err != nil {
			return nil, fail(op, "", "", err)
		}
		all = append(all, Usage{Dir: m.dir, Free: free, Total: total})
	}
	return all, nil
}

// fail names what an error happened to; it leaves the code as it is.
func fail(op, bucket, object string, err error) error {
	if err == nil {
		return nil
	}
	out := &errs.Error{Code: errs.CodeOf(err), Op: op, Bucket: bucket, Object: object, Err: err}
	if e, ok := err.(*errs.Error); ok && e.Op == "" {
		out.Msg, out.Err = e.Msg, e.Err
	}
	return out
}

// diskFault is fail for the store's own files: a missing one there isn't a missing
// object but a folder that was taken away.
func diskFault(err error) error {
	if errs.IsCode(err, errs.NotFound) || errs.IsCode(err, errs.AlreadyExists) || errs.IsCode(err, errs.IsDirectory) {
		return &errs.Error{Code: errs.Internal, Msg: "the folder was changed from outside", Err: err}
	}
	return err
}
