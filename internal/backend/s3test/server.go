package s3test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sys/unix"
)

// The keys of the server's only account.
const (
	Access = "AKSHEAFTEST"
	Secret = "never-in-a-log-8d1f0c5e"
)

// Server is a running S3 server behind a proxy.
type Server struct {
	Dir string // each folder in it is a bucket, each file in one an object
	*httptest.Server

	backend http.Handler
	direct  *http.Transport // to the server itself

	mu        sync.Mutex
	intercept func(w http.ResponseWriter, r *http.Request, next http.Handler)
	seen      []string // "METHOD /bucket/object?query", in order
}

// Start runs a server with the buckets until the test ends, and puts its keys into the
// test's environment. Stop it sooner with Server.Close.
func Start(t testing.TB, buckets ...string) *Server {
	t.Helper()
	program, err := Program(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Dir: t.TempDir()}
	if err := unix.Setxattr(s.Dir, "user.sheaf-test", []byte("1"), 0); err != nil {
		t.Fatalf("the server needs extended attributes in %s: %v", s.Dir, err)
	}
	for _, b := range buckets {
		if err := os.Mkdir(filepath.Join(s.Dir, b), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// A name in the abstract namespace needs no free port and leaves no file.
	socket := fmt.Sprintf("@sheaf-s3test-%d-%d", os.Getpid(), time.Now().UnixNano())
	var out bytes.Buffer
	cmd := exec.Command(program, "--quiet", "--keep-alive", "--access", Access, "--secret", Secret, "--port", socket, "posix", s.Dir)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }() // ends with the process, which the cleanup kills
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-exited })

	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := dial(t.Context(), "", "")
		if err == nil {
			c.Close()
			break
		}
		select {
		case <-exited:
			t.Fatalf("the S3 server ended: %s", out.String())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("the S3 server doesn't answer: %v\n%s", err, out.String())
		}
	}
	s.direct = &http.Transport{DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 64}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "s3"
			r.Out.Host = r.In.Host // it is signed
		},
		Transport:     s.direct,
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0), // broken connections are what tests are about
	}
	s.backend = proxy
	s.Server = httptest.NewUnstartedServer(s)
	s.Server.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Server.Start()
	t.Cleanup(func() {
		s.Server.CloseClientConnections()
		s.Server.Close()
		s.direct.CloseIdleConnections()
	})
	for k, v := range map[string]string{"AWS_ACCESS_KEY_ID": Access, "AWS_SECRET_ACCESS_KEY": Secret, "AWS_SESSION_TOKEN": "", "AWS_REGION": "us-east-1",
		"AWS_PROFILE": "", "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull} {
		t.Setenv(k, v)
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	f := s.intercept
	s.seen = append(s.seen, r.Method+" "+r.URL.RequestURI())
	s.mu.Unlock()
	if f == nil {
		s.backend.ServeHTTP(w, r)
		return
	}
	f(w, r, s.backend)
}

// Intercept has f answer each request from now on; nil: the server alone.
func (s *Server) Intercept(f func(w http.ResponseWriter, r *http.Request, next http.Handler)) {
	s.mu.Lock()
	s.intercept = f
	s.mu.Unlock()
}

// Seen counts the requests so far that begin with what, as "GET /bucket/object".
func (s *Server) Seen(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.seen {
		if strings.HasPrefix(r, what) {
			n++
		}
	}
	return n
}

// BackendURL is what Sheaf calls a bucket here, or a prefix in it.
func (s *Server) BackendURL(bucket string) string {
	return "s3://" + bucket + "?endpoint=" + s.URL + "&region=us-east-1&insecure=true"
}

// client speaks to the server past the proxy.
func (s *Server) client() *s3.Client {
	return s3.New(s3.Options{BaseEndpoint: aws.String("http://s3"), Region: "us-east-1", UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: Access, SecretAccessKey: Secret}, nil
		}),
		HTTPClient: &http.Client{Transport: s.direct}, DisableLogOutputChecksumValidationSkipped: true})
}

// Put writes an object past Sheaf.
func (s *Server) Put(t testing.TB, bucket, name string, data []byte) {
	t.Helper()
	_, err := s.client().PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: &name, Body: bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
}

// Delete removes an object past Sheaf.
func (s *Server) Delete(t testing.TB, bucket, name string) {
	t.Helper()
	if _, err := s.client().DeleteObject(t.Context(), &s3.DeleteObjectInput{Bucket: &bucket, Key: &name}); err != nil {
		t.Fatal(err)
	}
}

// Has tells whether the server has an object with these bytes.
func (s *Server) Has(bucket, name string, data []byte) error {
	got, err := os.ReadFile(filepath.Join(s.Dir, bucket, filepath.FromSlash(name)))
	if err == nil && !bytes.Equal(got, data) {
		err = fmt.Errorf("%d bytes that differ from the %d wanted", len(got), len(data))
	}
	return err
}

// SlowDown answers as S3 does under load.
func SlowDown(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Set("Retry-After", "7")
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = io.WriteString(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
}

// Cut breaks the connection after n bytes of the answer's body.
func Cut(w http.ResponseWriter, r *http.Request, next http.Handler, n int) {
	next.ServeHTTP(&cutter{ResponseWriter: w, left: n}, r)
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	if len(p) < c.left {
		c.left -= len(p)
		return c.ResponseWriter.Write(p)
	}
	_, _ = c.ResponseWriter.Write(p[:c.left])
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	panic(http.ErrAbortHandler)
}

// Unwrap lets the proxy flush.
func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// Gate lets n bytes of the answer's body through and the rest when open is closed.
func Gate(w http.ResponseWriter, r *http.Request, next http.Handler, n int, open <-chan struct{}) {
	next.ServeHTTP(&gate{ResponseWriter: w, left: n, open: open, gone: r.Context().Done()}, r)
}

type gate struct {
	http.ResponseWriter
	left int
	open <-chan struct{}
	gone <-chan struct{}
}

var errGone = errors.New("the client went away")

func (g *gate) Write(p []byte) (int, error) {
	done := 0
	if g.left >= 0 && len(p) >= g.left {
		done = g.left
		if _, err := g.ResponseWriter.Write(p[:done]); err != nil {
			return 0, err
		}
		if f, ok := g.ResponseWriter.(http.Flusher); ok {
			f.Flush()
		}
		select {
		case <-g.open:
		case <-g.gone:
			return done, errGone
		}
		g.left = -1
	} else if g.left > 0 {
		g.left -= len(p)
	}
	n, err := g.ResponseWriter.Write(p[done:])
	return done + n, err
}

// Unwrap lets the proxy flush.
func (g *gate) Unwrap() http.ResponseWriter { return g.ResponseWriter }
