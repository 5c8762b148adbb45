package hub

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
)

// Serve answers on l, which it closes, until ctx ends; then it lets running requests finish for ten
// seconds. It returns nil for such an end.
func (h *Hub) Serve(ctx context.Context, l net.Listener) error {
	handler := h.Handler()
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		handler = onlyNamed(h.hosts, handler)
	}
	server := &http.Server{
		Handler: handler,
		// For a TLS handshake of 5 KB too, at 1 KB a second.
		ReadHeaderTimeout: 30 * time.Second,
		// The last resort: Handler and readBody set the deadlines of each request.
		ReadTimeout:    hubapi.MaxBodyTime + time.Minute,
		WriteTimeout:   hubapi.MaxBodyTime + maxAnswerTime + time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(h.log.Handler(), slog.LevelWarn),
		ConnState:      newIdle(h).watch,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		_ = server.Close() // the grace is over
	}
	<-ended
	return nil
}

// Handler answers agents and people; docs/hub.md lists the routes.
func (h *Hub) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc(hubapi.ReportsPattern, h.postReports)
	mux.HandleFunc(hubapi.EnrollPattern, h.postEnroll)
	mux.HandleFunc("GET /v1/clusters", func(w http.ResponseWriter, r *http.Request) { serveList(h, w, r, h.Clusters) })
	mux.HandleFunc("GET /v1/deployments", func(w http.ResponseWriter, r *http.Request) { serveList(h, w, r, h.Deployments) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", h.getReady)
	mux.HandleFunc("GET "+clustersPath+"{$}", h.getClusters)
	mux.HandleFunc("GET "+deploymentsPath, h.getDeployments)
	mux.Handle("GET /style.css", http.FileServerFS(assets()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		control := http.NewResponseController(w) // whose deadlines are not supported in tests without a connection
		_ = control.SetWriteDeadline(time.Now().Add(maxAnswerTime))
		mux.ServeHTTP(w, r)
		if r.ContentLength != 0 && w.Header().Get("Connection") != "close" {
			_ = control.SetReadDeadline(time.Now().Add(maxDrainTime))
		}
	})
}

func badRequest(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, plain(clip(fmt.Sprintf(format, args...))))
}

// fail answers with an error. What went wrong inside the hub is for its log only.
func (h *Hub) fail(w http.ResponseWriter, r *http.Request, err error) {
	var tooLarge *http.MaxBytesError
	var refused *Refusal
	var overQuota *overQuotaError
	switch {
	case errors.Is(err, errBusy):
		hubapi.SetRetryAfter(w.Header(), minRetry+rand.N(maxRetry-minRetry))
		writeError(w, hubapi.CodeBusy, err.Error())
	case errors.Is(err, errSlow):
		writeError(w, hubapi.CodeTooSlow, err.Error())
	case errors.As(err, &overQuota):
		hubapi.SetRetryAfter(w.Header(), overQuota.wait)
		writeError(w, hubapi.CodeOverQuota, err.Error())
	case errors.As(err, &tooLarge):
		writeError(w, hubapi.CodeTooLarge, fmt.Sprintf("the body exceeds %d bytes; send less at once", tooLarge.Limit))
	case errors.Is(err, ErrUnknownCluster):
		writeError(w, hubapi.CodeUnknownCluster, fmt.Sprintf("no cluster of this uid is registered; register it with %q", "wherry hub clusters add"))
	case errors.Is(err, ErrRetired):
		writeError(w, hubapi.CodeRetired, err.Error())
	case errors.As(err, &refused):
		writeError(w, refused.Code, refused.Message)
	case errors.Is(err, ErrInvalid):
		writeError(w, hubapi.CodeBadRequest, err.Error())
	case r.Context().Err() != nil:
		// The client has gone.
	default:
		h.log.Error("request not answered", "path", r.URL.Path, "err", err)
		hubapi.SetRetryAfter(w.Header(), unavailableRetry)
		writeError(w, hubapi.CodeUnavailable, "the hub's database cannot be used; try again later")
	}
}

// writeError answers with the code's status.
func writeError(w http.ResponseWriter, code hubapi.Code, message string) {
	writeJSON(w, code.Status(), hubapi.Error{Code: code, Message: message})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", hubapi.ContentType)
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // the other side has gone
}
