package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/control"
	"github.com/wherry-dev/wherry/agent/state"
)

// Bounds of what looks in: kubelet and Prometheus need a handful of connections, and nobody needs a long request.
const (
	maxProbeConns   = 32
	maxProbeHeaders = 16 << 10 // bytes
	probeTime       = 10 * time.Second
)

// ErrListen means that the address for health and metrics cannot be had.
var ErrListen = errors.New("listen at")

// probes answers /healthz, /readyz and /metrics to whoever can reach its address. It shows nothing that is secret
// and changes nothing.
type probes struct {
	*Agent
	listener net.Listener
	conns    atomic.Int64
	scrape   sync.Mutex // one at a time: reading the state of a long queue takes a while
	disk     diskUse
}

// listenProbes opens the address of Options.Listen; without one it returns nil.
func (a *Agent) listenProbes() (*probes, error) {
	if a.opts.Listen == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", a.opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrListen, a.opts.Listen, err)
	}
	return &probes{Agent: a, listener: l}, nil
}

// serve answers until ctx ends.
func (p *probes) serve(ctx context.Context) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", p.healthz)
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.HandleFunc("GET /metrics", p.metrics)
	control.ServeUntil(ctx, p.listener, &http.Server{
		Handler: mux, ReadTimeout: probeTime, WriteTimeout: 3 * probeTime, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: maxProbeHeaders, ConnState: p.admit,
		ErrorLog: slog.NewLogLogger(p.opts.Log.Handler(), slog.LevelDebug),
	})
}

// admit closes connections beyond the bound.
func (p *probes) admit(c net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		if p.conns.Add(1) > maxProbeConns {
			_ = c.Close()
		}
	case http.StateClosed, http.StateHijacked:
		p.conns.Add(-1)
	}
}

// healthz reports whether the process lives and gets on. It asks neither registry nor cluster, nor the disk: another
// process would not get on any better without them.
func (p *probes) healthz(w http.ResponseWriter, _ *http.Request) {
	p.answerProbe(w, p.vitals.stuck(p.step(), p.opts.Traffic.received(), time.Now(), p.patience()))
}

// readyz reports whether the agent works: its state can be read, and the first pass has ended or is past judging what is
// offered. What that pass found does not matter, and neither does how long a thin link takes to bring it here.
func (p *probes) readyz(w http.ResponseWriter, _ *http.Request) {
	var problem string
	if err := p.state.db.View(func(tx *bbolt.Tx) error { return state.CheckSchema(tx) }); err != nil {
		problem = err.Error()
	} else if judging := []string{"", "resolve", "learn", "verify"}; !p.vitals.ended() && slices.Contains(judging, p.step()) {
		problem = "the first pass goes on"
	}
	p.answerProbe(w, problem)
}

func (p *probes) answerProbe(w http.ResponseWriter, problem string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if problem != "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprintln(w, problem)
		return
	}
	fmt.Fprintln(w, "ok")
}

// step is the one that runs, empty between passes.
func (a *Agent) step() string {
	if s := a.activity.Load(); s != nil {
		return *s
	}
	return ""
}
