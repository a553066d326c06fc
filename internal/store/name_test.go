package store

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestEncodeName(t *testing.T) {
	for _, c := range []struct{ name, path string }{
		{"a", "a"}, {"a/b", "a/b"}, {"a//b", "a/%/b"}, {"a/", "a/%"}, {"/", "%/%"}, {".", "%2E"}, {"a/../b", "a/%2E%2E/b"}, {"...", "..."},
		{"%", "%25"}, {"50%/x", "50%25/x"}, {"\x00", "%00"}, {"ü", "ü"}, {"%2E", "%252E"}, {".a", ".a"},
		{"", ""}, {strings.Repeat("x", 256), ""}, {strings.Repeat("%", 86), ""}, {strings.Repeat("%/", 512), strings.Repeat("%25/", 512) + "%"},
	} {
		got, ok := encodeName(c.name)
		if len(c.path) > maxPath {
			c.path = ""
		}
		if got != c.path || ok != (c.path != "") {
			t.Errorf("%.20q: %.40q, %v; want %.40q", c.name, got, ok, c.path)
		}
	}
	for _, foreign := range []string{"", ".", "..", "%2", "%2e", "%41", "%%", "a%", "%2E%2e", "x/y", "%2F", "a%2E"} {
		if got, ok := decodeComponent(foreign); ok {
			t.Errorf("%q is decoded as %q", foreign, got)
		}
	}
}

// What a name is encoded as stays inside the folder, is clean, and decodes to that name.
func FuzzName(f *testing.F) {
	for _, s := range []string{"a/b", "..", "a//b/", "%2E", "50%", "\x00", "../../x", "%/%", strings.Repeat("y", 256)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		path, ok := encodeName(name)
		if ok {
			if !filepath.IsLocal(path) || filepath.Clean(path) != path || strings.IndexByte(path, 0) >= 0 {
				t.Fatalf("%q has the path %q", name, path)
			}
			var parts []string
			for _, c := range strings.Split(path, "/") {
				part, ok := decodeComponent(c)
				if !ok || len(c) > maxComponent {
					t.Fatalf("%q has the component %q", name, c)
				}
				parts = append(parts, part)
			}
			// A reverse that always gives back the name also makes the mapping injective.
			if got := strings.Join(parts, "/"); got != name {
				t.Fatalf("%q comes back as %q", name, got)
			}
		}
		// As a file name: whatever is decoded is the only name that gives that file.
		if c, ok := decodeComponent(name); ok {
			var b strings.Builder
			if encodeComponent(&b, c); b.String() != name {
				t.Fatalf("file %q is decoded as %q, which gives %q", name, c, b.String())
			}
		}
	})
}
