// Package server is a storage node: the program that keeps objects and answers calls.
//
//	            ┌────────────── Node ──────────────┐
//	peer calls ─▶ objects, list, buckets ──▶ store   (files on this node's disks)
//	           │      │ not the owner?              │
//	           │      └──▶ the owner, through peer   │
//	GetBatch ──▶ batching.Node ──▶ source ──▶ store, index
//	           │ membership ──▶ state (map, buckets) │ kept on disk, pushed to the others
//	HTTP ──────▶ admin: /metrics /healthz /debug/pprof
//	            └──────────────────────────────────┘
//
// Every node is the same program and plays every role: gateway for any call, owner of
// the objects that the cluster map gives it, Designated Target and sender for batches.
//
// Invariants: whatever isn't this node's is passed on to its owner exactly once (a
// forwarded call is answered from the own disks); what is acknowledged is on disk;
// a record of the cluster's state gives way only to a newer one.
package server
