// Package api is the routes of a hub by which people and machines ask about a fleet, with their OpenAPI document.
//
// Begin with New, and put its Routes behind the guard of package access. Each route reads its parameters in the one form of
// package fleet, asks a fleet.Answers in the scope of whoever asks, and answers with JSON; lists also as CSV or as one JSON
// object a line. Answers are bounded. Nothing here writes.
package api

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// Options are the parts of an API.
type Options struct {
	// Answers returns what whoever sends the request may ask. It is required.
	Answers func(r *http.Request) (fleet.Answers, error)
	// ReadBody returns the body of a request, of at most limit bytes; its caller calls done when it needs that no more. It is required
	// for questions with a body.
	ReadBody func(w http.ResponseWriter, r *http.Request, limit int64) (body []byte, done func(), err error)
	// Now is nil for time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// Streams bounds the streams of events that are open at once, StreamsEach those of one access token or session. Zero means
	// DefaultStreams and DefaultStreamsEach.
	Streams, StreamsEach int
	// AtOnce bounds the reads that are answered at once; others wait. Zero means 16.
	AtOnce int
}

// Bounds of streams of events, unless somebody sets others.
const (
	DefaultStreams     = 512
	DefaultStreamsEach = 16
)

// API answers reads. It may be used by several goroutines.
type API struct {
	Options
	streams *streams
	slots   chan struct{}
}

// New returns an API.
func New(o Options) *API {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &API{
		Options: o,
		streams: newStreams(cmp.Or(o.Streams, DefaultStreams), cmp.Or(o.StreamsEach, DefaultStreamsEach)),
		slots:   make(chan struct{}, cmp.Or(o.AtOnce, 16)),
	}
}

// Routes returns the routes, with what each needs.
func (a *API) Routes() []access.Route {
	routes := []access.Route{{Pattern: "GET " + documentPath, Permission: access.Open, Handler: http.HandlerFunc(getDocument)}}
	for _, r := range reads() {
		handler := http.Handler(http.HandlerFunc(a.streamEvents))
		if r.ask != nil {
			handler = a.answer(r)
		}
		routes = append(routes, access.Route{Pattern: r.pattern(), Permission: r.permission, Handler: handler})
	}
	return routes
}

// End ends all streams of events, so that a server can shut down.
func (a *API) End() { a.streams.end() }

// documentPath is where the OpenAPI document is.
const documentPath = "/openapi.json"

//go:embed openapi.json
var document []byte

// Document returns the OpenAPI 3.1 document of all routes of a hub, as JSON.
func Document() []byte { return slices.Clone(document) }

func getDocument(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", hubapi.ContentType)
	_, _ = w.Write(document) // the client may have gone
}

const (
	// defaultRows is the limit of a list without one.
	defaultRows = 500
	// maxTime bounds the time of one answer, maxWait the wait for a slot.
	maxTime = time.Minute
	maxWait = 10 * time.Second
	// maxBody bounds the body of a question, in bytes: that about 20,000 workloads has 3 MB.
	maxBody = 16 << 20
)

// answer returns the handler of a read.
func (a *API) answer(route read) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, values, err := a.parse(r, route)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		var body []byte
		if route.body != nil {
			var drop func()
			if body, drop, err = a.ReadBody(w, r, maxBody); err != nil {
				a.fail(w, r, err)
				return
			}
			defer drop()
		}
		ctx, cancel := context.WithTimeout(r.Context(), maxTime)
		defer cancel()
		done, err := a.slot(ctx)
		if err != nil {
			a.fail(w, r, err)
			return
		}
		answer, err := func() (any, error) {
			defer done()
			answers, err := a.Answers(r)
			if err != nil {
				return nil, err
			}
			return route.ask(ctx, answers, asked{r, q, values, body, a.Now()})
		}()
		if err != nil {
			a.fail(w, r, err)
			return
		}
		if err := write(w, r, route, answer); err != nil {
			a.fail(w, r, err)
		}
	})
}

