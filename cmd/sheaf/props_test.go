package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func testBucketProps(t *testing.T, u *user) {
	type props struct {
		Name, Durability, Backend string
		Copies                    int
		Validate                  bool
	}
	show := func(name string) (p props) {
		t.Helper()
		if err := json.Unmarshal([]byte(u.run("bucket", "show", "--json", name)), &p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	u.run("bucket", "create", "bp", "--copies", "2", "--durability", "relaxed")
	if got, want := show("bp"), (props{Name: "bp", Copies: 2, Durability: "relaxed"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := u.run("bucket", "show", "bp"); !strings.Contains(got, "copies:      2\n") || !strings.Contains(got, "durability:  relaxed\n") || strings.Contains(got, "backend") {
		t.Errorf("%q", got)
	}
	if got := u.run("bucket", "ls", "-l"); !strings.Contains(got, "2 copies  relaxed  -  bp\n") {
		t.Errorf("%q", got)
	}

	// What isn't named stays as it is.
	u.run("bucket", "set", "bp", "--copies", "3")
	if got, want := show("bp"), (props{Name: "bp", Copies: 3, Durability: "relaxed"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	var p props
	if err := json.Unmarshal([]byte(u.run("bucket", "set", "bp", "--copies", "1", "--durability", "sync", "--json")), &p); err != nil || p != (props{Name: "bp", Copies: 1, Durability: "sync"}) {
		t.Errorf("%+v %v", p, err)
	}

	u.run("bucket", "create", "bplain")
	if got, want := show("bplain"), (props{Name: "bplain", Copies: 1, Durability: "sync"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	u.fails(2, []string{"copies is 0", `durability is "never"`}, "bucket", "create", "bpx", "--copies", "0", "--durability", "never")
	u.fails(2, []string{"validate needs a backend"}, "bucket", "create", "bpx", "--validate")
	u.fails(2, []string{"copies"}, "bucket", "set", "bp", "--copies", "1000")
	u.fails(3, []string{"bpx", "bucket not found"}, "bucket", "set", "bpx", "--copies", "2")
	u.fails(3, []string{"bpx", "bucket not found"}, "bucket", "show", "bpx")
	u.run("bucket", "rm", "bp")
	u.run("bucket", "rm", "bplain")
}
