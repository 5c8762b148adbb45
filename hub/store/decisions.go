package store

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
)

// MaxDecisions bounds the decisions about one environment of a platform that the hub has not signed: anybody who may write to a
// registry can put them there.
const MaxDecisions = 3000

// ErrFull means that an environment has MaxDecisions decisions of others.
var ErrFull = errors.New("too many are stored")

// StoredDecision is a decision about promotion, in its signed envelope. Of those that the hub has not signed itself, the
// store knows what the envelope says, and not whether its signature is good.
type StoredDecision struct {
	Platform    string        `json:"platform"`
	Environment string        `json:"environment"`
	Digest      digest.Digest `json:"digest"` // of the envelope
	IssuedAt    time.Time     `json:"issuedAt"`
	SeenAt      time.Time     `json:"seenAt"`
	// Own is true if this hub has signed it.
	Own bool `json:"own"`
	// Envelope is the signed bytes; see docs/reference/formats.md.
	Envelope []byte `json:"envelope"`
}

// DecisionList is the decisions about an environment, newest first.
type DecisionList struct {
	Decisions []StoredDecision `json:"decisions"`
}

// Decisions are what people have decided about promotion.
type Decisions interface {
	// AddDecision stores a decision, unless it is there. None is ever removed. The error wraps ErrFull for one that is not the
	// hub's own if there are MaxDecisions of those.
	AddDecision(ctx context.Context, d StoredDecision) (added bool, err error)
	// Decisions returns the decisions about an environment of all platforms, newest first.
	Decisions(ctx context.Context, environment string) ([]StoredDecision, error)
}
