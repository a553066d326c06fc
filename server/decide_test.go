package server

import (
	"fmt"
	"testing"
)

func TestDecide(t *testing.T) {
	has := func(v uint64) holding { return holding{known: true, version: v} }
	done := func(v uint64) holding { return holding{known: true, version: v, done: true} }
	unknown := holding{}
	self := holding{} // what stands at the node's own place isn't looked at
	for _, c := range []struct {
		what    string
		self    int
		holders []holding
		few     bool // fewer holders than the bucket wants copies
		want    string
	}{
		{what: "the only holder", self: 0, holders: []holding{self}, want: ""},
		{what: "all holders have it", self: 1, holders: []holding{has(5), self, has(5)}, want: ""},
		{what: "no node is up", self: -1, want: "wait"},

		// A holder sends to the others, the first that has the newest for all.
		{what: "the others lack it", self: 0, holders: []holding{self, has(0), has(4)}, want: "push [1 2] wait"},
		{what: "the second, the owner lacks it", self: 1, holders: []holding{has(0), self, has(0)}, want: "push [0 2] wait"},
		{what: "the owner has it too and sends", self: 1, holders: []holding{has(5), self, has(0)}, want: ""},
		{what: "the owner has it too and is done", self: 1, holders: []holding{done(5), self, has(0)}, want: "push [2] wait"},
		{what: "the owner doesn't answer", self: 1, holders: []holding{unknown, self, has(0)}, want: "push [2] wait"},
		{what: "nobody answers", self: 0, holders: []holding{self, unknown}, want: "wait"},

		// Another holder has a newer one.
		{what: "a newer one comes", self: 0, holders: []holding{self, has(6), has(0)}, want: ""},
		{what: "a newer one doesn't come", self: 0, holders: []holding{self, done(6), has(0)}, want: "wait pull"},
		{what: "a newer one, and one that doesn't answer", self: 0, holders: []holding{self, done(6), unknown}, want: "wait"},

		// Not a holder.
		{what: "all holders have it", self: -1, holders: []holding{has(5), has(5)}, want: "remove"},
		{what: "all holders have newer ones", self: -1, holders: []holding{has(6), has(7)}, want: "remove"},
		{what: "they are all, but too few", self: -1, holders: []holding{has(5)}, few: true, want: "wait"},
		{what: "none has it", self: -1, holders: []holding{has(0), done(0)}, want: "push [0 1] wait"},
		{what: "one has it and sends", self: -1, holders: []holding{has(0), has(5)}, want: "wait"},
		{what: "one has it and is done", self: -1, holders: []holding{has(0), done(5)}, want: "push [0] wait"},
		{what: "one doesn't answer", self: -1, holders: []holding{has(5), unknown}, want: "wait"},
		{what: "one has a newer one", self: -1, holders: []holding{has(6), has(5)}, want: "remove"},
		{what: "one has a newer one and sends", self: -1, holders: []holding{has(6), has(4)}, want: "wait"},
		{what: "one has a newer one and is done", self: -1, holders: []holding{done(6), has(0)}, want: "wait pull"},
	} {
		v := decide(5, c.self, c.holders, !c.few)
		got := ""
		if len(v.push) > 0 {
			got += fmt.Sprint(" push ", v.push)
		}
		if v.remove {
			got += " remove"
		}
		if v.wait {
			got += " wait"
		}
		if v.pull {
			got += " pull"
		}
		if got != "" {
			got = got[1:]
		}
		if got != c.want {
			t.Errorf("%s (self %d): %q, want %q", c.what, c.self, got, c.want)
		}
	}
}
