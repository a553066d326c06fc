package server

import (
	"sheaf/internal/store"
	"sheaf/peer"
)

// objectInfo is what a client is told of what the store says.
func objectInfo(i store.Info) peer.ObjectInfo {
	return peer.ObjectInfo{Name: i.Name, Size: i.Size, Version: i.Version, Checksum: i.Checksum, ModTime: i.ModTime, Attrs: i.Attrs}
}
