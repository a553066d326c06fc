package fusefs

import (
	"context"
	"io"

	"sheaf/batching"
	"sheaf/peer"
)

// Tree is what the mount needs to show names. A *peer.Client is one.
type Tree interface {
	Buckets(ctx context.Context) ([]peer.BucketInfo, error)
	List(ctx context.Context, bucket string, o peer.ListOptions) (*peer.ListPage, error)
	// Members gives a shard and all its members.
	Members(ctx context.Context, bucket, shard string) (peer.ObjectInfo, []peer.MemberInfo, error)
}

// Objects is what the mount needs to read a file. A *peer.Client is one. The body
// that Get returns holds exactly the range asked for.
type Objects interface {
	Head(ctx context.Context, bucket, object string) (peer.ObjectInfo, error)
	Get(ctx context.Context, bucket, object string, o peer.GetOptions) (peer.ObjectInfo, io.ReadCloser, error)
}

// Batcher runs a batch request.
type Batcher interface {
	GetBatch(ctx context.Context, req *batching.Request) (Entries, error)
}

// Entries are a batch's items in request order. Next gives io.EOF after the last
// and, when the batch failed as a whole, why.
type Entries interface {
	Next() (*batching.Item, error)
	Close() error
}
