// Package run starts Sheaf for those who measure or show it, and uses its mount as
// a training process does.
//
//	bench, bench/demo ──▶ Home ──▶ Service (sheaf up, sheaf serve), sheaf put, sheaf batch, …
//	                  └─▶ Mount ──▶ files, Session (.sheaf/control), batch/<id>/data
//
// Everything that a Home starts or writes lies below one temporary folder. Invariants:
// Close ends all services, leaves no mount and removes the folder, also after a failure
// and when the context ended; whoever waits for a mount is released by that, so nothing
// here can wait for ever.
package run
