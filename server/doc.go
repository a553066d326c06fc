// Package server is a storage node: the program that keeps objects and answers calls.
//
//	            ┌────────────────── Node ───────────────────┐
//	writes ─────▶ put, delete, copy, append ──▶ staging ════▶ store of this and of the other holders
//	            │      │ not the owner?                      │
//	            │      └──▶ the owner, through peer           │
//	reads ──────▶ search ──▶ store, index; or a neighbor      │
//	GetBatch ───▶ batching.Node ──▶ source ──▶ search         │
//	            │ list, buckets, membership ──▶ state         │ kept on disk, pushed to the others
//	            │ reconciler, repairs, scrubber               │ every object where the map says, and sound
//	HTTP ───────▶ admin: /metrics /healthz /debug/pprof       │
//	            └─────────────────────────────────────────────┘
//
// Every node is the same program and plays every role: gateway for any call, owner of
// the objects that the cluster map gives it, Designated Target and sender for batches.
//
// Invariants:
//   - a write is decided by the owner of the name, under the name's lock; whoever else
//     gets it passes it on once;
//   - what is acknowledged is on disk on as many nodes as the bucket has copies;
//   - of two versions of a name the bigger wins, wherever they meet;
//   - a read that was passed on is answered from the own disks; else the node that was
//     asked first finds the newest copy, or says who might have it;
//   - a record of the cluster's state gives way only to a newer one.
package server
