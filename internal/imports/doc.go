// Package imports holds the rule of who may import whom, and the test that enforces it.
//
//	errs → names → peer, index, store → batching → server, fusefs → testcluster → cmd, bench
//
// Invariant: imports run one way only; each ban has its reason beside it.
package imports
