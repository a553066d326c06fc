package names

import (
	"strings"
	"testing"

	"sheaf/internal/errs"
)

func TestChecks(t *testing.T) {
	for _, c := range []struct {
		check func(string) error
		name  string
		ok    bool
	}{
		{CheckBucket, "imagenet-1k_v2.0", true},
		{CheckBucket, "", false}, {CheckBucket, ".hidden", false}, {CheckBucket, "a/b", false},
		{CheckBucket, "..", false}, {CheckBucket, strings.Repeat("a", 64), false}, {CheckBucket, "b\x00", false},
		{CheckObject, "a", true}, {CheckObject, "a/b.c/…", true}, {CheckObject, ".bashrc", true}, {CheckObject, "a//b", true},
		{CheckObject, "...", true}, {CheckObject, strings.Repeat("x", 1024), true},
		{CheckObject, "", false}, {CheckObject, "..", false}, {CheckObject, "a/../b", false}, {CheckObject, "a/.", false},
		{CheckObject, "./a", false}, {CheckObject, "a\x00b", false}, {CheckObject, "\xff", false}, {CheckObject, strings.Repeat("x", 1025), false},
		{CheckPrefix, "", true}, {CheckPrefix, "a/", true}, {CheckPrefix, "../", false},
		{CheckMember, "x/y", true}, {CheckMember, "/etc/passwd", false}, {CheckMember, "x/../../y", false}, {CheckMember, strings.Repeat("m", 5000), false},
	} {
		err := c.check(c.name)
		if (err == nil) != c.ok {
			t.Errorf("%.40q: %v, want ok=%v", c.name, err, c.ok)
		}
		if err != nil && errs.CodeOf(err) != errs.InvalidArgument {
			t.Errorf("%.40q: code %v", c.name, errs.CodeOf(err))
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%.40q: a message of %d bytes", c.name, len(err.Error()))
		}
	}
}

func TestSplit(t *testing.T) {
	for _, c := range [][4]string{
		{"b/o", "b", "o", ""}, {"b/d/o", "b", "d/o", ""}, {"b", "b", "", ""}, {"b/s.tar@/m/n", "b", "s.tar", "m/n"},
		{"b/s.tar", "b", "s.tar", ""}, {"b/x@/y", "b", "x@/y", ""}, {"b/s.tar@/", "b", "s.tar", ""},
	} {
		b, o, m := Split(c[0])
		if b != c[1] || o != c[2] || m != c[3] {
			t.Errorf("Split(%q) = %q %q %q", c[0], b, o, m)
		}
	}
}

func TestCheckAttrs(t *testing.T) {
	for name, c := range map[string]struct {
		attrs map[string]string
		ok    bool
	}{
		"none":           {nil, true},
		"some":           {map[string]string{"label": "cat", "ö": ""}, true},
		"an empty key":   {map[string]string{"": "x"}, false},
		"NUL in a key":   {map[string]string{"a\x00": "x"}, false},
		"NUL in a value": {map[string]string{"a": "\x00"}, false},
		"not UTF-8":      {map[string]string{"a": "\xff"}, false},
		"as much as can": {map[string]string{"a": strings.Repeat("v", MaxAttrs-5)}, true},
		"more":           {map[string]string{"a": strings.Repeat("v", MaxAttrs-4)}, false},
	} {
		if err := CheckAttrs(c.attrs); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
