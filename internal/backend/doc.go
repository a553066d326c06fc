// Package backend is where the objects of remote buckets live: an S3 bucket at any
// endpoint, or a folder.
//
//	server (owner of a name) ──▶ Bucket ──┬─▶ s3: gocloud.dev/blob/s3blob, AWS SDK v2 ──▶ endpoint
//	   Head Get Put Delete List           └─▶ folder: os.Root ──▶ a file system all nodes mount
//
// Invariants: a credential is never in a URL, an error or a log line: it comes from the
// places that the AWS SDK looks in, on each node by itself. Errors are *errs.Error with
// the code that the failure means to a client; one that may go away carries how long to
// wait (RetryAfter). Memory doesn't grow with an object's size. Every wait is bounded: by
// the caller's context, and by Options.Idle without a byte moving. What one Reader gives
// is one version of an object, also across a connection that broke.
package backend
