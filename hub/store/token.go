package store

import (
	"fmt"
	"time"
)

// TokenScope selects the agents that a token registers.
type TokenScope struct {
	// Type is the cluster type that an agent has to have; so are Environment and Ring, unless they are empty.
	Type        string `json:"type"`
	Environment string `json:"environment,omitempty"`
	Ring        string `json:"ring,omitempty"`
	// Labels are given to each cluster that the token registers, before its own of the same keys.
	Labels map[string]string `json:"labels,omitempty"`
	// Uses bounds the agents that it registers; zero means one.
	Uses int `json:"uses"`
	// ExpiresAt is the time at which the token expires.
	ExpiresAt time.Time `json:"expiresAt"`
	// EphemeralSeconds is how long a cluster that the token has registered may be silent before it is retired; zero means
	// for ever.
	EphemeralSeconds int64 `json:"ephemeralSeconds,omitempty"`
}

// Token is a token as a store keeps it, without its secret.
type Token struct {
	ID string `json:"id"`
	TokenScope
	// Left is the number of agents that the token may still register, whatever its State.
	Left      int        `json:"left"`
	State     TokenState `json:"state"`
	CreatedAt time.Time  `json:"createdAt"`
}

// TokenState is the state of a token: usable, or the reason why not.
type TokenState string

// The states of tokens.
const (
	TokenGood    TokenState = "good"
	TokenUsedUp  TokenState = "used"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
	// TokenWaits is that of a token of a restored backup that nobody has accepted yet.
	TokenWaits TokenState = "waits"
)

// Bounds of a token.
const (
	// MaxTokenTime bounds how long a token may wait to be used: a secret on paper or in a pipeline leaks in time.
	MaxTokenTime = 366 * 24 * time.Hour
	// MaxTokenUses bounds the agents of one token. Larger fleets take several, so that one can be revoked.
	MaxTokenUses = 10_000
	// MinEphemeral and MaxEphemeral bound how long an ephemeral cluster may be silent.
	MinEphemeral = time.Minute
	MaxEphemeral = 366 * 24 * time.Hour
)

// Check returns an error wrapping ErrInvalid that names the first value that is not acceptable for a new token.
func (s TokenScope) Check(now time.Time) error {
	switch {
	case s.Type == "":
		return fmt.Errorf("token: %w: it needs a cluster type", ErrInvalid)
	case s.Uses < 1 || s.Uses > MaxTokenUses:
		return fmt.Errorf("token: %w: it has %d uses, 1 to %d are allowed", ErrInvalid, s.Uses, MaxTokenUses)
	case !s.ExpiresAt.After(now) || s.ExpiresAt.Sub(now) > MaxTokenTime:
		return fmt.Errorf("token: %w: expected an expiry within %d days", ErrInvalid, MaxTokenTime/(24*time.Hour))
	case s.EphemeralSeconds != 0 && (s.EphemeralSeconds < int64(MinEphemeral/time.Second) || s.EphemeralSeconds > int64(MaxEphemeral/time.Second)):
		return fmt.Errorf("token: %w: its clusters are ephemeral for %d seconds; from a minute to %d days are allowed", ErrInvalid, s.EphemeralSeconds, MaxEphemeral/(24*time.Hour))
	}
	return checkTexts("token", s.Labels, s.Type, s.Environment, s.Ring)
}

// StateOf returns the state of a token at a time, with so many uses left, which was revoked, or waits.
func (s TokenScope) StateOf(left int, revoked, waits bool, now time.Time) TokenState {
	switch {
	case revoked:
		return TokenRevoked
	case left == 0:
		return TokenUsedUp
	case !now.Before(s.ExpiresAt):
		return TokenExpired
	case waits:
		return TokenWaits
	}
	return TokenGood
}
