// Package s3test runs a real S3 server, versitygw, inside a test.
//
//	test ──▶ Server.URL ──▶ proxy (counts, and may be slow, refuse or cut) ──▶ versitygw on a folder of the test
//
// The server is built from the Go module proxy at a pinned version, once: the program is
// kept in the user's cache folder. Invariant: when the test ends, also by failing, the
// server is gone.
package s3test
