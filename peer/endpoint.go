package peer

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"sheaf/internal/errs"
	"sheaf/peer/wire"
)

// Windows and limits of a connection. A stream's window bounds what a sender may
// have under way that the reader hasn't taken. The connection's window is that of all
// its streams and half as much again: quic-go gives back what was read a quarter of the
// window at a time, and without room for that, streams that stand still would starve one
// that is read.
const (
	streamWindow   = 2 << 20
	streamsPerConn = 32
	connWindow     = streamsPerConn * streamWindow * 3 / 2
	maxConnsPerKey = 64
	maxStreams     = 1024 // that a peer may have open on one connection

	handshakeTimeout = 5 * time.Second
	keepAlive        = 5 * time.Second
	deadAfter        = 20 * time.Second // without any packet
	idleClose        = 2 * time.Minute  // a pooled connection without calls
	stallTimeout     = 5 * time.Minute  // a stream without progress on the serving side
)

// Stream and connection error codes of the protocol.
const (
	codeCanceled quic.StreamErrorCode      = 1
	codeRefused  quic.StreamErrorCode      = 2
	codeClosing  quic.ApplicationErrorCode = 0
	codeProtocol quic.ApplicationErrorCode = 1
)

// EndpointOptions says how an endpoint speaks.
type EndpointOptions struct {
	Identity *Identity
	// Listen is the UDP address to bind, "host:port"; port 0 for any. A client leaves it empty.
	Listen string
	// Hello gives what to say of this side when a connection begins; nil for a client.
	Hello func() wire.Hello
	// OnHello is told what the other side said.
	OnHello func(wire.Hello)
	Logger  *slog.Logger
}

// HandlerFunc answers one call. It reads the request from c and writes frames; its
// error, or c.End, becomes the trailer. ctx ends when the caller goes away or the
// endpoint closes.
type HandlerFunc func(ctx context.Context, c *ServerCall) error

type handler struct {
	need  Role
	serve HandlerFunc
}

// Endpoint is one UDP socket with QUIC on it, for calls in both directions.
type Endpoint struct {
	opts EndpointOptions
	log  *slog.Logger
	udp  *net.UDPConn
	tr   *quic.Transport
	ln   *quic.Listener
	pool *pool

	waits    waits
	handlers map[wire.Type]handler // complete before Serve

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // accept loop, connections and handlers

	mu       sync.Mutex
	draining bool          // guarded by mu: new calls are refused
	active   int           // guarded by mu: calls being answered
	drained  chan struct{} // guarded by mu: closed when draining and active is 0

	closing  sync.Once
	closeErr error
}

// NewEndpoint binds the socket. Register handlers, then call Serve.
func NewEndpoint(o EndpointOptions) (*Endpoint, error) {
	if o.Identity == nil {
		return nil, errs.New(errs.InvalidArgument, "endpoint", "no certificate")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	addr := &net.UDPAddr{}
	if o.Listen != "" {
		a, err := net.ResolveUDPAddr("udp", o.Listen)
		if err != nil {
			return nil, errs.Wrap(errs.InvalidArgument, "listen on "+o.Listen, err)
		}
		addr = a
	}
	udp, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, errs.Wrap(errs.CodeOf(err), "listen on "+o.Listen, err)
	}
	e := &Endpoint{opts: o, log: o.Logger, udp: udp, handlers: map[wire.Type]handler{}, waits: defaultWaits()}
	// A restarted node tells its peers at once that their connections are gone.
	key := quic.StatelessResetKey(sha256.Sum256(append([]byte("sheaf stateless reset "), o.Identity.cert.Certificate[0]...)))
	e.tr = &quic.Transport{Conn: udp, StatelessResetKey: &key}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.pool = newPool(e)
	return e, nil
}

// Addr is the bound UDP address.
func (e *Endpoint) Addr() *net.UDPAddr { return e.udp.LocalAddr().(*net.UDPAddr) }

// Handle registers the handler of a call for peers whose role is need or above. Rights
// to buckets are the handler's to check (ServerCall.Allow).
func (e *Endpoint) Handle(t wire.Type, need Role, h HandlerFunc) { e.handlers[t] = handler{need, h} }

// Calls gives the calls that have a handler, with the role each needs.
func (e *Endpoint) Calls() map[wire.Type]Role {
	out := make(map[wire.Type]Role, len(e.handlers))
	for t, h := range e.handlers {
		out[t] = h.need
	}
	return out
}

func quicConfig() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:           handshakeTimeout,
		MaxIdleTimeout:                 deadAfter,
		KeepAlivePeriod:                keepAlive,
		InitialStreamReceiveWindow:     streamWindow,
		MaxStreamReceiveWindow:         streamWindow,
		InitialConnectionReceiveWindow: connWindow,
		MaxConnectionReceiveWindow:     connWindow,
		MaxIncomingStreams:             maxStreams,
		MaxIncomingUniStreams:          -1,
	}
}

