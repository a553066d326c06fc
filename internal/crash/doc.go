// Package crash kills storage nodes while they work and checks what they promised.
//
//	workers ──▶ PUT, rename, DELETE, GET, GetBatch ──▶ sheaf serve × 3, a process each
//	   │                                                     ▲
//	   └──▶ model: what may be read of each name             └── kill -9, restart
//
// It has no code besides tests. A run is minutes in the gate and as long as one likes by
// hand; it prints its seed, and the same seed makes the same choices:
//
//	go test ./internal/crash -run TestKill -v -seed 7 -duration 4h -timeout 5h
//
// Invariants that it checks: what was acknowledged is read, or something newer; what is
// read was written, whole, under that name; no work file survives a start.
package crash
