package fusefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// cut feeds pieces to a parser and gives the commands, and the first error.
func cut(pieces ...[]byte) (cmds []string, p *parser, err error) {
	p = new(parser)
	for _, d := range pieces {
		for len(d) > 0 {
			cmd, n, err := p.next(d)
			if err != nil {
				return cmds, p, err
			}
			if cmd != nil {
				cmds = append(cmds, string(bytes.TrimSpace(cmd.text)))
			}
			d = d[n:]
		}
	}
	return cmds, p, nil
}

var framing = []struct {
	in   string
	want []string
	rest string // what the session's end closes
}{
	{`{}`, []string{`{}`}, ""},
	{` {"a":1}` + "\n" + `{"b":[{"c":"}"}]}`, []string{`{"a":1}`, `{"b":[{"c":"}"}]}`}, ""},
	{`{"a":"\"}{"}{"b":"\\"}`, []string{`{"a":"\"}{"}`, `{"b":"\\"}`}, ""},
	{"{\"a\":\n{ } , \"b\" : -1.5e+3, \"c\":null}\n\n", []string{"{\"a\":\n{ } , \"b\" : -1.5e+3, \"c\":null}"}, ""},
	{"b/o\nb/p\n\n{}b/q", []string{"b/o\nb/p", "{}"}, "b/q"},
	{"\n\n  b/o\r\n\r\n#c\nb/q\n", []string{"b/o"}, "#c\nb/q"},
	{`{"unfinished":`, nil, ""},
	{"", nil, ""},
}

// However a session is cut into writes, the commands are the same.
func TestFraming(t *testing.T) {
	for _, tc := range framing {
		in := []byte(tc.in)
		for size := 1; size <= len(in)+1; size++ {
			got, p, err := cut(slices.Collect(slices.Chunk(in, size))...)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("%q in pieces of %d: %q %v", tc.in, size, got, err)
				break
			}
			rest := ""
			if r := p.finish(); r != nil {
				rest = string(bytes.TrimSpace(r.text))
			}
			if p.begun() || rest != tc.rest {
				t.Errorf("%q: %q is left, want %q", tc.in, rest, tc.rest)
			}
		}
	}
}

func TestFramingRefuses(t *testing.T) {
	big := strings.Repeat("x", maxLine)
	for name, tc := range map[string]struct {
		in   string
		code errs.Code
	}{
		"array":           {"[{}]", errs.InvalidArgument},
		"string":          {`"x"`, errs.InvalidArgument},
		"binary":          {"\x7fELF\x00", errs.InvalidArgument},
		"control":         {"\x01", errs.InvalidArgument},
		"long line":       {"b/" + big, errs.InvalidArgument},
		"wrong bracket":   {`{"a":[}`, errs.InvalidArgument},
		"no key":          {`{a`, errs.InvalidArgument},
		"word":            {`{"a":nonsense`, errs.InvalidArgument},
		"long number":     {`{"a":` + strings.Repeat("1", 100), errs.InvalidArgument},
		"depth":           {strings.Repeat(`{"a":[`, maxDepth), errs.InvalidArgument},
		"newline":         {"{\"a\n", errs.InvalidArgument},
		"too much":        {`{"a":"` + strings.Repeat(big, batching.MaxManifest/maxLine), errs.TooManyEntries},
		"too many lines":  {strings.Repeat("a\n", 2*batching.MaxEntries+1), errs.TooManyEntries},
		"too many spaces": {`{` + strings.Repeat(" ", batching.MaxManifest), errs.TooManyEntries},
	} {
		_, p, err := cut(slices.Collect(slices.Chunk([]byte(tc.in), 1<<20))...)
		if !errs.IsCode(err, tc.code) {
			t.Errorf("%s: %v", name, err)
		}
		if len(p.buf) > batching.MaxManifest {
			t.Errorf("%s: %d bytes are kept", name, len(p.buf))
		}
	}
}

