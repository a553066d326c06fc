package gossip

import (
	"testing"

	"sheaf/peer/wire"
	"sheaf/peer/wire/wiretest"
)

func TestVectors(t *testing.T) {
	check := func(name string, m *message, payload []byte) {
		wiretest.Check(t, "../testdata/vectors", name, m, payload, func() wire.Message { return new(message) })
	}
	check("gossip", &message{From: "n2"}, []byte("a packet"))
	check("gossip_stream", &message{From: "n2", Stream: true}, nil)
}

func FuzzMessage(f *testing.F) {
	wiretest.Fuzz(f, "../testdata/vectors", map[wire.Type]func() wire.Message{wire.TGossip: func() wire.Message { return new(message) }})
}
