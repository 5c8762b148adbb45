package enroll

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/queue"
)

// submit posts a request and saves the answer.
func (e *Enroller) submit(ctx context.Context, p pending, hub, url string) (Enrolled, error) {
	answer, err := e.post(ctx, url, p.Request)
	if err != nil {
		return Enrolled{}, err
	}
	var enrolled hubapi.Enrolled
	if err := json.Unmarshal(answer, &enrolled); err != nil {
		return Enrolled{}, fmt.Errorf("hub %s: answer: %w", url, err)
	}
	return e.accept(enrolled.Enrollment, hub, url)
}

// post posts a request's envelope to the hub and returns an answer with status 200. The error wraps
// ErrRefused if the hub refuses the request.
func (e *Enroller) post(ctx context.Context, hub string, request []byte) ([]byte, error) {
	address, err := hubapi.EnrollURL(hub)
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", hub, err)
	}
	answer, err := queue.Post(ctx, e.Client, hub, address, "", request, hubapi.MaxEnrolledBytes)
	var refused *queue.HubError
	if errors.As(err, &refused) {
		switch refused.StatusCode {
		case http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed: // an older hub, or none
			err = fmt.Errorf("%w: %w", ErrRefused, refused)
		}
	}
	return answer, err
}

// First enrolls an agent that sends reports, where that has to come first.
type First struct {
	Enroller *Enroller
	// Token registers an agent that no hub has enrolled; empty leaves that to people.
	Token string

	refused  string    // why the hub has not enrolled the agent, as logged
	askAgain time.Time // when to ask it again
}

// Do ends a rotation that was begun, and registers an agent that has a token. It logs a
// refusal by the hub, after which reports are sent as before.
func (f *First) Do(ctx context.Context) error {
	e := f.Enroller
	var p pending
	var known *enrollment
	err := e.Store.db.View(func(tx *bbolt.Tx) (err error) {
		if p, err = loadPending(tx); err == nil {
			known, err = state.Load[*enrollment](tx, state.Meta, keyEnrollment)
		}
		return err
	})
	if err != nil {
		return err
	}
	o := Options{Kind: Rotate}
	switch {
	case p.Kind == Rotate && e.Hub().Key != nil:
	case known == nil && f.Token != "":
		o = Options{Kind: AsIs, Token: f.Token}
	default:
		return nil
	}
	if f.refused != "" && e.Now().Before(f.askAgain) {
		return nil
	}
	_, err = e.Enroll(ctx, o)
	if err == nil || !lasting(err) {
		return err
	}
	f.askAgain = e.Now().Add(queue.LongestRetry)
	if f.refused != err.Error() {
		f.refused = err.Error()
		e.Log.Warn("not enrolled", "err", err)
	}
	return nil
}

// lasting reports whether asking again soon is of no use.
func lasting(err error) bool {
	for _, e := range []error{ErrRefused, ErrOtherHub, ErrUnfinished, ErrNoRequest, bundle.ErrToken, bundle.ErrUntrusted} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
