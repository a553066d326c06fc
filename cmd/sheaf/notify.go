package main

import (
	"log/slog"
	"net"
	"os"
)

// notifySystemd tells the service manager that started this process, if one did, how
// things stand: "READY=1", "STOPPING=1" (sd_notify(3)). A manager that can't be told is
// no reason to stop: it gives up on the service by itself.
func notifySystemd(state string, log *slog.Logger) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' { // the abstract name space
		name = "\x00" + name[1:]
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err == nil {
		_, err = c.Write([]byte(state))
		c.Close()
	}
	if err != nil {
		log.Warn("tell the service manager", "state", state, "err", err)
	}
}
