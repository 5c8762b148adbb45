package hub

import (
	"context"
	"crypto"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/wherry-dev/wherry/bundle"
)

// ErrUnknownToken says that the hub has no token of that id.
var ErrUnknownToken = errors.New("no such token")

// TokenScope is what a token is good for.
type TokenScope struct {
	// Type is the cluster type that an agent has to have; Environment and Ring too, where they are not empty.
	Type        string `json:"type"`
	Environment string `json:"environment,omitempty"`
	Ring        string `json:"ring,omitempty"`
	// Labels are given to each cluster that the token registers, before its own of the same keys.
	Labels map[string]string `json:"labels,omitempty"`
	// Uses is how many agents it registers; zero means one.
	Uses int `json:"uses"`
	// ExpiresAt is when it is of no use any more.
	ExpiresAt time.Time `json:"expiresAt"`
}

// Token is a token as the hub keeps it, which is without its secret.
type Token struct {
	ID string `json:"id"`
	TokenScope
	// Left is the number of agents that it may still register, whatever its State.
	Left      int        `json:"left"`
	State     TokenState `json:"state"`
	CreatedAt time.Time  `json:"createdAt"`
}

// TokenState says whether a token is of use.
type TokenState string

// The states of tokens.
const (
	TokenGood    TokenState = "good"
	TokenUsedUp  TokenState = "used"
	TokenExpired TokenState = "expired"
	TokenRevoked TokenState = "revoked"
)

// Bounds of a token.
const (
	// MaxTokenTime bounds how long a token may wait to be used: a secret on paper or in a pipeline leaks in time.
	MaxTokenTime = 366 * 24 * time.Hour
	// MaxTokenUses bounds the agents of one token. Larger fleets take several, so that one can be revoked.
	MaxTokenUses = 10_000
)

func (s TokenScope) check(now time.Time) error {
	switch {
	case s.Type == "":
		return fmt.Errorf("token: %w: it needs a cluster type", ErrInvalid)
	case s.Uses < 1 || s.Uses > MaxTokenUses:
		return fmt.Errorf("token: %w: it has %d uses, 1 to %d are allowed", ErrInvalid, s.Uses, MaxTokenUses)
	case !s.ExpiresAt.After(now) || s.ExpiresAt.Sub(now) > MaxTokenTime:
		return fmt.Errorf("token: %w: it has to expire within %d days from now", ErrInvalid, MaxTokenTime/(24*time.Hour))
	}
	return checkTexts("token", s.Labels, s.Type, s.Environment, s.Ring)
}

// CreateToken makes a token and returns it, which nobody can do again: the hub keeps no secret of it. The error
// wraps ErrInvalid.
func (h *Hub) CreateToken(ctx context.Context, s TokenScope) (bundle.EnrollToken, error) {
	s.Uses = max(s.Uses, 1)
	now := h.now()
	if err := s.check(now); err != nil {
		return bundle.EnrollToken{}, err
	}
	token, err := bundle.NewEnrollToken(h.PublicKey())
	if err != nil {
		return token, err
	}
	der, err := x509.MarshalPKIXPublicKey(token.Key().Public())
	if err != nil {
		return token, err
	}
	labels, err := json.Marshal(s.Labels)
	if err != nil {
		return token, err
	}
	err = h.writer.do(ctx, func(ctx context.Context, db *conn) error {
		_, err := db.exec(ctx, `INSERT INTO token (id, public_key, type, environment, ring, labels, uses, created_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			token.ID(), der, s.Type, s.Environment, s.Ring, string(labels), s.Uses, millis(now), millis(s.ExpiresAt))
		return err
	})
	if err != nil {
		return bundle.EnrollToken{}, fmt.Errorf("keep token: %w", err)
	}
	return token, nil
}

// Tokens returns all tokens, newest first.
func (h *Hub) Tokens(ctx context.Context) ([]Token, error) {
	found, err := h.tokens(ctx, h.read, `TRUE ORDER BY t.created_at DESC, t.id`)
	all := make([]Token, 0, len(found))
	for _, t := range found {
		all = append(all, t.Token)
	}
	return all, classify(err)
}

// RevokeToken makes a token useless. What it has registered stays registered. The error wraps ErrUnknownToken.
func (h *Hub) RevokeToken(ctx context.Context, id string) error {
	now := millis(h.now())
	return h.writer.do(ctx, func(ctx context.Context, db *conn) error {
		n, err := db.exec(ctx, `UPDATE token SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?`, now, id)
		if err == nil && n == 0 {
			err = fmt.Errorf("token %q: %w", id, ErrUnknownToken)
		}
		return err
	})
}

// keptToken is a token with the key that proves it.
type keptToken struct {
	Token
	key crypto.PublicKey
}

func (h *Hub) tokens(ctx context.Context, db querier, where string, args ...any) ([]keptToken, error) {
	rows, err := db.QueryContext(ctx, `SELECT t.id, t.public_key, t.type, t.environment, t.ring, t.labels, t.uses, t.created_at, t.expires_at, t.revoked_at,
			(SELECT count(*) FROM token_use u WHERE u.token_id = t.id)
		FROM token t WHERE `+where, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []keptToken
	for rows.Next() {
		var t keptToken
		var der []byte
		var labels string
		var created, expires int64
		var revoked sql.NullInt64
		var used int
		if err := rows.Scan(&t.ID, &der, &t.Type, &t.Environment, &t.Ring, &labels, &t.Uses, &created, &expires, &revoked, &used); err != nil {
			return nil, err
		}
		if err := json.Unmarshal([]byte(labels), &t.Labels); err != nil {
			return nil, fmt.Errorf("labels of token %s: %w: %v", t.ID, ErrCorrupt, err)
		}
		if t.key, err = bundle.ParsePublicKey(der); err != nil {
			return nil, fmt.Errorf("token %s: %w: %v", t.ID, ErrCorrupt, err)
		}
		t.CreatedAt, t.ExpiresAt, t.Left = moment(created), moment(expires), max(0, t.Uses-used)
		switch {
		case revoked.Valid:
			t.State = TokenRevoked
		case t.Left == 0:
			t.State = TokenUsedUp
		case !h.now().Before(t.ExpiresAt):
			t.State = TokenExpired
		default:
			t.State = TokenGood
		}
		all = append(all, t)
	}
	return all, rows.Err()
}
