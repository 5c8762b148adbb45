package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/admission"
	"github.com/wherry-dev/wherry/hub/api"
	"github.com/wherry-dev/wherry/hub/login"
	"github.com/wherry-dev/wherry/hub/manage"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/hub/web"
)

// Serve answers on l, which it closes, until ctx ends; then it lets running requests finish for ten
// seconds. It returns nil for such an end. A hub with Options.Anonymous serves on loopback alone.
func (h *Hub) Serve(ctx context.Context, l net.Listener) error {
	handler := h.Handler()
	if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
		handler = admission.OnlyNamed(h.hosts, handler)
	} else if ok && h.anonymous {
		return errors.Join(fmt.Errorf("%s is not a loopback address, and anybody may read what this hub serves: %w", l.Addr(), store.ErrInvalid), l.Close())
	}
	server := &http.Server{
		Handler: handler,
		// For a TLS handshake of 5 KB too, at 1 KB a second.
		ReadHeaderTimeout: 30 * time.Second,
		// The last resort: Handler and admission.Gate set the deadlines of each request.
		ReadTimeout:    hubapi.MaxBodyTime + time.Minute,
		WriteTimeout:   hubapi.MaxBodyTime + admission.MaxAnswerTime + time.Minute,
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(h.log.Handler(), slog.LevelWarn),
		ConnState:      h.gate.ConnState,
	}
	server.RegisterOnShutdown(h.reads.End)
	following, stop := context.WithCancel(ctx)
	var follows sync.WaitGroup
	follows.Go(func() { h.followPresent(following) })
	follows.Go(func() { h.followReleases(following) })
	follows.Go(func() { _ = h.remember.Run(following) }) // it ends with following alone
	follows.Go(func() { h.retireSilent(following) })
	defer follows.Wait()
	defer stop()
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

// retireEvery is how often the hub looks for ephemeral clusters that have been silent for too long.
const retireEvery = time.Minute

// retireSilent retires such clusters until ctx ends.
func (h *Hub) retireSilent(ctx context.Context) {
	again := time.NewTicker(retireEvery)
	defer again.Stop()
	for {
		gone, err := h.store.RetireSilent(ctx)
		for _, c := range gone {
			h.log.Info("ephemeral cluster retired, for it was silent", "cluster", c.Name, "uid", c.UID)
		}
		if err != nil && ctx.Err() == nil {
			h.log.Warn("silent clusters not retired", "err", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// Handler answers agents and people; docs/reference/hub.md lists the routes.
func (h *Hub) Handler() http.Handler {
	mux := http.NewServeMux()
	for _, r := range h.Routes() {
		mux.Handle(r.Pattern, h.guard.Require(r.Permission, r.Handler))
	}
	observed := sameOrigin(h.observe(mux))
	signIn := func(string) string { return "" }
	if h.login != nil {
		signIn = login.To
	}
	return access.Headers(web.Errors(signIn, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w) // whose deadlines are not supported in tests without a connection
		_ = control.SetWriteDeadline(time.Now().Add(admission.MaxAnswerTime))
		observed.ServeHTTP(w, r)
		if r.ContentLength != 0 && w.Header().Get("Connection") != "close" {
			_ = control.SetReadDeadline(time.Now().Add(admission.MaxDrainTime))
		}
	})))
}

// signInsPerMinute bounds the requests to the login of an address, each of which may ask the provider: for some hundred people behind one.
const signInsPerMinute = 240

// sameOrigin refuses what a browser sends from a page of another site, but for what changes nothing: the browser may add the cookie or the
// token of its person. Agents and commands are no browsers.
func sameOrigin(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		(&hubapi.Error{Code: hubapi.CodeForbidden, Message: "the request comes from a page of another site"}).Write(w)
	}))
	return protection.Handler(next)
}

