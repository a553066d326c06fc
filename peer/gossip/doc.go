// Package gossip tells which nodes of the cluster are alive: hashicorp/memberlist (SWIM,
// with Lifeguard's suspicion), carried by the node's own QUIC endpoint.
//
//	server ◀─ Alive, Changed ─ Gossip ── memberlist ── transport ══ TGossip calls ══ other nodes
//	   └──── addresses by name ─────────────────────────────┘      one port, mutual TLS
//
// memberlist knows nodes by name alone: the address that it keeps of one is made of the
// name, and the transport looks the true one up in the cluster map. So a node that comes
// back elsewhere is the same node, and one that isn't in the map doesn't exist.
//
// Invariants:
//   - nothing leaves in clear text, and only certificates with the role node are heard;
//   - sending never blocks the caller: packets wait in a short queue per node and are
//     dropped when it is full, as UDP would drop them; a dead or slow node holds up only
//     its own queue;
//   - whatever a peer sends has a bound: bytes of a packet, packets and streams waiting,
//     bytes and life of a stream.
package gossip
