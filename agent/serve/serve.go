// Package serve is the agent's endpoint: a read-only OCI registry over its content store, for other agents of the site,
// Flux, Argo CD, and containerd as a mirror.
//
// The repositories of the store are
//
//	bundles/ENVIRONMENT/TYPE   accepted releases and their signatures, with the registry's tags
//	trust                      the trust documents
//	assignments/NAME           manifests and charts of an assignment with embedded delivery, by digest; see agent/artifact
//	HOST/REPOSITORY            carried artifacts, by digest and by the tag that the running release lists
//
// The first three are at /v2/PLATFORM/…, so that an agent of the site follows oci://HOST:PORT/PLATFORM. The last, whose first
// element has a dot or a colon or is localhost, is at /v2/HOST/REPOSITORY/… and, as containerd asks a mirror, at
// /v2/REPOSITORY/…?ns=HOST. Nothing is named before it is verified, and a manifest is served only while all its blobs but
// deltas are here.
//
// Begin with Open, which reads or makes the certificates and says in Served how engines reach the endpoint. Then Listen,
// and Server.Serve. NewHandler is the HTTP handler alone.
//
// The endpoint answers what the index of the layout names, and everything that the manifests so named refer to: each
// under its own repository, by tag and by digest. Before a blob is served for the first time, it is compared with its
// digest; one that is damaged is not served, and Damaged tells the store. Nobody can write, and nobody is asked who they
// are: whoever reaches the address may read. The reports of other agents, if AcceptReports lets them in, go to another
// place than the store.
//
// The number of connections, their requests and the time for each are bounded, so that clients, however many and however
// slow, take neither the memory of the agent nor its time.
package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/opencontainers/go-digest"
)

// The bounds of a server. docs/sites/links.md has those that a client may meet.
const (
	maxConns        = 256              // connections at a time
	maxConnsAddress = 64               // of them from one address
	connsPerSecond  = 100              // new connections in a second, after a burst of as many as may be open
	maxHeaderBytes  = 16 << 10         // of a request
	headerTime      = 10 * time.Second // for a TLS handshake, and for the header of a request
	idleTime        = time.Minute      // between two requests on a connection
	progressTime    = 30 * time.Second // for a client to take up to progressBytes
	progressBytes   = 64 << 10
	closingTime     = 5 * time.Second // for requests that are being answered when the agent ends
)

// ErrListen means that the address of the endpoint cannot be had.
var ErrListen = errors.New("serve at")

// Server is an endpoint that listens. Its connections wait until Serve is called.
type Server struct {
	listener net.Listener
	handler  *Handler
	tls      *tls.Config // nil for plain HTTP
	log      *slog.Logger
}

// Listen opens the endpoint's address for the content of the layout in the folder dir, below the platform's name. The
// error wraps ErrListen. Serve or Close closes it.
func (e *Endpoint) Listen(dir, platform string) (*Server, error) {
	l, err := net.Listen("tcp", e.opts.Address)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrListen, e.opts.Address, err)
	}
	return &Server{
		listener: limit(l, &e.Counters.Bytes, time.Now), handler: NewHandler(dir, platform, &e.Counters, e.opts.Log),
		tls: e.tls, log: e.opts.Log,
	}, nil
}

// AcceptReports passes what other agents send to a hub to h, such as that of package relay. Call it before Serve.
func (s *Server) AcceptReports(h http.Handler) { s.handler.reports = h }

// Addr is the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Damaged returns the blobs that were found to be damaged since the last call.
func (s *Server) Damaged() []digest.Digest { return s.handler.blobs.takeDamaged() }

// Close closes the listener of a server whose Serve was never called.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers until ctx ends, and then waits a moment for requests that are being answered.
func (s *Server) Serve(ctx context.Context) {
	server := &http.Server{
		Handler: s.handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		// One request at a time on a connection, so that the bounds of connections are those of requests.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if s.tls == nil {
			_ = server.Serve(s.listener)
			return
		}
		_ = server.Serve(tls.NewListener(s.listener, s.tls))
	}()
	<-ctx.Done()
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), closingTime)
	defer cancel()
	if server.Shutdown(grace) != nil {
		_ = server.Close()
	}
	<-ended
}

// Counters count what an endpoint has answered. The zero value is ready, and may be used by several goroutines.
type Counters struct {
	// Bytes is what connections have sent, with headers and TLS.
	Bytes    atomic.Int64
	requests [600]atomic.Int64
}

// Requests returns the number of answers by status code.
func (c *Counters) Requests() map[int]int64 {
	all := map[int]int64{}
	for code := range c.requests {
		if n := c.requests[code].Load(); n > 0 {
			all[code] = n
		}
	}
	return all
}

func (c *Counters) add(code int) {
	if code > 0 && code < len(c.requests) {
		c.requests[code].Add(1)
	}
}
