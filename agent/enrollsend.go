package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.etcd.io/bbolt"

	"github.com/wherry-dev/wherry/agent/outbox"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/reconcilers"
)

// postEnrollment posts a request's envelope to the hub and returns what it answers with 200. The error wraps
// ErrRefused where the hub does not follow.
func (a *Agent) postEnrollment(ctx context.Context, hub string, request []byte) ([]byte, error) {
	address, err := hubapi.EnrollURL(hub)
	if err != nil {
		return nil, fmt.Errorf("hub %s: %w", hub, err)
	}
	answer, err := outbox.Post(ctx, a.opts.HTTPClient, hub, address, request, hubapi.MaxEnrolledBytes)
	var said *outbox.HubError
	if errors.As(err, &said) {
		switch said.StatusCode {
		case http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed: // an older hub, or none
			err = fmt.Errorf("%w: %w", ErrRefused, said)
		}
	}
	return answer, err
}

// enroller enrolls an agent that sends reports, where that has to come first.
type enroller struct {
	*Agent
	refused  string    // why the hub has not enrolled the agent, as logged
	askAgain time.Time // when to ask it again
}

// enrollFirst does what has to come before reports: a rotation that was begun is ended, and an agent that was given
// a token for it registers itself. What the hub refuses is logged, and reports are sent as before.
func (s *enroller) enrollFirst(ctx context.Context) error {
	var pending enrolling
	var known *enrollment
	err := s.state.db.View(func(tx *bbolt.Tx) (err error) {
		if pending, err = state.Load[enrolling](tx, state.Meta, keyEnrolling); err == nil {
			known, err = state.Load[*enrollment](tx, state.Meta, keyEnrollment)
		}
		return err
	})
	if err != nil {
		return err
	}
	o := EnrollOptions{Kind: EnrollRotate}
	switch {
	case pending.Kind == EnrollRotate && s.hub().Key != nil:
	case known == nil && s.opts.EnrollToken != "":
		o = EnrollOptions{Kind: EnrollAsIs, Token: s.opts.EnrollToken}
	default:
		return nil
	}
	if s.refused != "" && s.opts.Now().Before(s.askAgain) {
		return nil
	}
	_, err = s.Enroll(ctx, o)
	if err == nil || !lasting(err) {
		return err
	}
	s.askAgain = s.opts.Now().Add(outbox.LongestRetry)
	if s.refused != err.Error() {
		s.refused = err.Error()
		s.opts.Log.Warn("not enrolled", "err", err)
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

// hint is what the hub said about the identity of this agent. It is not signed, and only shown to people.
type hint struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// hintOf returns the hint of a receipt; the zero hint if it has none.
func hintOf(said *hubapi.IdentityHint) hint {
	if said == nil {
		return hint{}
	}
	return hint{string(said.Reason), said.Message}
}

// hear keeps what the hub said last about the identity of this agent. The zero hint means that all is well.
func (a *Agent) hear(said hint) error {
	said.Message = reconcilers.Clip(said.Message)
	switch said.Reason {
	case "", ReasonSharedIdentity, ReasonRetired, ReasonKeyReplaced:
	default:
		return nil // a newer hub's
	}
	return a.state.db.UpdateIf(func(tx *bbolt.Tx) (bool, error) {
		before, err := state.Load[hint](tx, state.Meta, keyHint)
		if err != nil || before == said {
			return false, err
		}
		if said.Reason != "" && said.Reason != before.Reason {
			a.opts.Log.Warn("the hub says that something is wrong with this agent's identity", "reason", said.Reason, "message", said.Message)
		}
		return true, state.Save(tx, state.Meta, keyHint, said)
	})
}

// hubSink takes reports to the hub.
func (a *Agent) hubSink() *outbox.HubSink {
	return &outbox.HubSink{
		Outbox: a.state.outbox, Sender: a.sender(), Client: a.opts.HTTPClient,
		First: (&enroller{Agent: a}).enrollFirst,
		Heard: func(said *hubapi.IdentityHint) error { return a.hear(hintOf(said)) },
	}
}

// registrySink takes reports to Options.ReportStore.
func (a *Agent) registrySink() *outbox.RegistrySink {
	return &outbox.RegistrySink{
		Outbox: a.state.outbox, Sender: a.sender(), Store: a.opts.ReportStore, Place: a.opts.ReportPlace, AckStored: a.opts.AckStored,
	}
}

func (a *Agent) sender() outbox.Sender {
	return outbox.Sender{
		UID: func() string { return a.cluster.UID }, Incarnation: func() int64 { return a.state.identity().Incarnation },
		Hub: a.hub, Now: a.opts.Now, Log: a.opts.Log,
	}
}

// Acknowledge deletes the reports that the hub's acknowledgements name; see outbox.Outbox.Acknowledge.
func (a *Agent) Acknowledge(envelopes [][]byte) (outbox.Acknowledged, error) {
	return a.state.outbox.Acknowledge(envelopes, a.hub().Key, a.cluster.UID)
}
