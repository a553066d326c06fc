package server

import (
	"sheaf/peer"
	"sheaf/peer/wire"
)

// Calls gives the calls that a node answers, with the role each needs.
func (n *Node) Calls() map[wire.Type]peer.Role { return n.ep.Calls() }
