// Package fusefs is the mount: the cluster as a file tree, and batches through a
// control file.
//
//	open, read, readdir ─▶ dirNode, fileNode, shardNode ─▶ Tree, Objects (peer.Client)
//	                            │ same bytes, same version
//	                            ▼
//	write control ─▶ parser ─▶ session ─▶ batches ─▶ batch ─▶ Batcher (batching.Client)
//	read control  ◀─ events ◀──┘                       │ spool file in the cache folder
//	read batch/ID/data, index, tar, entries ◀──────────┘
//
// docs/mount.md is the specification.
//
// Invariants:
//   - nothing that would change an object succeeds: the answer is EROFS;
//   - one manifest is exactly one GetBatch;
//   - one goroutine owns a batch from its submission to its end; its rows are
//     written once, in request order, and never change after;
//   - a handle shows one version of an object, or ESTALE, never a mixture;
//   - whatever waits can be interrupted;
//   - the process that serves a mount never touches it, sends no notification to
//     the kernel from a handler, and holds no lock across I/O.
//
// Lock order: batches.mu or prefetched.mu, then batch.mu, then session.mu; all
// others are taken alone.
package fusefs
