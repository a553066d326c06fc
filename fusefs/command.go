package fusefs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"sheaf/batching"
	"sheaf/internal/errs"
)

// command is what a user writes: a manifest when Op is empty, else an operation on
// a batch.
type command struct {
	batching.Request
	Op   string            `json:"op,omitempty"`
	TTL  batching.Duration `json:"ttl,omitempty"`
	Bind bool              `json:"bind,omitempty"`
}

// parseCommand decodes and checks a whole command. Manifests come back normalized.
// The command comes back with an error too, when it was readable, for its id.
func parseCommand(raw *rawCommand) (*command, error) {
	c := new(command)
	if raw.plain {
		req, err := batching.ParseManifest(raw.text)
		if err == nil {
			c.Request = *req
		}
		return c, err
	}
	if err := batching.DecodeJSON(raw.text, c); err != nil {
		return c, err
	}
	switch c.Op {
	case "":
		if c.TTL < 0 || time.Duration(c.TTL) > maxTTL {
			return c, bad("ttl %v: want 0 (the mount's default) to %v", time.Duration(c.TTL), maxTTL)
		}
		return c, c.Normalize()
	case "cancel", "wait", "status", "release", "detach":
		if c.ID == "" {
			return c, bad("op %q needs an id", c.Op)
		}
		// Anything beside the two fields is a misunderstanding that had better be known.
		alone, _ := json.Marshal(command{Op: c.Op, Request: batching.Request{ID: c.ID}})
		if all, _ := json.Marshal(c); !bytes.Equal(alone, all) {
			return c, bad("op %q takes an id and nothing else", c.Op)
		}
		return c, nil
	}
	return c, bad("op %.40q: want cancel, wait, status, release or detach", c.Op)
}

// manifest is the request as it was understood, one JSON object and a newline: what
// `sheaf batch` takes too, so without what concerns the mount alone.
func (b *batch) manifest() []byte {
	req := *b.req
	req.ID = b.id
	text, err := json.Marshal(req)
	if err != nil { // can't be: every field came from JSON
		text = fmt.Appendf(nil, "{%q:%q}", "error", err)
	}
	return append(text, '\n')
}

// unknownBatch is the answer to an operation on an id that names nothing.
func unknownBatch(id string) error {
	return errs.New(errs.NotFound, "control", fmt.Sprintf("no batch %.80q", id))
}
