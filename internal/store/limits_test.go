package store

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sheaf/internal/errs"
)

// A file system without inodes: clear errors, no work file is left, what is there stays
// readable, and deletions give the inodes back.
func TestNoInodes(t *testing.T) {
	dir := mount(t, "tmpfs", "size=64m,nr_inodes=120")
	s := reopen(t, dir)
	must(t, s.CreateBucket("b"))
	var names []string
	for i := 0; ; i++ {
		if i == 200 {
			t.Fatal("200 objects fit into 120 inodes")
		}
		name := fmt.Sprintf("d%d/o%d", i%7, i)
		_, err := s.Put(t.Context(), "b", name, strings.NewReader("body"), PutOptions{Size: 4})
		if err != nil {
			wantCode(t, err, errs.NoSpace)
			break
		}
		names = append(names, name)
	}
	wantNoWork(t, s)
	wantDown(t, s)
	for _, name := range names {
		wantBody(t, s, name, "body")
	}
	for _, name := range names[:len(names)/2] {
		del(t, s, name)
	}
	put(t, s, "d0/again", "again")
	wantBody(t, s, "d0/again", "again")
	dirs := s.dirs()
	must(t, s.Close())
	s = reopen(t, dirs...)
	wantBody(t, s, "d0/again", "again")
}

// A process without file descriptors: clear errors, no mountpath is disabled, and when
// there are some again everything works. The limit is a child's own.
func TestNoDescriptors(t *testing.T) {
	if dir := os.Getenv("SHEAF_TEST_NOFILE"); dir != "" {
		noDescriptors(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestNoDescriptors$", "-test.v")
	cmd.Env = append(os.Environ(), "SHEAF_TEST_NOFILE="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for sc := bufio.NewScanner(strings.NewReader(string(out))); sc.Scan(); {
		if strings.Contains(sc.Text(), "refused") {
			return
		}
	}
	t.Errorf("nothing was refused:\n%s", out)
}

func noDescriptors(t *testing.T, dir string) {
	s := reopen(t, filepath.Join(dir, "0"), filepath.Join(dir, "1"))
	must(t, s.CreateBucket("b"))
	put(t, s, "d/there", "body")
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}))
	var held []*os.File
	for {
		f, err := os.Open(dir)
		if err != nil {
			break
		}
		held = append(held, f)
	}
	refused := 0
	for i := range 20 {
		if _, err := s.Put(t.Context(), "b", fmt.Sprint("d/o", i), strings.NewReader("body"), PutOptions{Size: 4}); err != nil {
			wantShort(t, err)
			refused++
		}
		if _, err := s.Open("b", "d/there"); err != nil {
			wantShort(t, err)
			refused++
		}
	}
	t.Logf("%d calls were refused", refused)
	// What the catalogs write by themselves meets the limit too.
	for _, m := range s.mounts {
		c := m.catalog.Load()
		must(t, c.enter())
		db := c.db
		c.use.RUnlock()
		if err := db.Flush(); err != nil {
			t.Logf("flush: %v", err)
		}
	}
	for _, f := range held {
		must(t, f.Close())
	}
	// A catalog that failed shows when it is used; its mountpath comes back by itself.
	eventually(t, "everything works again", func() bool {
		for i := range 20 {
			if _, err := s.Put(t.Context(), "b", fmt.Sprint("d/o", i), strings.NewReader("again"), PutOptions{Size: 5}); err != nil {
				return false
			}
		}
		for _, st := range s.Mountpaths() {
			if !st.Enabled {
				return false
			}
		}
		_, err := s.Stat("b", "d/there")
		return err == nil
	})
	for i := range 20 {
		wantBody(t, s, fmt.Sprint("d/o", i), "again")
	}
	wantBody(t, s, "d/there", "body")
	wantNoWork(t, s)
}

// wantShort: the call says what the process is short of, or that a mountpath is out of use
// for that.
func wantShort(t *testing.T, err error) {
	t.Helper()
	if !errs.IsCode(err, errs.Unavailable) {
		wantCode(t, err, errs.TooManyRequests)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("%v doesn't say why", err)
	}
}