// slot waits until a read may be answered. The caller calls done at its end.
func (a *API) slot(ctx context.Context) (done func(), err error) {
	done = func() { <-a.slots }
	select {
	case a.slots <- struct{}{}:
		return done, nil
	default:
	}
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case a.slots <- struct{}{}:
		return done, nil
	case <-timer.C:
		return nil, &hubapi.Error{Code: hubapi.CodeBusy, Message: "too many questions are being answered already", RetryAfter: maxWait}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// asked is a request whose parameters have been read.
type asked struct {
	*http.Request
	query  fleet.Query
	values url.Values
	body   []byte
	now    time.Time
}

// parse reads the parameters of a request to a route.
func (a *API) parse(r *http.Request, route read) (fleet.Query, url.Values, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return fleet.Query{}, nil, invalid("the query string cannot be read")
	}
	known := route.parameters()
	for _, name := range sorted(values) {
		if !slices.Contains(known, name) {
			return fleet.Query{}, nil, fleet.UnknownParameter(name, known)
		}
	}
	for _, p := range route.more {
		if n := len(slices.DeleteFunc(slices.Clone(values[p.Name]), func(v string) bool { return v == "" })); n > 1 {
			return fleet.Query{}, nil, invalid("parameter %s is given %d times", p.Name, n)
		}
	}
	q, err := fleet.ParseQuery(values, a.Now(), route.others()...)
	if err != nil {
		return q, nil, err
	}
	if route.paged() {
		q.Limit = cmp.Or(q.Limit, defaultRows)
	}
	return q, values, nil
}

// fail answers with an error. Errors of the hub itself are for its log only.
func (a *API) fail(w http.ResponseWriter, r *http.Request, err error) {
	if refused := a.refusal(r, err); refused != nil {
		refused.Write(w)
	}
}

// refusal returns how an error is answered; nil if the client has gone.
func (a *API) refusal(r *http.Request, err error) *hubapi.Error {
	if refused := ErrorOf(err); refused != nil {
		return refused
	}
	if r.Context().Err() != nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &hubapi.Error{Code: hubapi.CodeUnavailable, Message: "this takes too long; ask for less, such as one environment", RetryAfter: retry}
	}
	a.Log.Error("question not answered", "path", r.URL.Path, "err", err)
	return &hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the hub's database cannot be read; try again later", RetryAfter: retry}
}

// retry is the time after which a question is asked again that could not be answered.
const retry = 30 * time.Second

// ErrorOf returns how an error of fleet.Answers is answered; nil if it is the hub's own fault.
func ErrorOf(err error) *hubapi.Error {
	var refused *hubapi.Error
	var unknown *fleet.UnknownNameError
	e := &hubapi.Error{Message: store.Plain(store.Clip(err.Error()))}
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &unknown):
		e.Code, e.Kind, e.Name, e.Near = hubapi.CodeUnknownName, unknown.Kind, store.Plain(store.Clip(unknown.Name)), unknown.Near
	case errors.Is(err, store.ErrUnknownCluster):
		e.Code, e.Kind = hubapi.CodeNotFound, hubapi.KindCluster
	case errors.Is(err, store.ErrUnknownRelease):
		e.Code, e.Kind = hubapi.CodeNotFound, hubapi.KindRelease
	case errors.Is(err, store.ErrUnknownReport):
		e.Code, e.Kind = hubapi.CodeNotFound, hubapi.KindReport
	case errors.Is(err, store.ErrOutOfScope):
		e.Code = hubapi.CodeForbidden
	case errors.Is(err, store.ErrForgotten):
		e.Code = hubapi.CodeForgotten
	case errors.Is(err, store.ErrInvalid):
		e.Code = hubapi.CodeBadRequest
	default:
		return nil
	}
	return e
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", store.ErrInvalid, fmt.Sprintf(format, args...))
}

func sorted(values url.Values) []string {
	var names []string
	for name := range values {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}
