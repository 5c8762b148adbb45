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
	"strconv"
	"time"
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
		ReadTimeout:    maxBodyTime + time.Minute,
		WriteTimeout:   maxBodyTime + maxAnswerTime + time.Minute,
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
	mux.HandleFunc("POST /v1/clusters/{uid}/reports", h.postReports)
	mux.HandleFunc("POST "+EnrollPath, h.postEnroll)
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

// apiError is the body of every answer that is not 2xx.
type apiError struct {
	Code  Code   `json:"code"`
	Error string `json:"error"`
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
		retryLater(w, minRetry+rand.N(maxRetry-minRetry), CodeBusy, err)
	case errors.Is(err, errSlow):
		writeJSON(w, http.StatusRequestTimeout, apiError{CodeTooSlow, err.Error()})
	case errors.As(err, &overQuota):
		retryLater(w, overQuota.wait, CodeOverQuota, err)
	case errors.As(err, &tooLarge):
		writeJSON(w, http.StatusRequestEntityTooLarge, apiError{CodeTooLarge, fmt.Sprintf("the body exceeds %d bytes; send less at once", tooLarge.Limit)})
	case errors.Is(err, ErrUnknownCluster):
		writeJSON(w, http.StatusForbidden, apiError{CodeUnknownCluster, fmt.Sprintf("no cluster of this uid is registered; register it with %q", "wherry hub clusters add")})
	case errors.Is(err, ErrRetired):
		writeJSON(w, http.StatusForbidden, apiError{CodeRetired, err.Error()})
	case errors.As(err, &refused):
		writeJSON(w, http.StatusForbidden, apiError{refused.Code, refused.Message})
	case errors.Is(err, ErrInvalid):
		writeJSON(w, http.StatusBadRequest, apiError{CodeBadRequest, err.Error()})
	case r.Context().Err() != nil:
		// Nobody listens any more.
	default:
		h.log.Error("request not answered", "path", r.URL.Path, "err", err)
		w.Header().Set("Retry-After", "30")
		writeJSON(w, http.StatusServiceUnavailable, apiError{CodeUnavailable, "the hub's database cannot be used; try again later"})
	}
}

// retryLater answers that a request may be sent again, and nothing of it is stored, after wait, which becomes whole seconds.
func retryLater(w http.ResponseWriter, wait time.Duration, code Code, why error) {
	w.Header().Set("Retry-After", strconv.Itoa(int((wait+time.Second-1)/time.Second)))
	writeJSON(w, http.StatusTooManyRequests, apiError{code, why.Error()})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(value) // the other side has gone
}
