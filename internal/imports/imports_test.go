package imports

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// layers lists the module's packages from the ground up. A package may import those of
// lower layers, and those of its own group (listed together) not at all.
var layers = [][]string{
	{"internal/errs"},
	{"internal/names"},
	{"peer/wire"},
	{"peer", "index", "internal/store", "internal/backend"},
	{"batching", "peer/gossip"},
	{"server", "fusefs"},
	{"internal/testcluster", "bench/run"},
	{"cmd/sheaf", "bench", "bench/demo"},
}

// testOnly are packages that only tests import, or that are nothing but tests.
var testOnly = []string{"internal/backend/s3test", "peer/wire/wiretest", "internal/testcluster", "internal/imports", "internal/e2e", "internal/crash"}

// bans are imports that only some packages may have.
var bans = []struct {
	prefix string
	only   []string
	why    string
}{
	{"github.com/hanwen/go-fuse", []string{"fusefs"}, "the mount is the only place that knows FUSE"},
	{"github.com/urfave/cli", []string{"cmd/sheaf"}, "options come in as structs; only the command line parses flags"},
	{"github.com/schollz/progressbar", []string{"cmd/sheaf"}, "a library doesn't draw"},
	{"github.com/quic-go/quic-go", []string{"peer"}, "one place holds connections, windows and error codes"},
	{"github.com/hashicorp/memberlist", []string{"peer/gossip"}, "one place knows how nodes are found dead; nothing of it may open a port of its own"},
	{"github.com/vmihailenco/msgpack", []string{"peer/wire", "peer/wire/wiretest"}, "hostile bytes are decoded in one place, with limits"},
	{"net/http", []string{"server", "bench", "bench/run", "internal/backend"}, "HTTP is for operators and for S3"},
	{"gocloud.dev", []string{"internal/backend"}, "one place knows remote stores, their retries and their errors"},
	{"github.com/aws", []string{"internal/backend"}, "one place knows remote stores, their retries and their errors"},
	{"archive/tar", []string{"index", "batching", "bench", "bench/demo"}, "archives are hostile input: read where their limits are, written where they are made"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "sheaf/...")
	out, err := cmd.Output()
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			t.Fatalf("go list: %v\n%s", err, ee.Stderr)
		}
		t.Fatal(err)
	}
	var all []pkg
	d := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p pkg
		if err := d.Decode(&p); err == io.EOF {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func layerOf(path string) int {
	for i, l := range layers {
		if slices.Contains(l, path) {
			return i
		}
	}
	return -1
}

func TestImportsRunOneWay(t *testing.T) {
	all := list(t)
	if len(all) < 10 {
		t.Fatalf("only %d packages were found", len(all))
	}
	for _, p := range all {
		path := strings.TrimPrefix(p.ImportPath, "sheaf/")
		mine := layerOf(path)
		if mine < 0 && !slices.Contains(testOnly, path) {
			t.Errorf("%s has no layer: give it one", path)
			continue
		}
		for _, imp := range p.Imports {
			if dep, ours := strings.CutPrefix(imp, "sheaf/"); ours {
				switch theirs := layerOf(dep); {
				case slices.Contains(testOnly, dep) && !slices.Contains(testOnly, path):
					t.Errorf("%s imports %s, which is for tests", path, dep)
				case mine >= 0 && theirs >= mine:
					t.Errorf("%s imports %s, which isn't below it", path, dep)
				}
			}
			for _, b := range bans {
				if strings.HasPrefix(imp, b.prefix) && !slices.Contains(b.only, path) && !slices.Contains(testOnly, path) {
					t.Errorf("%s imports %s: %s", path, imp, b.why)
				}
			}
			if strings.HasPrefix(imp, "github.com/prometheus/client_golang") && mine >= 0 && mine < layerOf("batching") {
				t.Errorf("%s imports Prometheus: metrics begin with batching", path)
			}
		}
	}
}
