// Command sheaf is the command line: nodes, mounts, objects and batches.
//
//	argv ──▶ args.go (flags anywhere) ──▶ <command>.go: flags fill Options ──▶ server, fusefs, peer, batching
//	                                                                              │
//	exit status ◀── exit.go (errs.Exit) ◀────────────── error ◀───────────────────┘
//
// Each file named for a command holds that command. Invariants: data goes to stdout,
// everything else to stderr; an error becomes an exit status in exit.go and nowhere
// else; a file that a command writes appears whole or not at all; a command that
// fails leaves nothing behind that it started.
package main
