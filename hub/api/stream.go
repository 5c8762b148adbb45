package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

const (
	// slowWrite is the time of one write after which a reader is too slow, maxWrite the time after which its connection is
	// closed.
	slowWrite = 10 * time.Second
	maxWrite  = 30 * time.Second
)

// streamEvents answers with events as they come, as server-sent events.
//
// The position of an event is in "id" once all events of that position were sent, so that whoever goes on from there misses
// none; one that was interrupted in between gets those of that position again. An "id" without data only says how far the
// stream is.
func (a *API) streamEvents(w http.ResponseWriter, r *http.Request) {
	q, after, err := a.parseEvents(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	answers, err := a.Answers(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	ctx, done, err := a.streams.begin(r)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer done()
	s := &stream{w: w, control: http.NewResponseController(w)}
	s.run(ctx, func(ctx context.Context, each func(fleet.Event) error, at func(store.Position) error) error {
		if f, ok := answers.(fleet.Follower); ok {
			return f.Follow(ctx, after, q, each, at)
		}
		return answers.Events(ctx, after, q, each)
	}, func(err error) *hubapi.Error {
		why := a.refusal(r, err)
		if errors.Is(err, store.ErrForgotten) {
			why.Message += "; read the lists anew, and follow without a position"
		}
		return why
	})
}

// parseEvents reads the parameters of a stream; the position is -1 for the next event.
func (a *API) parseEvents(r *http.Request) (fleet.Query, store.Position, error) {
	var route read
	for _, one := range reads() {
		if one.ask == nil {
			route = one
		}
	}
	q, others, err := a.parse(r, route)
	if err != nil {
		return q, 0, err
	}
	switch follow := others.Get("follow"); follow {
	case "", "true":
	case "false":
		q.AsOf = a.Now()
	default:
		return q, 0, invalid("follow=%q: expected true or false", follow)
	}
	from := q.After
	q.After = ""
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		from = last
	}
	if from == "" {
		return q, -1, nil
	}
	at, err := strconv.ParseInt(from, 10, 64)
	if err != nil || at < 0 {
		return q, 0, invalid("event position %q: expected a number", store.Plain(store.Clip(from)))
	}
	return q, store.Position(at), nil
}

// stream is one answer with events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
}

// item is what a stream writes next: an event, or how far it is.
type item struct {
	event *fleet.Event
	at    store.Position
}

// run writes what follow gives until it or ctx ends.
func (s *stream) run(
	ctx context.Context,
	follow func(ctx context.Context, each func(fleet.Event) error, at func(store.Position) error) error,
	refusal func(error) *hubapi.Error,
) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	items, ended := make(chan item), make(chan error, 1)
	pass := func(i item) error {
		select {
		case items <- i:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() {
		ended <- follow(ctx, func(e fleet.Event) error { return pass(item{event: &e}) }, func(at store.Position) error { return pass(item{at: at}) })
	})
	beat := time.NewTicker(fleet.Heartbeat)
	defer beat.Stop()
	for {
		var err error
		select {
		case i := <-items:
			err = s.write(i)
			beat.Reset(fleet.Heartbeat)
		case <-beat.C:
			err = s.writeText(":\n\n")
		case <-ctx.Done():
			s.end(stopped(ctx))
			return
		case err := <-ended:
			if ctx.Err() != nil { // which has ended the follower first
				s.end(stopped(ctx))
				return
			}
			if err == nil { // all that is stored was sent
				s.begin()
				return
			}
			s.end(refusal(err))
			return
		}
		if err != nil {
			s.end(slow(err))
			cancel(err)
			return
		}
	}
}

// errSlow means that a reader takes too long to read.
var errSlow = &hubapi.Error{Code: hubapi.CodeBusy, Message: "events are read too slowly; go on from the last position", RetryAfter: time.Second}

func slow(err error) *hubapi.Error {
	if err == error(errSlow) {
		return errSlow
	}
	return nil // the client has gone
}

// stopped returns how a stream ends that the hub ends; nil if the client has gone.
func stopped(ctx context.Context) *hubapi.Error {
	if context.Cause(ctx) == errEnding {
		return &hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the hub is being stopped; go on from the last position", RetryAfter: time.Second}
	}
	return nil
}

// write writes an event, or a position.
func (s *stream) write(i item) error {
	if i.event == nil {
		return s.writeText(fmt.Sprintf("id: %d\n\n", i.at))
	}
	data, err := json.Marshal(i.event)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("event: %s\ndata: %s\n", i.event.Kind, data)
	if !i.event.More {
		text += fmt.Sprintf("id: %d\n", i.event.ID)
	}
	return s.writeText(text + "\n")
}

// writeText writes and flushes. The error is errSlow if that took too long.
func (s *stream) writeText(text string) error {
	s.begin()
	began := time.Now()
	_ = s.control.SetWriteDeadline(began.Add(maxWrite)) // not supported without a connection
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	if time.Since(began) > slowWrite {
		return errSlow
	}
	return nil
}

// begin sends the header.
func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", fleet.EventStream)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // of proxies
	s.w.WriteHeader(http.StatusOK)
}

// end says why the stream ends: as the answer, if nothing was sent yet.
func (s *stream) end(why *hubapi.Error) {
	if why == nil {
		return
	}
	if !s.begun {
		why.Write(s.w)
		return
	}
	if data, err := json.Marshal(why); err == nil {
		_ = s.writeText(fmt.Sprintf("event: %s\ndata: %s\n\n", fleet.ErrorEvent, data))
	}
}

// errEnding is the cause of the end of all streams.
var errEnding = fmt.Errorf("the hub is being stopped")

// streams are the open streams of events, by access token.
type streams struct {
	most, each int

	mu   sync.Mutex
	next int
	open map[int]openStream
	of   map[string]int
}

type openStream struct {
	token  string
	cancel context.CancelCauseFunc
}

func newStreams(most, each int) *streams {
	return &streams{most: most, each: each, open: map[int]openStream{}, of: map[string]int{}}
}

// begin counts a stream in. The caller calls done at its end. The error is a *hubapi.Error if there are too many.
func (s *streams) begin(r *http.Request) (ctx context.Context, done func(), err error) {
	identity, _ := access.From(r.Context())
	token := identity.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.open) >= s.most:
		return nil, nil, &hubapi.Error{Code: hubapi.CodeBusy, Message: fmt.Sprintf("%d streams of events are open already", s.most), RetryAfter: retry}
	case s.of[token] >= s.each && token != "":
		return nil, nil, &hubapi.Error{Code: hubapi.CodeBusy, Message: fmt.Sprintf("%d streams of events are open already with this access token", s.each), RetryAfter: retry}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	n := s.next
	s.next++
	s.open[n] = openStream{token, cancel}
	s.of[token]++
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, n)
		if s.of[token]--; s.of[token] == 0 {
			delete(s.of, token)
		}
	}, nil
}

// end ends the streams that are open.
func (s *streams) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.open {
		o.cancel(errEnding)
	}
}
