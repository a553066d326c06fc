// Package e2e holds the tests of the whole program over a real network: the built
// binary, a process a node, a network namespace a process, and links that can be cut.
//
//	namespace hub:      bridge br0 ── n1 ── n2 ── n3 ── client     (cut: the hub's end of a link goes down)
//	                               │     │     │       │
//	namespaces:             sheaf serve × 3       every other command
//
// It needs root and the ip command of iproute2, and has no code besides tests.
// Invariant: when a test ends, also by failing, no process and no namespace is left.
package e2e