// Serve begins to accept connections.
func (e *Endpoint) Serve() error {
	id := e.opts.Identity
	if id.Role != NodeRole {
		return errs.New(errs.PermissionDenied, "serve", fmt.Sprintf("certificate %q has the role %s, not node", id.Name, id.Role))
	}
	ln, err := e.tr.Listen(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{wire.ALPN},
		Certificates: []tls.Certificate{id.cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    id.pool,
	}, quicConfig())
	if err != nil {
		return errs.Wrap(errs.CodeOf(err), "listen", err)
	}
	e.ln = ln
	e.wg.Go(func() { // ends when Close closes the listener
		for {
			qc, err := ln.Accept(e.ctx)
			if err != nil {
				return
			}
			e.wg.Go(func() { e.serveConn(qc) }) // ends with the connection
		}
	})
	return nil
}

// serveConn takes the calls of one connection until it ends.
func (e *Endpoint) serveConn(qc *quic.Conn) {
	conn := &serverConn{addr: qc.RemoteAddr().String()}
	if certs := qc.ConnectionState().TLS.PeerCertificates; len(certs) > 0 {
		conn.rights, conn.name = RightsOf(certs[0]), certs[0].Subject.CommonName
	}
	if conn.rights.Role == NoRole {
		e.log.Warn("connection refused: the certificate has no role", "peer", conn.addr, "name", conn.name)
		_ = qc.CloseWithError(codeProtocol, "the certificate has no Sheaf role")
		return
	}
	e.log.Debug("connection", "peer", conn.addr, "name", conn.name, "role", conn.rights.Role.String())
	for {
		s, err := qc.AcceptStream(e.ctx)
		if err != nil {
			if e.ctx.Err() != nil {
				// So that the other side needn't wait for its idle timeout to learn of it.
				_ = qc.CloseWithError(codeClosing, "closing")
			}
			return
		}
		e.wg.Go(func() { e.serveStream(qc, conn, s) }) // ends with the call
	}
}

// serverConn is what a serving endpoint knows of a connection's other side.
type serverConn struct {
	name, addr string
	rights     Rights

	mu    sync.Mutex
	hello bool // guarded by mu: the other side has said Hello
}

// ServerCall is a call being answered.
type ServerCall struct {
	Name string // common name of the caller's certificate
	Role Role
	Addr string
	R    *wire.Reader
	W    *wire.Writer
	End  wire.End // the trailer; the handler may fill in counts

	rights Rights
	stream *quic.Stream
}

// StopReading ends the caller's direction: it is told that no more of its request is
// taken, and reads of R fail.
func (c *ServerCall) StopReading() { c.stream.CancelRead(codeRefused) }

// stalled makes a stream fail when it makes no progress for stallTimeout, so that a
// silent peer doesn't hold a handler for ever.
type stalled struct{ s *quic.Stream }

func (t stalled) Read(p []byte) (int, error) {
	_ = t.s.SetReadDeadline(time.Now().Add(stallTimeout))
	return t.s.Read(p)
}

func (t stalled) Write(p []byte) (int, error) {
	_ = t.s.SetWriteDeadline(time.Now().Add(stallTimeout))
	return t.s.Write(p)
}

var (
	readers = sync.Pool{New: func() any { return wire.NewReader(nil) }}
	writers = sync.Pool{New: func() any { return wire.NewWriter(nil) }}
)

func (e *Endpoint) serveStream(qc *quic.Conn, conn *serverConn, s *quic.Stream) {
	c := &ServerCall{Name: conn.name, Role: conn.rights.Role, Addr: conn.addr, rights: conn.rights, stream: s,
		R: readers.Get().(*wire.Reader), W: writers.Get().(*wire.Writer)}
	c.R.Reset(stalled{s})
	c.W.Reset(stalled{s})
	defer func() {
		c.R.Reset(nil)
		c.W.Reset(nil)
		readers.Put(c.R)
		writers.Put(c.W)
	}()
	h, err := c.R.Next()
	if err != nil {
		e.log.Debug("malformed call", "peer", conn.addr, "name", conn.name, "err", err)
		e.finish(c, errs.Wrap(errs.Protocol, "read call", err))
		return
	}
	if h.Type == wire.THello {
		e.finish(c, e.hello(conn, c))
		return
	}
	if !e.enter() {
		e.finish(c, errs.New(errs.Unavailable, "call", "the node is shutting down"))
		return
	}
	defer e.leave()
	e.finish(c, e.dispatch(qc, conn, c, h.Type))
}

