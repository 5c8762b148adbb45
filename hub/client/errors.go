package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/fleet"
	"github.com/wherry-dev/wherry/hub/store"
)

// errorOf returns the error of an answer whose status is not 200.
func errorOf(answer *http.Response, body []byte) error {
	var e hubapi.Error
	if json.Unmarshal(body, &e) == nil && e.Message != "" {
		e.RetryAfter = hubapi.RetryAfter(answer.Header, time.Now())
		return refusal(&e)
	}
	message := fmt.Sprintf("it answered %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	if text, _, _ := strings.Cut(strings.TrimSpace(string(body)), "\n"); text != "" && text[0] != '<' { // a proxy, or a port that speaks TLS
		message += ": " + store.Clip(text)
	}
	return errors.New(store.Plain(message))
}

// maxNear bounds the names that an error suggests.
const maxNear = 64

// refusal returns what fleet.Answers promises for a hub's error, or the error itself.
func refusal(e *hubapi.Error) error {
	fleet.Plain(e)
	e.Message = store.Clip(e.Message)
	e.Near = e.Near[:min(len(e.Near), maxNear)]
	var kind error
	switch {
	case e.Code == hubapi.CodeUnknownName:
		return &fleet.UnknownNameError{Kind: e.Kind, Name: e.Name, Near: e.Near}
	case e.Code == hubapi.CodeBadRequest:
		kind = store.ErrInvalid
	case e.Code == hubapi.CodeForgotten:
		kind = store.ErrForgotten
	case e.Code == hubapi.CodeNotFound && e.Kind == hubapi.KindCluster:
		kind = store.ErrUnknownCluster
	case e.Code == hubapi.CodeNotFound && e.Kind == hubapi.KindRelease:
		kind = store.ErrUnknownRelease
	case e.Code == hubapi.CodeNotFound && e.Kind == hubapi.KindReport:
		kind = store.ErrUnknownReport
	default:
		return e
	}
	return &answered{refused: e, kind: kind}
}

// answered is an error of the hub that also is one of this program's kinds of error.
type answered struct {
	refused *hubapi.Error
	kind    error
}

func (a *answered) Error() string { return a.refused.Message }

// Unwrap returns both.
func (a *answered) Unwrap() []error { return []error{a.refused, a.kind} }
