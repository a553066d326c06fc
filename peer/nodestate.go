package peer

import (
	"fmt"

	"sheaf/internal/errs"
)

// NodeState says what the cluster may ask of a node. Of two records with one epoch the
// higher state wins, so the numbers are part of the protocol.
type NodeState uint8

const (
	Up      NodeState = iota // holds objects and is given new ones
	Leaving                  // serves what it has, is given nothing new, and is drained
	Down                     // doesn't answer; its record stays for its return
	Left                     // gone for good; the record keeps old news of it from bringing it back
)

var nodeStates = [...]string{Up: "up", Leaving: "leaving", Down: "down", Left: "left"}

// Readable tells whether a node serves what it holds.
func (s NodeState) Readable() bool { return s == Up || s == Leaving }

func (s NodeState) String() string {
	if int(s) < len(nodeStates) {
		return nodeStates[s]
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// MarshalText gives the state its name, in files and in --json.
func (s NodeState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a state's name.
func (s *NodeState) UnmarshalText(text []byte) error {
	for i, name := range nodeStates {
		if name == string(text) {
			*s = NodeState(i)
			return nil
		}
	}
	return errs.New(errs.InvalidArgument, "node state", fmt.Sprintf("%q: want up, leaving, down or left", text))
}
