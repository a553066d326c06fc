package backend

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	"gocloud.dev/blob"
	"gocloud.dev/blob/s3blob"

	"sheaf/internal/errs"
	"sheaf/internal/names"
)

// An upload keeps up to partSize × (partsAhead + 1) bytes in memory beside the first 16 MiB
// that the transfer manager looks at; uploads bounds how many do.
const (
	partSize   = 8 << 20
	partsAhead = 3
	uploads    = 8
)

// s3Store is a bucket of an S3 server.
type s3Store struct {
	loc  Location
	b    *blob.Bucket
	http *awshttp.BuildableClient
	big  chan struct{} // holds a token for each upload of more than a part
}

var _ store = (*s3Store)(nil)

func openS3(ctx context.Context, loc Location, o Options) (*s3Store, error) {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		d := &net.Dialer{Timeout: min(10*time.Second, o.Idle), KeepAlive: 30 * time.Second}
		t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &idleConn{Conn: c, idle: o.Idle}, nil
		}
		t.MaxIdleConnsPerHost = 64
		t.ForceAttemptHTTP2 = false
	})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithLogger(logging.Nop{}), // the SDK would log requests as it likes
		config.WithRetryer(func() aws.Retryer {
			return retry.NewStandard(func(so *retry.StandardOptions) {
				so.MaxAttempts, so.MaxBackoff = o.Attempts, o.MaxBackoff
			})
		}),
	}
	if loc.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(loc.Profile))
	}
	if loc.Region != "" {
		load = append(load, config.WithRegion(loc.Region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, load...)
	if err != nil {
		// The text may quote lines of the credentials file.
		return nil, errs.New(errs.InvalidArgument, "backend", "the AWS configuration of this node can't be read, or lacks the profile that the URL names")
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if loc.Anonymous {
		cfg.Credentials = aws.AnonymousCredentials{}
	} else {
		cfg.Credentials = aws.NewCredentialsCache(&credentials{cfg.Credentials})
	}
	calc := aws.RequestChecksumCalculationWhenSupported
	if loc.Required {
		calc = aws.RequestChecksumCalculationWhenRequired
	}
	c := s3.NewFromConfig(cfg, func(so *s3.Options) {
		if loc.Endpoint != "" {
			so.BaseEndpoint = aws.String(loc.Endpoint)
		}
		so.UsePathStyle = loc.PathStyle
		so.RequestChecksumCalculation = calc
		so.DisableLogOutputChecksumValidationSkipped = true
		so.APIOptions = append(so.APIOptions, addWritten)
	})
	b, err := s3blob.OpenBucket(ctx, c, loc.Bucket, &s3blob.Options{RequestChecksumCalculation: calc})
	if err != nil {
		return nil, errs.Wrap(errs.InvalidArgument, "backend", err)
	}
	return &s3Store{loc: loc, b: b, http: client, big: make(chan struct{}, uploads)}, nil
}

// credentials gives the failure to find any its code: the SDK has none for it.
type credentials struct{ from aws.CredentialsProvider }

func (c *credentials) Retrieve(ctx context.Context) (aws.Credentials, error) {
	v, err := c.from.Retrieve(ctx)
	if err != nil && ctx.Err() == nil {
		return v, errs.New(errs.PermissionDenied, "", "this node has no credentials for the backend: neither in the environment nor in the AWS configuration files nor by a role of the machine")
	}
	return v, err
}

// idleConn is a connection that breaks when no byte has moved for a while. A write also
// gives the other direction its time: the answer can't come before the request's end.
type idleConn struct {
	net.Conn
	idle time.Duration
}

func (c *idleConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

func (c *idleConn) Write(p []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.idle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// written is where a PUT's answer leaves what gocloud.dev doesn't pass on.
type written struct{ etag string }

type writtenKey struct{}

// addWritten has the SDK leave the ETag of what was written in the context's written.
func addWritten(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("written",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			out, md, err := next.HandleInitialize(ctx, in)
			if w, ok := ctx.Value(writtenKey{}).(*written); ok && err == nil {
				switch r := out.Result.(type) {
				case *s3.PutObjectOutput:
					w.etag = aws.ToString(r.ETag)
				case *s3.CompleteMultipartUploadOutput:
					w.etag = aws.ToString(r.ETag)
				}
			}
			return out, md, err
		}), middleware.After)
}

func (s *s3Store) head(ctx context.Context, name string) (Object, error) {
	a, err := s.b.Attributes(ctx, s.loc.Prefix+name)
	if err != nil {
		return Object{}, err
	}
	return Object{Name: name, Size: a.Size, Version: a.ETag, ModTime: a.ModTime, Attrs: a.Metadata}, nil
}

func (s *s3Store) get(ctx context.Context, name string, off, length int64, version string) (Object, io.ReadCloser, error) {
	if length == 0 {
		obj, err := s.head(ctx, name) // S3 has no empty range
		if err == nil && version != "" && version != obj.Version {
			err = errChanged
		}
		return obj, io.NopCloser(strings.NewReader("")), err
	}
	r, err := s.b.NewRangeReader(ctx, s.loc.Prefix+name, off, length, &blob.ReaderOptions{BeforeRead: func(as func(any) bool) error {
		var in *s3.GetObjectInput
		if version != "" && as(&in) {
			in.IfMatch = aws.String(version)
		}
		return nil
	}})
	if err != nil {
		return Object{}, nil, err
	}
	obj := Object{Name: name, Size: r.Size(), ModTime: r.ModTime()}
	var out s3.GetObjectOutput
	if r.As(&out) {
		obj.Version = aws.ToString(out.ETag)
		obj.Attrs = attrs(out.Metadata)
	}
	if version != "" && obj.Version != version {
		_ = r.Close() // a server that doesn't know If-Match
		return Object{}, nil, errChanged
	}
	return obj, r, nil
}

var errChanged = errs.New(errs.VersionMismatch, "", "the object was replaced at the backend")

func (s *s3Store) put(ctx context.Context, name string, r io.Reader, o PutOptions) (Object, error) {
	if o.Size < 0 || o.Size > partSize {
		select {
		case s.big <- struct{}{}:
			defer func() { <-s.big }()
		case <-ctx.Done():
			return Object{}, ctx.Err()
		}
	}
	for k := range o.Attrs {
		if !metaKey(k) {
			return Object{}, errs.New(errs.InvalidArgument, "", fmt.Sprintf("attribute %q: S3 keeps names of a-z, 0-9, '-', '_' and '.' only", k))
		}
	}
	var w written
	count := &counter{r: r, size: o.Size}
	err := s.b.Upload(context.WithValue(ctx, writtenKey{}, &w), s.loc.Prefix+name, count, &blob.WriterOptions{
		ContentType: "application/octet-stream", Metadata: o.Attrs, IfNotExist: o.Absent, BufferSize: partSize, MaxConcurrency: partsAhead})
	if err != nil {
		if count.err != nil {
			return Object{}, errs.Wrap(errs.CodeOf(count.err), "read payload", count.err) // the source failed, not the backend
		}
		if e := s.fault(err); o.Absent && e.Code == errs.VersionMismatch {
			e.Code = errs.AlreadyExists
			err = e
		}
		return Object{}, err
	}
	obj := Object{Name: name, Size: count.n, Version: w.etag, ModTime: time.Now(), Attrs: o.Attrs}
	if obj.Version == "" {
		return s.head(ctx, name)
	}
	return obj, nil
}

// counter counts what is read, fails where that isn't the size announced, and keeps the
// source's own error.
type counter struct {
	r    io.Reader
	size int64 // −1: not known
	n    int64
	err  error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.size >= 0 && (c.n > c.size || err == io.EOF && c.n < c.size) {
		err = errSize
	}
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

var errSize = errs.New(errs.Internal, "", "the payload hasn't the size that was announced")

// metaKey is what an attribute's name must be to come back from S3 as it was: the server
// keeps it as an HTTP header.
func metaKey(k string) bool {
	for i := range len(k) {
		if c := k[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return k != ""
}

// attrs reads what gocloud.dev made of attributes when it wrote them.
func attrs(meta map[string]string) map[string]string {
	if len(meta) == 0 {
		return nil
	}
	out := make(map[string]string, len(meta))
	for k, v := range meta {
		if plain, err := url.PathUnescape(v); err == nil {
			v = plain
		}
		out[strings.ToLower(k)] = v
	}
	return out
}

func (s *s3Store) delete(ctx context.Context, name string) error {
	return s.b.Delete(ctx, s.loc.Prefix+name)
}

func (s *s3Store) list(ctx context.Context, o ListOptions) (Page, error) {
	after := o.After
	if o.Delimiter != "" && strings.HasSuffix(after, o.Delimiter) {
		after += "\U0010ffff" // behind all that this prefix stands for
	}
	if after != "" {
		after = s.loc.Prefix + after
	}
	rows, next, err := s.b.ListPage(ctx, blob.FirstPageToken, o.Limit, &blob.ListOptions{Prefix: s.loc.Prefix + o.Prefix, Delimiter: o.Delimiter,
		BeforeList: func(as func(any) bool) error {
			var in *s3.ListObjectsV2Input
			if after != "" && as(&in) {
				in.StartAfter = aws.String(after)
			}
			return nil
		}})
	if err != nil {
		return Page{}, err
	}
	var p Page
	last := ""
	for _, row := range rows {
		name, ok := strings.CutPrefix(row.Key, s.loc.Prefix)
		if ok && name > last {
			last = name
		}
		switch {
		case !ok || name <= o.After:
		case row.IsDir:
			if names.CheckPrefix(name) == nil {
				p.Prefixes = append(p.Prefixes, name)
			}
		case names.CheckObject(name) == nil: // what has a name that the cluster can't say isn't there
			obj := Object{Name: name, Size: row.Size, ModTime: row.ModTime}
			var raw types.Object
			if row.As(&raw) {
				obj.Version = aws.ToString(raw.ETag)
			}
			p.Objects = append(p.Objects, obj)
		}
	}
	if len(next) > 0 {
		if p.Next = last; last == "" {
			return Page{}, errs.New(errs.Unavailable, "", "the backend gives pages without names")
		}
	}
	slices.SortFunc(p.Objects, func(a, b Object) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(p.Prefixes)
	return p, nil
}

func (s *s3Store) close() error {
	err := s.b.Close()
	s.http.GetTransport().CloseIdleConnections()
	return err
}
