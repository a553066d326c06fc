package run

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMountsBelow(t *testing.T) {
	const table = `22 1 0:20 / /proc rw - proc proc rw
40 22 0:50 / /tmp/a/mnt ro,nosuid shared:1 - fuse.sheaf sheaf:127.0.0.1:7070 ro
41 22 0:51 / /tmp/a\040b/mnt ro - fuse.sheaf s ro
42 22 0:52 / /tmp/ab ro - tmpfs t ro
`
	for dir, want := range map[string][]string{
		"/tmp/a":   {"/tmp/a/mnt"},
		"/tmp/a b": {"/tmp/a b/mnt"},
		"/tmp/ab":  {"/tmp/ab"},
		"/tmp/c":   nil,
	} {
		got, err := mountsBelow(strings.NewReader(table), dir)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q %v, want %q", dir, got, err, want)
		}
	}
}

// script makes a program that stands in for sheaf.
func script(t *testing.T, text string) *Home {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sheaf")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	h, err := NewHome(path, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestService(t *testing.T) {
	t.Setenv("SHEAF_ENDPOINT", "must not be seen")
	h := script(t, `test -z "$SHEAF_ENDPOINT" || exit 9
trap 'kill $!; exit 0' INT
echo "node n1"; echo "ready 127.0.0.1:7"
sleep 60 & wait`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := h.Start(ctx, "up")
	if err != nil {
		t.Fatal(err)
	}
	if s.Endpoint() != "127.0.0.1:7" || len(s.Lines()) != 2 {
		t.Errorf("%q", s.Lines())
	}
	cancel()
	<-s.done
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(h.Path()); !os.IsNotExist(err) {
		t.Error("the folder is still there: ", err)
	}
}

func TestServiceThatFails(t *testing.T) {
	h := script(t, "echo 'sheaf: the port is taken' >&2; exit 4")
	if _, err := h.Start(t.Context(), "up"); err == nil || !strings.Contains(err.Error(), "the port is taken") {
		t.Errorf("%v", err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestReadAll(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789"), 1000)
	for _, room := range []int{0, 1, 9_999, 10_000, 10_001} {
		got, err := readAll(bytes.NewReader(want), make([]byte, 0, room))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("room %d: %d bytes, %v", room, len(got), err)
		}
	}
}