func TestParseCommand(t *testing.T) {
	for _, tc := range []struct {
		in   string
		says string // "" is fine
	}{
		{`{"in":[{"bucket":"b","objname":"o"}]}`, ""},
		{`{"id":"x","ttl":5,"bind":true,"bucket":"b","in":[{"objname":"o"}]}`, ""},
		{`{"op":"wait","id":"x"}`, ""},
		{`{"op":"wait"}`, "needs an id"},
		{`{"op":"wait","id":"x","bind":true}`, "nothing else"},
		{`{"op":"wait","id":"x","in":[]}`, "nothing else"},
		{`{"op":"wait","id":"x","in":[{"objname":"o"}]}`, "nothing else"},
		{`{"op":"jump","id":"x"}`, "want cancel, wait"},
		{`{"in":[]}`, "no entries"},
		{`{"id":"../x","in":[{"bucket":"b","objname":"o"}]}`, "id"},
		{`{"in":[{"bucket":"b","objname":"o"}],"ttl":-1}`, "duration"},
		{`{"in":[{"bucket":"b","objname":"o"}],"ttl":"-1s"}`, "ttl"},
		{`{"in":[{"bucket":"b","objname":"o"}],"ttl":"25h"}`, "ttl"},
		{`{"in":[{"bucket":"b","objname":"o"}],"unknown":1}`, "unknown"},
		{`{"in":[{"bucket":"b","objname":"../o"}]}`, ".."},
	} {
		_, err := parseCommand(&rawCommand{text: []byte(tc.in)})
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q", tc.in, err, tc.says)
		}
	}
	many := []byte(`{"bucket":"b","in":[` + strings.Repeat(`{"objname":"o"},`, batching.MaxEntries) + `{"objname":"o"}]}`)
	if _, err := parseCommand(&rawCommand{text: many}); !errs.IsCode(err, errs.TooManyEntries) {
		t.Errorf("too many entries: %v", err)
	}
}

// FuzzCommands: the commands don't depend on where the writes are cut, what comes
// out as JSON has balanced brackets, and whatever is one whole object comes out.
func FuzzCommands(f *testing.F) {
	for _, tc := range framing {
		f.Add([]byte(tc.in), uint16(3))
	}
	f.Add([]byte(`{"op":"cancel","id":"b1"}{"in":[`), uint16(1))
	f.Fuzz(func(t *testing.T, in []byte, size uint16) {
		whole, _, err := cut(in)
		pieces, _, err2 := cut(slices.Collect(slices.Chunk(in, int(size)+1))...)
		if fmt.Sprint(err) != fmt.Sprint(err2) || !slices.Equal(whole, pieces) {
			t.Fatalf("whole: %q %v\nin pieces of %d: %q %v", whole, err, size+1, pieces, err2)
		}
		for _, c := range whole {
			_, _ = parseCommand(&rawCommand{text: []byte(c), plain: c == "" || c[0] != '{'})
		}
		var c command
		if len(in) > 0 && in[0] == '{' && batching.DecodeJSON(in, &c) == nil && json.Valid(in) {
			if err != nil || len(whole) != 1 {
				t.Fatalf("a valid command %q was cut into %q: %v", in, whole, err)
			}
		}
	})
}

func TestEventQueue(t *testing.T) {
	var q eventQueue
	take := func(n int) string {
		b := make([]byte, n)
		n, rest := q.take(b)
		return string(b[:n]) + "|" + string(rest)
	}
	equal(t, take(100), "|")
	for i := range 3 {
		q.pushReady("a", i)
		q.pushReady("b", i)
	}
	q.push("a", []byte("error of a\n"))
	q.pushReady("a", 3)
	q.pushReady("b", 3)
	q.pushReady("a", 4)
	q.push("", []byte("refused\n"))
	q.pushReady("b", 5) // not the neighbour
	equal(t, take(1000), `{"event":"ready","id":"a","from":0,"to":2}
{"event":"ready","id":"b","from":0,"to":3}
error of a
{"event":"ready","id":"a","from":3,"to":4}
refused
{"event":"ready","id":"b","from":5,"to":5}
|`)
	q.pushReady("b", 6) // what was taken doesn't grow
	q.push("b", []byte("a long line\n"))
	equal(t, take(50), `{"event":"ready","id":"b","from":6,"to":6}
|`)
	equal(t, take(5), "a lon|g line\n")
	if len(q.q) != 0 || len(q.last) != 0 {
		t.Errorf("left: %v %v", q.q, q.last)
	}
}
