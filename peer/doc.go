// Package peer is who the nodes are and how bytes travel between them.
//
//	cmd, fusefs, batching                                     server
//	      │                                                      ▲
//	   Client ── Map.Owner ──▶ Endpoint.Open ──▶ pool ══ QUIC ══▶ Endpoint.Handle
//	 typed calls   HRW           one stream a call   mutual TLS    role check, dispatch
//
// A cluster is a Map of nodes, each a name and an address; objects belong to nodes
// by highest random weight (HRW), so whoever has the map finds an object without
// asking. Every call is one bidirectional QUIC stream of frames (package wire):
// a request, its answers, and an End that says how it went. docs/protocol.md is
// the specification.
//
// Invariants:
//   - a connection carries at most streamsPerConn calls at a time, so the windows of
//     its streams together never exceed its own: no call can starve another of flow
//     control;
//   - an answer without its End is an error;
//   - a call's rights come from the certificate, checked before its handler runs;
//   - cancelling a call's context resets its stream on both sides.
package peer
