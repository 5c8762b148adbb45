package store

import (
	"context"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
)

// Bounds on the decisions about one environment of a platform.
const (
	// MaxDecisions is how many are kept.
	MaxDecisions = 1000
	// DecisionsKept is how long a decision that the hub has not signed is kept once there are MaxDecisions.
	DecisionsKept = 90 * 24 * time.Hour
)

// ErrFull means that an environment has MaxDecisions decisions, none of which may go.
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
	// AddDecision stores a decision, unless it is there. If there are MaxDecisions about the environment, the oldest that is not
	// the hub's own and was seen DecisionsKept ago goes; for one of the hub's own, the oldest that is not its own, else the
	// oldest. The error wraps ErrFull if none may go.
	AddDecision(ctx context.Context, d StoredDecision) (added bool, err error)
	// Decisions returns the decisions about an environment of all platforms, newest first.
	Decisions(ctx context.Context, environment string) ([]StoredDecision, error)
}
