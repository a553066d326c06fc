package fusefs

import (
	"bytes"
	"fmt"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// Limits on what is kept of a command that may never become one.
const (
	maxLine    = 8 << 10 // bytes of a line of a plain-text manifest
	maxDepth   = 32      // of a JSON value; a manifest needs 3
	maxLiteral = 64      // bytes of a number or word outside strings
)

// rawCommand is the text of one whole command.
type rawCommand struct {
	text  []byte
	plain bool // a plain-text manifest, not JSON
}

// parser cuts the bytes of a session into commands, wherever the writes are cut: a
// JSON object ends with its last brace, plain text with an empty line. It is pure:
// bytes in, commands or an error out. It refuses as early as it can, so that
// gigabytes of anything else cost no memory; what it lets through is decoded, and
// refused for good, afterwards.
type parser struct {
	buf   []byte
	mode  parserMode
	depth int
	open  [maxDepth]byte // the brackets that are open
	// JSON
	inString, escaped bool
	literal           int  // bytes of the word or number being read
	first             bool // nothing but space since the opening brace
	// plain text
	line  int // bytes of the line being read
	blank bool
	lines int // lines with something in them
}

type parserMode uint8

const (
	between parserMode = iota // commands; only space so far
	inJSON
	inText
)

func bad(format string, a ...any) error {
	return errs.New(errs.InvalidArgument, "control", fmt.Sprintf(format, a...))
}

// next reads data up to the end of the next command and says how many bytes that
// took; without a whole command it takes all. After an error reset it.
func (p *parser) next(data []byte) (cmd *rawCommand, n int, err error) {
	for n < len(data) {
		var done bool
		var took int
		switch p.mode {
		case between:
			if took = p.begin(data[n:]); took < 0 {
				return nil, n, bad("a command is a JSON object or a line that begins with a bucket's name; this begins with %q", data[n-took-1])
			}
		case inJSON:
			took, done, err = p.json(data[n:])
		case inText:
			took, done, err = p.text(data[n:])
		}
		if err != nil {
			return nil, n, err
		}
		if len(p.buf)+took > batching.MaxManifest {
			return nil, n, errs.New(errs.TooManyEntries, "control", fmt.Sprintf("a command of more than %d bytes", batching.MaxManifest))
		}
		if p.mode != between {
			p.buf = append(p.buf, data[n:n+took]...)
		}
		n += took
		if done {
			cmd := &rawCommand{text: p.buf, plain: p.mode == inText}
			p.reset()
			return cmd, n, nil
		}
	}
	return nil, n, nil
}

// finish gives the plain-text manifest that the session's end closes.
func (p *parser) finish() *rawCommand {
	defer p.reset()
	if p.mode == inText {
		return &rawCommand{text: p.buf, plain: true}
	}
	return nil
}

// begun tells whether a command has begun in earlier bytes.
func (p *parser) begun() bool { return p.mode != between }

func (p *parser) reset() { *p = parser{} }

// begin skips space and sets the mode; a negative result −1−i says that byte i
// begins nothing.
func (p *parser) begin(data []byte) int {
	i := 0
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	if i == len(data) {
		return i
	}
	switch c := data[i]; {
	case c == '{':
		p.mode = inJSON
	case c == '[' || c == '"' || c < ' ':
		return -1 - i
	default:
		p.mode, p.blank = inText, true
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// json reads on until the object is closed, looking no closer than it takes to
// find its end and to see that it can't become one.
func (p *parser) json(data []byte) (took int, done bool, err error) {
	for i, c := range data {
		switch {
		case p.inString:
			switch {
			case p.escaped:
				p.escaped = false
			case c == '\\':
				p.escaped = true
			case c == '"':
				p.inString = false
			case c < ' ':
				return i, false, bad("not JSON: a control character in a string")
			}
			continue
		case isSpace(c):
			p.literal = 0
			continue
		}
		if p.first && c != '"' && c != '}' {
			return i, false, bad("not JSON: %q after the opening brace", c)
		}
		p.first = false
		switch c {
		case '"':
			p.inString, p.literal = true, 0
		case '{', '[':
			if p.depth == maxDepth {
				return i, false, bad("not a command: more than %d brackets deep", maxDepth)
			}
			p.open[p.depth] = c
			p.depth++
			p.first, p.literal = c == '{', 0
		case '}', ']':
			if p.open[p.depth-1] != c-2 { // in ASCII a bracket closes the one two before it
				return i, false, bad("not JSON: %q closes %q", c, p.open[p.depth-1])
			}
			p.depth--
			p.literal = 0
			if p.depth == 0 {
				return i + 1, true, nil
			}
		case ',', ':':
			p.literal = 0
		default:
			if p.literal++; p.literal > maxLiteral || !isLiteral(c) {
				return i, false, bad("not JSON: %q outside a string", c)
			}
		}
	}
	return len(data), false, nil
}

// isLiteral tells whether c occurs in a number, true, false or null.
func isLiteral(c byte) bool {
	return c >= '0' && c <= '9' || bytes.IndexByte([]byte("+-.eEtrufalsn"), c) >= 0
}

// text reads on until an empty line.
func (p *parser) text(data []byte) (took int, done bool, err error) {
	for i, c := range data {
		if c != '\n' {
			if p.line++; p.line > maxLine {
				return i, false, bad("a line of more than %d bytes: want bucket/object or bucket/shard.tar@/member", maxLine)
			}
			if c == 0 {
				return i, false, bad("a NUL byte in a plain-text manifest")
			}
			p.blank = p.blank && isSpace(c)
			continue
		}
		if p.blank {
			return i + 1, true, nil
		}
		p.line, p.blank = 0, true
		// Comments count too: a manifest of nothing else is refused when decoded.
		if p.lines++; p.lines > 2*batching.MaxEntries {
			return i, false, errs.New(errs.TooManyEntries, "control", fmt.Sprintf("more than %d lines", 2*batching.MaxEntries))
		}
	}
	return len(data), false, nil
}
