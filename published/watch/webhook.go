package watch

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/slots"
)

// Bounds on what the webhook's server takes.
const (
	// MaxHookBytes bounds the body of a webhook, which is hashed as it comes and kept nowhere. GitHub's are 25 MB at most.
	MaxHookBytes = 32 << 20
	// MinSecretBytes is the least length of a webhook's secret.
	MinSecretBytes = 16
	// maxHooks is how many webhooks are read at once, and maxHooksOfAddress of how many one address has the bodies read. One more
	// always fits, at the cost of the oldest.
	maxHooks          = 64
	maxHooksOfAddress = 16
	// stuck is how long a turn may take until the process counts as not healthy.
	stuck = time.Hour
)

// Webhook is an HTTP server that wakes a loop when a forge tells of a change. Give Tell the events of the loop. Its routes:
//
//	POST /hook    a webhook of GitHub, GitLab, Gitea, Forgejo or Azure DevOps that proves the secret: 202, else 401
//	GET /healthz  200 unless a turn takes more than an hour
//	GET /readyz   200 once a turn has succeeded
//	GET /metrics  turns and their failures, in Prometheus' text format
//
// It speaks plain HTTP; put it behind something that speaks TLS.
type Webhook struct {
	listener net.Listener

	secret [32]byte // the hash of it, as GitLab and Azure DevOps send the secret itself
	key    []byte

	mu      sync.Mutex
	hooks   int
	steps   int
	failed  int
	success time.Time   // zero before the first
	begun   time.Time   // of the turn that runs, or of the wait before the first
	bodies  slots.Slots // that are read for their signature
}

// ErrShortSecret is returned for a secret that can be guessed.
var ErrShortSecret = fmt.Errorf("the webhook's secret has fewer than %d bytes", MinSecretBytes)

// NewWebhook returns a Webhook that answers on listener, which Wake closes, and believes those who know secret.
func NewWebhook(listener net.Listener, secret []byte) (*Webhook, error) {
	if len(secret) < MinSecretBytes {
		return nil, ErrShortSecret
	}
	return &Webhook{listener: listener, secret: sha256.Sum256(secret), key: secret, begun: time.Now(), bodies: slots.Slots{PerAddress: maxHooksOfAddress, Total: maxHooks}}, nil
}

// Tell notes when turns begin and end, for /healthz, /readyz and /metrics.
func (w *Webhook) Tell(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e.Kind {
	case TurnBegan:
		w.begun = e.Time
	case TurnEnded:
		if w.steps++; e.Err != nil {
			w.failed++
		} else {
			w.success = e.Time
		}
		w.begun = time.Time{}
	}
}

// Wake is a [Waker]: it answers until ctx ends, and calls wake for each webhook that is believed.
func (w *Webhook) Wake(ctx context.Context, wake func()) error {
	server := &http.Server{
		Handler: w.handler(wake), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
	}
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		select {
		case <-ctx.Done():
			server.Close()
		case <-ended:
		}
	}()
	if err := server.Serve(w.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("webhook: %w", err)
	}
	return nil
}

func (w *Webhook) handler(look func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook", func(out http.ResponseWriter, r *http.Request) {
		switch err := w.verify(out, r); {
		case errors.Is(err, errPushedOut):
			http.Error(out, err.Error(), http.StatusServiceUnavailable)
		case errors.Is(err, errTooLong):
			http.Error(out, err.Error(), http.StatusRequestEntityTooLarge)
		case err != nil:
			if r.Header.Get("Authorization") == "" {
				out.Header().Set("WWW-Authenticate", `Basic realm="webhook"`)
			}
			http.Error(out, err.Error(), http.StatusUnauthorized)
		default:
			w.mu.Lock()
			w.hooks++
			w.mu.Unlock()
			look()
			out.WriteHeader(http.StatusAccepted)
		}
	})
	mux.HandleFunc("GET /healthz", func(out http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		begun := w.begun
		w.mu.Unlock()
		if !begun.IsZero() && time.Since(begun) > stuck {
			http.Error(out, "a step runs since "+begun.UTC().Format(time.RFC3339), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(out, "ok")
	})
	mux.HandleFunc("GET /readyz", func(out http.ResponseWriter, _ *http.Request) {
		w.mu.Lock()
		ready := !w.success.IsZero()
		w.mu.Unlock()
		if !ready {
			http.Error(out, "no step has succeeded yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(out, "ok")
	})
	mux.HandleFunc("GET /metrics", w.metrics)
	return mux
}

func (w *Webhook) metrics(out http.ResponseWriter, _ *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(out, "# TYPE wherry_follow_steps_total counter\nwherry_follow_steps_total %d\n", w.steps)
	fmt.Fprintf(out, "# TYPE wherry_follow_steps_failed_total counter\nwherry_follow_steps_failed_total %d\n", w.failed)
	fmt.Fprintf(out, "# TYPE wherry_follow_webhooks_total counter\nwherry_follow_webhooks_total %d\n", w.hooks)
	if !w.success.IsZero() {
		fmt.Fprintf(out, "# TYPE wherry_follow_last_success_timestamp_seconds gauge\nwherry_follow_last_success_timestamp_seconds %d\n", w.success.Unix())
	}
}

var (
	errTooLong   = fmt.Errorf("the body has more than %d bytes", MaxHookBytes)
	errPushedOut = errors.New("too many webhooks at once")
	errNoSecret  = errors.New("the request does not prove that it knows the webhook's secret")
)

// verify reads a webhook and returns an error unless it proves the secret: by a signature over its body (GitHub, Gitea,
// Forgejo), or with the secret itself (GitLab; Azure DevOps as the password of any user). Only a body with a signature is read, in
// a slot: whoever does not know the secret has the oldest of those that it holds ended.
func (w *Webhook) verify(out http.ResponseWriter, r *http.Request) error {
	if token := r.Header.Get("X-Gitlab-Token"); token != "" {
		return w.isSecret(token)
	}
	if _, password, ok := r.BasicAuth(); ok {
		return w.isSecret(password)
	}
	signature, ok := strings.CutPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256=")
	if !ok {
		signature = r.Header.Get("X-Gitea-Signature")
	}
	want, err := hex.DecodeString(signature)
	if err != nil || len(want) != sha256.Size {
		return errNoSecret
	}
	if r.ContentLength > MaxHookBytes {
		return errTooLong
	}
	mac := hmac.New(sha256.New, w.key)
	control := http.NewResponseController(out) // a test without a connection does not support it
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	place := w.bodies.Take(host, func() { _ = control.SetReadDeadline(time.Unix(1, 0)) })
	n, err := io.Copy(mac, io.LimitReader(r.Body, MaxHookBytes+1))
	held := w.bodies.Keep(place)
	switch {
	case !held:
		return errPushedOut
	case n > MaxHookBytes:
		return errTooLong
	case err != nil || !hmac.Equal(mac.Sum(nil), want):
		return errNoSecret
	}
	return nil
}

func (w *Webhook) isSecret(text string) error {
	if got := sha256.Sum256([]byte(text)); subtle.ConstantTimeCompare(got[:], w.secret[:]) != 1 {
		return errNoSecret
	}
	return nil
}
