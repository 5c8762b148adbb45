package metrics

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/state"
)

// Bounds of what looks in: kubelet and Prometheus need a handful of connections, and nobody needs a long request.
const (
	maxConns   = 32
	maxHeaders = 16 << 10 // bytes
	probeTime  = 10 * time.Second
)

// ErrListen means that the address for health and metrics cannot be had.
var ErrListen = errors.New("listen at")

// Server answers /healthz, /readyz and /metrics to whoever can reach its address. It shows nothing that is secret
// and changes nothing.
type Server struct {
	listener net.Listener
	pulse    *Pulse
	db       *state.DB
	conns    atomic.Int64
	scrape   sync.Mutex // one at a time: reading the state of a long queue takes a while
}

// Listen opens the TCP address for an agent with pulse and db; an empty one opens none and returns nil. The error wraps
// ErrListen. Serve closes it.
func Listen(address string, pulse *Pulse, db *state.DB) (*Server, error) {
	if address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrListen, address, err)
	}
	return &Server{listener: l, pulse: pulse, db: db}, nil
}

// Close closes a server that does not serve. Nil has nothing to close.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	return s.listener.Close()
}

// Addr is the address that the server listens at.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers until ctx ends. Look returns what metrics show; it is called by one goroutine at a time.
func (s *Server) Serve(ctx context.Context, look func() (Snapshot, error), log *slog.Logger) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { s.metrics(w, look) })
	control.ServeUntil(ctx, s.listener, &http.Server{
		Handler: mux, ReadTimeout: probeTime, WriteTimeout: 3 * probeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxHeaders, ConnState: s.admit,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	})
}

// admit closes connections beyond the bound.
func (s *Server) admit(c net.Conn, now http.ConnState) {
	switch now {
	case http.StateNew:
		if s.conns.Add(1) > maxConns {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		s.conns.Add(-1)
	}
}

// healthz reports whether the process lives and gets on. It asks neither registry nor cluster, nor the disk: another
// process would not get on any better without them.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) { answer(w, s.pulse.Stuck()) }

// readyz reports whether the agent works: its state can be read, and the first pass has ended or is past the step verify.
// The result of that pass does not matter, and neither does the time that a download takes on a thin link.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	var problem string
	if err := s.db.View(func(tx *bbolt.Tx) error { return state.CheckSchema(tx) }); err != nil {
		problem = err.Error()
	} else if s.pulse.judging() {
		problem = "the first pass goes on"
	}
	answer(w, problem)
}

func (s *Server) metrics(w http.ResponseWriter, look func() (Snapshot, error)) {
	s.scrape.Lock()
	defer s.scrape.Unlock()
	seen, err := look()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", ContentType)
	_, _ = w.Write(seen.Page())
}

func answer(w http.ResponseWriter, problem string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, problem)
		return
	}
	fmt.Fprintln(w, "ok")
}