func (e *Endpoint) dispatch(qc *quic.Conn, conn *serverConn, c *ServerCall, t wire.Type) error {
	conn.mu.Lock()
	greeted := conn.hello
	conn.mu.Unlock()
	if !greeted {
		_ = qc.CloseWithError(codeProtocol, "the first call must be Hello")
		return errs.New(errs.Protocol, "call", "the first call must be Hello")
	}
	h, ok := e.handlers[t]
	if !ok {
		return errs.New(errs.NotSupported, "call", fmt.Sprintf("message %d isn't a call of this node", t))
	}
	if c.Role < h.need {
		return errs.New(errs.PermissionDenied, "call", fmt.Sprintf("certificate %q has the role %s; this call needs %s", c.Name, c.Role, h.need))
	}
	ctx, stop := context.WithCancel(c.stream.Context())
	defer stop()
	defer context.AfterFunc(e.ctx, stop)()
	return h.serve(ctx, c)
}

// hello answers the first call of a connection.
func (e *Endpoint) hello(conn *serverConn, c *ServerCall) error {
	var m wire.Hello
	if err := c.R.Decode(&m); err != nil {
		return err
	}
	if m.Version < 1 {
		return errs.New(errs.Protocol, "hello", fmt.Sprintf("protocol version %d", m.Version))
	}
	if m.Node != "" && conn.rights.Role != NodeRole {
		return errs.New(errs.PermissionDenied, "hello", fmt.Sprintf("certificate %q has the role %s and can't speak as node %q", conn.name, conn.rights.Role, m.Node))
	}
	if e.opts.OnHello != nil && conn.rights.Role == NodeRole {
		e.opts.OnHello(m)
	}
	conn.mu.Lock()
	conn.hello = true
	conn.mu.Unlock()
	mine := e.myHello()
	return c.W.Frame(&mine, nil)
}

func (e *Endpoint) myHello() wire.Hello {
	var h wire.Hello
	if e.opts.Hello != nil {
		h = e.opts.Hello()
	}
	h.Version = wire.Version
	return h
}

// finish writes the trailer and closes the stream, or resets it when the caller is gone.
func (e *Endpoint) finish(c *ServerCall, err error) {
	node := ""
	if e.opts.Hello != nil {
		node = e.opts.Hello().Node
	}
	c.End.SetErr(err, node)
	if c.W.Frame(&c.End, nil) != nil || c.W.Flush() != nil {
		c.stream.CancelWrite(codeCanceled)
	} else {
		_ = c.stream.Close()
	}
	// What the caller may still be sending isn't wanted; at the stream's end this does nothing.
	c.stream.CancelRead(codeRefused)
}

func (e *Endpoint) enter() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.draining {
		return false
	}
	e.active++
	return true
}

func (e *Endpoint) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.active--; e.draining && e.active == 0 {
		close(e.drained)
	}
}

// linger is how long the last answers have to leave the queues before connections close.
const linger = 50 * time.Millisecond

// Drain refuses new calls and waits until those under way are answered, or ctx ends.
func (e *Endpoint) Drain(ctx context.Context) error {
	e.mu.Lock()
	if !e.draining {
		e.draining = true
		e.drained = make(chan struct{})
		if e.active == 0 {
			close(e.drained)
		}
	}
	done := e.drained
	e.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-time.After(linger):
	case <-ctx.Done():
	}
	return nil
}

// Close ends every connection and waits for all handlers. It may be called again.
func (e *Endpoint) Close() error {
	e.closing.Do(func() {
		e.cancel()
		if e.ln != nil {
			_ = e.ln.Close()
		}
		e.pool.close()
		err := e.tr.Close()
		e.wg.Wait()
		e.closeErr = errors.Join(err, e.udp.Close())
	})
	return e.closeErr
}

// tlsDial is the client side's TLS.
func (e *Endpoint) tlsDial() *tls.Config {
	id := e.opts.Identity
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		NextProtos:   []string{wire.ALPN},
		Certificates: []tls.Certificate{id.cert},
		RootCAs:      id.pool,
		ServerName:   ServerName,
	}
}

// dialErr gives a failed dial or call its code.
func dialErr(op, addr string, err error) error {
	if err == nil {
		return nil
	}
	var own *errs.Error
	if errors.As(err, &own) {
		return err
	}
	code := errs.Unavailable
	var te *quic.TransportError
	var ae *quic.ApplicationError
	var cve *tls.CertificateVerificationError
	var ua x509.UnknownAuthorityError
	switch {
	case errors.Is(err, context.Canceled):
		code = errs.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		code = errs.Timeout
	case errors.As(err, &cve), errors.As(err, &ua):
		code = errs.PermissionDenied
	case errors.As(err, &te) && te.ErrorCode.IsCryptoError():
		code = errs.PermissionDenied
	case errors.As(err, &ae) && ae.ErrorCode == codeProtocol:
		code = errs.Protocol
	}
	return &errs.Error{Code: code, Op: op, Node: addr, Err: err}
}
