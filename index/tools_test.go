package index

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// command runs a tar program. Both are needed: they are what shards are made with.
func command(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	c := exec.Command(name, args...)
	var out, fault bytes.Buffer
	c.Stdout, c.Stderr = &out, &fault
	if err := c.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s(Debian: apt-get install tar libarchive-tools)", name, args, err, fault.String())
	}
	return out.Bytes()
}

// tree writes files into a folder. Names stay below what v7 can hold unless long.
func tree(t *testing.T, long bool) (dir string, want map[string]string) {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	dir, want = t.TempDir(), map[string]string{"empty": "", "block": randomBody(r, 512), "a b/c=d": "blank and equals sign"}
	for i := range 40 {
		want[fmt.Sprintf("d%d/f%02d.bin", i%4, i)] = randomBody(r, r.IntN(5000))
	}
	want["large"] = randomBody(r, 200_000)
	if long {
		want[strings.Repeat("directory/", 20)+"file"] = "a long path"
		want[strings.Repeat("n", 200)] = "a long name"
		want["größe/猫.jpg"] = "UTF-8"
	}
	for name, body := range want {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		os.Symlink("empty", filepath.Join(dir, "symlink")),
		os.Mkdir(filepath.Join(dir, "void"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir, want
}

func TestTarPrograms(t *testing.T) {
	for _, c := range []struct {
		program, format string
		long            bool
	}{
		{"tar", "v7", false}, {"tar", "oldgnu", true}, {"tar", "gnu", true}, {"tar", "ustar", false}, {"tar", "posix", true},
		{"bsdtar", "v7", false}, {"bsdtar", "ustar", false}, {"bsdtar", "gnutar", true}, {"bsdtar", "pax", true},
	} {
		for _, what := range []string{".", "each"} {
			t.Run(c.program+"/"+c.format+"/"+what, func(t *testing.T) {
				dir, want := tree(t, c.long)
				args := []string{"--format=" + c.format, "-cf", "-", "-C", dir}
				if what == "." {
					args = append(args, ".")
				} else {
					entries, err := os.ReadDir(dir)
					if err != nil {
						t.Fatal(err)
					}
					for _, e := range entries {
						args = append(args, e.Name())
					}
				}
				shard := command(t, c.program, args...)
				x := mustBuild(t, shard)
				checkContents(t, x, shard, want)
				s := x.Skipped()
				if s.Links != 1 || s.Directories == 0 || s.Total() != s.Links+s.Directories {
					t.Errorf("skipped %+v", s)
				}
				info, err := os.Stat(filepath.Join(dir, "large"))
				if err != nil {
					t.Fatal(err)
				}
				if m, _ := x.Lookup("large"); m.ModTime.Unix() != info.ModTime().Unix() {
					t.Errorf("modified %v, want %v", m.ModTime, info.ModTime())
				}
			})
		}
	}
}

func TestSparse(t *testing.T) {
	dir := t.TempDir()
	// Many holes: the map goes on in extension headers.
	for name, holes := range map[string]int{"few": 2, "many": 60, "hole": 0} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for i := range holes {
			if _, err := f.WriteAt(bytes.Repeat([]byte{'x'}, 4096), int64(i)*64<<10); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Truncate(8 << 20); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "dense"), []byte("dense"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, format := range [][]string{
		{"--format=gnu"}, {"--format=oldgnu"}, {"--format=posix", "--sparse-version=0.0"},
		{"--format=posix", "--sparse-version=0.1"}, {"--format=posix", "--sparse-version=1.0"},
	} {
		t.Run(strings.Join(format, " "), func(t *testing.T) {
			args := append([]string{"--sparse", "--hole-detection=raw", "-cf", "-", "-C", dir}, format...)
			shard := command(t, "tar", append(args, "dense", "few", "many", "hole")...)
			x := mustBuild(t, shard)
			checkContents(t, x, shard, map[string]string{"dense": "dense"})
			if x.Skipped() != (Skipped{Sparse: 3}) {
				t.Errorf("skipped %+v", x.Skipped())
			}
			// Half of a sparse file isn't a whole archive.
			for cut := int64(1536); cut < int64(len(shard))-10240; cut += 512 + 13 {
				y, err := buildBytes(shard[:cut])
				if err == nil {
					t.Fatalf("cut at %d of %d: %d members", cut, len(shard), y.Len())
				}
			}
		})
	}
}

func TestAppendedAndConcatenated(t *testing.T) {
	dir := t.TempDir()
	write := func(name, body string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("f", "old")
	a, b := filepath.Join(dir, "a.tar"), filepath.Join(dir, "b.tar")
	command(t, "tar", "-cf", a, "-C", dir, "f")
	write("f", "appended")
	command(t, "tar", "-rf", a, "-C", dir, "f")
	write("g", "other")
	command(t, "bsdtar", "-cf", b, "-C", dir, "g")
	command(t, "tar", "-Af", a, b)
	shard, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	x := mustBuild(t, shard)
	checkContents(t, x, shard, map[string]string{"f": "appended", "g": "other"})
	if x.Skipped() != (Skipped{Shadowed: 1}) {
		t.Errorf("skipped %+v", x.Skipped())
	}
}