// Routes returns all routes of a hub, with what each needs.
func (h *Hub) Routes() []access.Route {
	now := h.enroller.sign.now
	agents := agentAPI{intake: h.intake, enroller: h.enroller, gate: h.gate, now: now, fail: h.fail}
	routes := []access.Route{
		{Pattern: hubapi.ReportsPattern, Permission: access.Open, Handler: http.HandlerFunc(agents.postReports)},
		{Pattern: hubapi.EnrollPattern, Permission: access.Open, Handler: http.HandlerFunc(agents.postEnroll)},
		{Pattern: hubapi.ReleasesPattern, Permission: access.Publish, Handler: http.HandlerFunc(h.postReleases)},
		{Pattern: "GET /healthz", Permission: access.Open, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })},
		{Pattern: "GET /readyz", Permission: access.Open, Handler: http.HandlerFunc(h.getReady)},
		{Pattern: "GET /metrics", Permission: access.Measure, Handler: http.HandlerFunc(h.getMetrics)},
	}
	manager := manage.Manager{
		Registry: h, Tokens: h.tokens, ParseKey: ParseReportKey, Fail: h.fail,
		Decisions: h.store, Promotions: h.store, Seal: h.enroller.sign.decision, Now: h.enroller.sign.now,
	}
	pages := func(r *http.Request) (web.Answers, error) {
		return h.Answers(r.Context(), access.ScopeOf(r.Context()).AccessScope)
	}
	site := web.Options{Answers: pages, Actions: manager, TrustEnds: h.published.follower.TrustEnds, Now: now, Fail: h.failRead}
	if h.published.follower.Reads() {
		site.Ledger = h.published.follower.Ledger
	}
	questions := slices.Concat(h.reads.Routes(), web.Routes(site))
	for i, q := range questions {
		if q.Pattern != eventsPattern { // which mostly waits
			questions[i].Handler = h.gate.Ask(q.Handler)
		}
	}
	if h.login == nil {
		routes = append(routes, access.Route{Pattern: "GET " + login.DevicePath, Permission: access.Open, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.fail(w, r, &hubapi.Error{Code: hubapi.CodeNotFound, Message: "this hub has no login; people use access tokens"})
		})})
	} else {
		for _, r := range h.login.Routes() {
			r.Handler = h.guard.Bound(signInsPerMinute, r.Handler)
			routes = append(routes, r)
		}
	}
	return slices.Concat(routes, questions, manager.Routes())
}

func (h *Hub) getReady(w http.ResponseWriter, r *http.Request) {
	if err := h.ready.ask(r.Context(), h.enroller.sign.now(), h.store.Ready); err != nil {
		h.log.Error("not ready", "err", err)
		http.Error(w, "the database cannot be written", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// readiness asks the database whether it takes writes: once a second, however many probes there are.
type readiness struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (d *readiness) ask(ctx context.Context, now time.Time, ready func(context.Context) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if since := now.Sub(d.at); since < 0 || since >= time.Second {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		d.err, d.at = ready(ctx), now
	}
	return d.err
}

// fail answers with an error. Errors of the hub itself are for its log only.
func (h *Hub) fail(w http.ResponseWriter, r *http.Request, err error) {
	var refused *hubapi.Error
	switch {
	case errors.As(err, &refused):
	case errors.Is(err, store.ErrUnknownCluster):
		refused = &hubapi.Error{Code: hubapi.CodeUnknownCluster, Message: fmt.Sprintf("no cluster of this uid is registered; register it with %q", "wherry hub clusters add")}
	case errors.Is(err, store.ErrRetired):
		refused = &hubapi.Error{Code: hubapi.CodeRetired, Message: err.Error()}
	case errors.Is(err, store.ErrInvalid):
		refused = &hubapi.Error{Code: hubapi.CodeBadRequest, Message: err.Error()}
	case r.Context().Err() != nil:
		return // the client has gone
	default:
		h.log.Error("request not answered", "path", r.URL.Path, "err", err)
		refused = &hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the hub's database cannot be used; try again later", RetryAfter: unavailableRetry}
	}
	h.counters.Refused(refused.Code)
	refused.Write(w)
}

// failRead is fail for what package fleet has not answered.
func (h *Hub) failRead(w http.ResponseWriter, r *http.Request, err error) {
	if refused := cmp.Or(api.ErrorOf(err), manage.Refusal(err)); refused != nil {
		err = refused
	}
	h.fail(w, r, err)
}

// unavailableRetry is the time after which agents try again if the database could not be used.
const unavailableRetry = 30 * time.Second
