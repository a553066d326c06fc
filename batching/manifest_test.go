package batching

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// refuses checks a refusal's code and that its text has all the words.
func refuses(t *testing.T, what string, err error, code errs.Code, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: taken", what)
		return
	}
	if !errs.IsCode(err, code) {
		t.Errorf("%s: the code of %q, want that of %q: %v", what, errs.CodeOf(err), code, err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: no word of %q in: %v", what, w, err)
		}
	}
}

func TestManifestRefused(t *testing.T) {
	many := `{"bucket":"b","in":[` + strings.Repeat(`{"objname":"o"},`, 99_999) + `{"objname":"o"}]}`
	for _, c := range []struct {
		name, text string
		code       errs.Code
		words      []string
	}{
		{"nothing", "", errs.InvalidArgument, []string{`"in" has no entries`}},
		{"blank", " \r\n\t\n", errs.InvalidArgument, []string{`"in" has no entries`}},
		{"only comments", "# a\n#b/c\n", errs.InvalidArgument, []string{`"in" has no entries`}},
		{"not JSON", "{\n  \"in\": [}", errs.InvalidArgument, []string{"not JSON at line 2 column 1", "'}'"}},
		{"cut", `{"in":[{"objname":"a"}`, errs.InvalidArgument, []string{"not JSON", "ends too early"}},
		{"an open brace", `{`, errs.InvalidArgument, []string{"ends too early"}},
		{"an array", `[{"bucket":"b","objname":"o"}]`, errs.InvalidArgument, []string{"array", "line 1 column"}},
		{"behind it", "{\"bucket\":\"b\",\"in\":[{\"objname\":\"o\"}]}\n x", errs.InvalidArgument, []string{"text after the JSON value at line 2"}},
		{"two of them", `{"bucket":"b","in":[{"objname":"o"}]}{}`, errs.InvalidArgument, []string{"text after the JSON value"}},
		{"unknown field", `{"bucket":"b","entries":[],"in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`unknown field "entries"`}},
		{"unknown field of an entry", `{"bucket":"b","in":[{"objname":"o","offset":1}]}`, errs.InvalidArgument, []string{`unknown field "offset"`}},
		{"a wrong type", `{"bucket":"b","in":[{"objname":7}]}`, errs.InvalidArgument, []string{`"in.objname"`, "number", "string"}},
		{"a wrong type in the middle", "{\"bucket\":\"b\",\n\"in\":{}}", errs.InvalidArgument, []string{`"in"`, "line 2", "object"}},
		{"no entries", `{}`, errs.InvalidArgument, []string{`"in" has no entries`}},
		{"null entries", `{"in":null}`, errs.InvalidArgument, []string{`"in" has no entries`}},
		{"empty entries", `{"in":[]}`, errs.InvalidArgument, []string{`"in" has no entries`}},
		{"no bucket", `{"in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"entry 0", "no bucket"}},
		{"no object", `{"bucket":"b","in":[{"objname":"o"},{}]}`, errs.InvalidArgument, []string{"entry 1", "object", "empty"}},
		{"an empty entry's member alone", `{"bucket":"b","in":[{"archpath":"m"}]}`, errs.InvalidArgument, []string{"entry 0", "object"}},
		{"negative start", `{"bucket":"b","in":[{"objname":"o","start":-1,"length":5}]}`, errs.InvalidArgument, []string{"entry 0", "start -1 is negative"}},
		{"negative length", `{"bucket":"b","in":[{"objname":"o","length":-2}]}`, errs.InvalidArgument, []string{"length -2 is negative", "to the end"}},
		{"start without length", `{"bucket":"b","in":[{"objname":"o","start":5}]}`, errs.InvalidArgument, []string{"start 5 needs a length"}},
		{"overflow", `{"bucket":"b","in":[{"objname":"o","start":9223372036854775807,"length":1}]}`, errs.InvalidArgument, []string{"overflows"}},
		{"a number too large", `{"bucket":"b","in":[{"objname":"o","start":9223372036854775808,"length":1}]}`, errs.InvalidArgument, []string{`"in.start"`, "9223372036854775808"}},
		{"a fraction", `{"bucket":"b","in":[{"objname":"o","start":0.5,"length":1}]}`, errs.InvalidArgument, []string{`"in.start"`, "0.5"}},
		{"too many entries", many, errs.TooManyEntries, []string{"100000 entries", "65536", "split"}},
		{"too many lines", strings.Repeat("b/o\n", 100_000), errs.TooManyEntries, []string{"65536", "split"}},
		{"up", `{"bucket":"b","in":[{"objname":"a/../../b"}]}`, errs.InvalidArgument, []string{"entry 0", `".."`}},
		{"here", `{"bucket":"b","in":[{"objname":"./b"}]}`, errs.InvalidArgument, []string{`"."`}},
		{"up in a member", `{"bucket":"b","in":[{"objname":"s.tar","archpath":"../x"}]}`, errs.InvalidArgument, []string{"member", `".."`}},
		{"an absolute member", `{"bucket":"b","in":[{"objname":"s.tar","archpath":"/etc/passwd"}]}`, errs.InvalidArgument, []string{"member", "absolute"}},
		{"NUL", `{"bucket":"b","in":[{"objname":"a\u0000b"}]}`, errs.InvalidArgument, []string{"NUL"}},
		{"NUL in a line", "b/a\x00b", errs.InvalidArgument, []string{"line 1", "NUL"}},
		{"not UTF-8", "b/a\xffb", errs.InvalidArgument, []string{"line 1", "UTF-8"}},
		{"a long object", `{"bucket":"b","in":[{"objname":"` + strings.Repeat("x", 1025) + `"}]}`, errs.InvalidArgument, []string{"1025 bytes", "1024"}},
		{"a long member", `{"bucket":"b","in":[{"objname":"s.tar","archpath":"` + strings.Repeat("x", 4097) + `"}]}`, errs.InvalidArgument, []string{"4097 bytes", "4096"}},
		{"a long bucket", `{"bucket":"` + strings.Repeat("x", 64) + `","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"64 bytes", "63"}},
		{"a strange bucket", `{"bucket":"b/c","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`"b/c"`}},
		{"a provider", `{"bucket":"b","provider":"gcp","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"provider", `"gcp"`, `"sheaf"`}},
		{"an entry's provider", `{"bucket":"b","in":[{"objname":"o","provider":"s3"}]}`, errs.InvalidArgument, []string{"entry 0", `"s3"`}},
		{"an id", `{"id":"a b","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`id "a b"`}},
		{"an id that leaves its folder", `{"id":"..","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`id ".."`}},
		{"a long id", `{"id":"` + strings.Repeat("x", 65) + `","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"64"}},
		{"a long opaque", `{"bucket":"b","in":[{"objname":"o","opaque":"` + strings.Repeat("x", 1025) + `"}]}`, errs.InvalidArgument, []string{"opaque", "1025", "1024"}},
		{"two formats", `{"mime":"tar","output_format":"frames","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`"tar"`, `"frames"`, "differ"}},
		{"a format", `{"output_format":"zip","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"output_format", `"zip"`, `"frames"`, `"tar"`}},
		{"a mime", `{"mime":".tgz","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`".tgz"`, `"frames"`, `"tar"`}},
		{"an assembly", `{"assembly":"direct","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"assembly", `"direct"`, `"auto"`, `"dt"`}},
		{"an order", `{"order":"any","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"order", `"any"`, `"strict"`}},
		{"a coloc", `{"coloc":3,"bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"coloc 3"}},
		{"a negative coloc", `{"coloc":-1,"bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"coloc -1"}},
		{"soft errors", `{"max_soft_errors":-2,"bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"max_soft_errors -2"}},
		{"a duration of no unit", `{"timeout":"90","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`duration "90"`, "30s", "seconds"}},
		{"a word as a duration", `{"timeout":"soon","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{`duration "soon"`}},
		{"a negative number as a duration", `{"timeout":-1,"bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"duration -1", "86400"}},
		{"a negative duration", `{"timeout":"-1s","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"timeout -1s"}},
		{"a huge duration", `{"timeout":1e300,"bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"duration 1e300"}},
		{"a day and a bit", `{"timeout":"24h1s","bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"timeout 24h0m1s", "24h0m0s"}},
		{"a list as a duration", `{"timeout":[1],"bucket":"b","in":[{"objname":"o"}]}`, errs.InvalidArgument, []string{"duration [1]"}},
		{"lines with faults", "b/ok\n\n# b/\nb/\nno-slash\n/x\nb/a/../c\n", errs.InvalidArgument,
			[]string{`line 4 ("b/")`, `line 5 ("no-slash")`, `line 6 ("/x")`, `line 7 ("b/a/../c")`, "want bucket/object or bucket/shard.tar@/member"}},
	} {
		req, err := ParseManifest([]byte(c.text))
		refuses(t, c.name, err, c.code, c.words...)
		if req != nil {
			t.Errorf("%s: a request besides the error", c.name)
		}
		if err != nil && len(err.Error()) > 4096 {
			t.Errorf("%s: %d bytes of message", c.name, len(err.Error()))
		}
	}
	_, err := ParseManifest(bytes.Repeat([]byte("#"), MaxManifest+1))
	refuses(t, "a manifest over the limit", err, errs.TooManyEntries, fmt.Sprint(MaxManifest))
}

// A user mends a manifest once: all faults are told, the first few with words.
func TestManifestListsFaultsAtOnce(t *testing.T) {
	_, err := ParseManifest([]byte(`{"id":"?","order":"x","coloc":9,"in":[{"objname":"o"},{"bucket":"b"},{"bucket":"b","objname":"o"},{"bucket":"b","objname":"o","start":-4}]}`))
	refuses(t, "six faults", err, errs.InvalidArgument, `id "?"`, `order "x"`, "coloc 9", "entry 0: no bucket", "entry 1:", "entry 3: start -4")
	if strings.Contains(err.Error(), "entry 2") || strings.Contains(err.Error(), "more") {
		t.Error(err)
	}
	_, err = ParseManifest([]byte(`{"in":[` + strings.Repeat(`{"objname":"o"},`, 999) + `{"objname":"o"}]}`))
	refuses(t, "a thousand faults", err, errs.InvalidArgument, "entry 0:", "entry 7:", "and 992 faults more")
	if strings.Contains(err.Error(), "entry 8") {
		t.Error(err)
	}
	_, err = ParseManifest([]byte(strings.Repeat("bad\n", 20)))
	refuses(t, "twenty bad lines", err, errs.InvalidArgument, "line 1 ", "line 8 ", "and 12 faults more")
	_, err = ParseManifest([]byte(strings.Repeat("bad\n", 8)))
	if err == nil || strings.Contains(err.Error(), "more") {
		t.Errorf("eight bad lines: %v", err)
	}
}

func TestManifestTaken(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name, text string
		want       Request
	}{
		{"the least", `{"in":[{"bucket":"b","objname":"o"}]}`, Request{In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}}}},
		{"defaults for entries", ` {"bucket":"b","provider":"ais","in":[{"objname":"o"},{"bucket":"c","provider":"sheaf","objname":"p"}]} ` + "\n",
			Request{Bucket: "b", Provider: "ais", In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}, {Bucket: "c", Provider: names.Local, ObjName: "p"}}}},
		{"everything", `{"id":"A.b_c-9","bucket":"b","mime":"tar","output_format":"tar","strm":false,"onob":true,"coer":true,"max_soft_errors":-1,"coloc":2,"assembly":"auto",
			"order":"strict","timeout":"1m30s","in":[{"objname":"s.tar","archpath":"d/m","start":3,"length":-1,"opaque":"x\u0000y"},{"objname":"o","length":7},{"objname":"o","length":-1}]}`,
			Request{ID: "A.b_c-9", Bucket: "b", Mime: "tar", OutputFormat: "tar", Strm: &no, Onob: true, Coer: true, MaxSoftErrors: -1, Coloc: 2, Assembly: "auto", Order: "strict",
				Timeout: Duration(90 * time.Second), In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "s.tar", ArchPath: "d/m", Start: 3, Length: -1, Opaque: "x\x00y"},
					{Bucket: "b", Provider: names.Local, ObjName: "o", Length: 7}, {Bucket: "b", Provider: names.Local, ObjName: "o", Length: -1}}}},
		{"strm said", `{"strm":true,"assembly":"dt","mime":"frames","in":[{"bucket":"b","objname":"o"}]}`,
			Request{Strm: &yes, Assembly: "dt", Mime: "frames", In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}}}},
		{"the farthest range", `{"in":[{"bucket":"b","objname":"o","start":9223372036854775806,"length":1}]}`,
			Request{In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o", Start: 1<<63 - 2, Length: 1}}}},
		{"seconds", `{"timeout":0.25,"in":[{"bucket":"b","objname":"o"}]}`, Request{Timeout: Duration(250 * time.Millisecond), In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}}}},
		{"a whole day", `{"timeout":86400,"in":[{"bucket":"b","objname":"o"}]}`, Request{Timeout: Duration(24 * time.Hour), In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}}}},
		{"lines", "# train\n\nb/o\r\n  \nb/dir/s.tar@/m/n.jpg\nb/not-a-shard@/x\nb/with space # not a comment\nb/é", Request{In: []Entry{
			{Bucket: "b", Provider: names.Local, ObjName: "o"}, {Bucket: "b", Provider: names.Local, ObjName: "dir/s.tar", ArchPath: "m/n.jpg"},
			{Bucket: "b", Provider: names.Local, ObjName: "not-a-shard@/x"}, {Bucket: "b", Provider: names.Local, ObjName: "with space # not a comment"},
			{Bucket: "b", Provider: names.Local, ObjName: "é"}}}},
		{"one line", "b/o", Request{In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}}}},
		{"one of each twice", "b/o\nb/o\n", Request{In: []Entry{{Bucket: "b", Provider: names.Local, ObjName: "o"}, {Bucket: "b", Provider: names.Local, ObjName: "o"}}}},
	} {
		got, err := ParseManifest([]byte(c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(c.want)
		if !bytes.Equal(a, b) {
			t.Errorf("%s:\ngot  %s\nwant %s", c.name, a, b)
		}
		// What was written out is the same manifest again.
		again, err := ParseManifest(a)
		if err != nil {
			t.Errorf("%s, written and read again: %v", c.name, err)
			continue
		}
		if d, _ := json.Marshal(again); !bytes.Equal(a, d) {
			t.Errorf("%s: written and read again it is %s, was %s", c.name, d, a)
		}
	}
	full := strings.Repeat("b/o\n", MaxEntries)
	if req, err := ParseManifest([]byte(full)); err != nil || len(req.In) != MaxEntries {
		t.Errorf("as many lines as may be: %v", err)
	}
}

func FuzzManifest(f *testing.F) {
	for _, s := range []string{"", "{", "[]", "b/o\n", "# c\nb/s.tar@/m", `{"in":[{"bucket":"b","objname":"o","start":1,"length":-1}],"timeout":"3s","coloc":1}`,
		`{"bucket":"b","in":[{"objname":"a/../b"}],"strm":false,"mime":"tar"}`, "b/a\x00", "b/\xff", `{"timeout":1e3,"in":null}`, "{\"in\":[{\"objname\":\"\\ud800\",\"bucket\":\"b\"}]}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		req, err := ParseManifest(text)
		if err != nil {
			if req != nil {
				t.Fatal("a request besides the error")
			}
			if c := errs.CodeOf(err); c != errs.InvalidArgument && c != errs.TooManyEntries {
				t.Fatalf("code %v: %v", c, err)
			}
			return
		}
		if len(req.In) == 0 || len(req.In) > MaxEntries {
			t.Fatalf("%d entries", len(req.In))
		}
		for i := range req.In {
			e := req.In[i]
			if names.CheckBucket(e.Bucket) != nil || names.CheckObject(e.ObjName) != nil || e.ArchPath != "" && names.CheckMember(e.ArchPath) != nil || e.Provider != names.Local {
				t.Fatalf("entry %d: %+v", i, e)
			}
			off, n, err := e.Range(1<<63 - 1)
			if err != nil || off < 0 || n < 0 || off+n < 0 {
				t.Fatalf("entry %d: %d bytes from %d: %v", i, n, off, err)
			}
			if _, err := TarHeader(ArchiveName(&e, req.Onob, true), n); err != nil {
				t.Fatalf("entry %d has no place in an archive: %v", i, err)
			}
		}
		before, _ := json.Marshal(req)
		if err := req.Normalize(); err != nil {
			t.Fatalf("once more: %v", err)
		}
		if after, _ := json.Marshal(req); !bytes.Equal(before, after) {
			t.Fatalf("normalizing once more changed %s to %s", before, after)
		}
	})
}
