package main

import (
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestServeConfig starts a node as the systemd unit does: flags from a file, and a
// manager that waits to hear of it.
func TestServeConfig(t *testing.T) {
	u := newUser(t)
	u.run("cert", "init")
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	hear := func() string {
		t.Helper()
		b := make([]byte, 100)
		_ = manager.SetReadDeadline(time.Now().Add(hang))
		n, err := manager.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	d1, d2, d3 := t.TempDir(), t.TempDir()+"/a,b", t.TempDir()+"/none"
	conf := u.file("n1.conf", "# a node\n\ndir = "+d1+"\n  dir="+d2+"\nlisten = 127.0.0.1:0\nname = from-file\nscrub-rate = none\nscrub-every = none\nrebalance-rate=1MiB\nlog-format = json\n")
	n := u.with("NOTIFY_SOCKET="+socket).start("serve", "--config", conf, "--name", "n1")
	if got := hear(); got != "READY=1" {
		t.Errorf("%q", got)
	}
	if !exists(d2) {
		t.Error("the second folder wasn't made")
	}
	waitFor(t, "a log in JSON", func() bool { return strings.HasPrefix(n.stderr(), `{"time":`) })
	if got := u.run("--endpoint", n.ready(), "cluster", "map"); !strings.Contains(got, "\nn1 ") {
		t.Errorf("the file won over the command line: %q", got)
	}
	n.signal(syscall.SIGTERM)
	if got := hear(); got != "STOPPING=1" {
		t.Errorf("%q", got)
	}
	if !n.gone(hang) || n.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("after SIGTERM: %v", n.cmd.ProcessState)
	}

	// The folders of the command line take the place of the file's, and the environment names the file.
	u.with("SHEAF_CONFIG="+conf).start("serve", "--dir", d3, "--name", "n2")
	if !exists(d3) {
		t.Error("--dir didn't win")
	}

	u.fails(3, []string{"no such file"}, "serve", "--config", "/nonexistent/conf")
	for text, want := range map[string]string{
		"listen":                         `:1: "listen": want flag = value`,
		"\n\nnothing = 1":                `:3: no flag "nothing"`,
		"config = x":                     `:1: no flag "config"`,
		"listen = a:1\n# x\nlisten = b:": ":3: listen is there twice",
	} {
		u.fails(2, []string{want}, "serve", "--config", u.file("bad.conf", text))
	}
	u.fails(2, []string{"want --dir"}, "serve", "--config", u.file("empty.conf", ""))
}
