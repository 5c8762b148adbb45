package store

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/opencontainers/go-digest"
)

var (
	// ErrUnknownAccess means that there is no access token of that id or name.
	ErrUnknownAccess = errors.New("no such access token")
	// ErrOtherKey means that the database belongs to a hub with another key.
	ErrOtherKey = errors.New("belongs to a hub with another key")
)

// AccessToken lets a person or a machine use the hub. Its secret is not kept.
type AccessToken struct {
	// ID is the public part of the token, and Hash the SHA-256 of its secret.
	ID   string `json:"id"`
	Hash []byte `json:"-"`
	// Name says who uses it, as the audit log shows it.
	Name string `json:"name"`
	Role string `json:"role"` // of package hub/access
	AccessScope
	CreatedAt time.Time `json:"createdAt,omitzero"`
	// Subject is who signed in, "SUB at ISSUER", for the session of a person; empty for a token that was made. Names of sessions may
	// repeat.
	Subject string `json:"subject,omitempty"`
	// ExpiresAt is zero for a token that does not expire. A session is renewed then, or ends.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// RevokedAt is zero unless it was revoked.
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	// UsedAt is the time of the last use, to the hour, or to the minute for a session; zero before the first.
	UsedAt time.Time `json:"usedAt,omitzero"`
	// Waits is true for a token of a restored backup that nobody has accepted yet. It is refused.
	Waits bool `json:"waits,omitempty"`
}

// WhoAmI is who sends a request, and what it may do there.
type WhoAmI struct {
	AccessToken
	// May lists permissions: login, read, read-whole, operate, publish, approve, audit, measure, administer. The scope bounds them.
	May []string `json:"may"`
}

// AccessScope restricts a token to a part of the fleet. All that are set have to hold. The zero AccessScope is the whole
// fleet.
type AccessScope struct {
	Environments []string `json:"environments,omitempty"`
	Workspaces   []string `json:"workspaces,omitempty"`
	// Selector is a label selector, in kubectl's form, of the labels as registered.
	Selector string `json:"selector,omitempty"`
}

// AuditEntry is a write or an override, who did it, and when.
type AuditEntry struct {
	// Position is 1 for the first entry, and one more for each that follows.
	Position int64 `json:"position"`
	// Digest is Chained of the entry before.
	Digest digest.Digest `json:"digest,omitempty"`
	At     time.Time     `json:"at"`
	// Actor is the name of the access token, with its id; "local" for commands on the hub's folder; or the uid of a cluster.
	Actor string `json:"actor"`
	// Action is a verb and a kind, such as "retire cluster"; Object is its name.
	Action string `json:"action"`
	Object string `json:"object"`
	// Reason is why, as given. Detail has no secrets.
	Reason string `json:"reason,omitempty"`
	Detail string `json:"detail,omitempty"`
	// Environment and Workspace are those of the object, for scopes; empty if it belongs to none.
	Environment string `json:"environment,omitempty"`
	Workspace   string `json:"workspace,omitempty"`
}

// Chained returns the digest of the entry as the one that follows an entry with the digest previous, which is empty for the first:
// the SHA-256 of previous, a line feed, and the entry as JSON without its digest. Whoever knows the digest of an entry
// knows that no entry up to there was changed, added or removed.
func (e AuditEntry) Chained(previous digest.Digest) (digest.Digest, error) {
	e.Digest = ""
	body, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	return digest.FromBytes(append([]byte(previous+"\n"), body...)), nil
}

// The bodies of requests and answers about access tokens and the audit log.
type (
	// NewAccess describes a new access token; the fields are those of AccessToken. Without ExpiresAt it is good for 90 days.
	NewAccess struct {
		Name string `json:"name"`
		Role string `json:"role"`
		AccessScope
		ExpiresAt time.Time `json:"expiresAt,omitzero"`
	}
	// AccessTokenList is all access tokens, newest first.
	AccessTokenList struct {
		Access []AccessToken `json:"access"`
	}
	// CreatedAccess is a new access token with its secret, which is told only once.
	CreatedAccess struct {
		Token  string      `json:"token"`
		Access AccessToken `json:"access"`
	}
	// DeviceLogin is how commands sign people in at the provider of the hub's login, by RFC 8628.
	DeviceLogin struct {
		Issuer   string   `json:"issuer"`
		ClientID string   `json:"clientID"`
		Scopes   []string `json:"scopes"`
	}
	// NewSession asks for the session of the person whom an ID token of the provider is about.
	NewSession struct {
		IDToken string `json:"idToken"`
	}
	// EndedSession says whether the token of the request was a session.
	EndedSession struct {
		Ended bool `json:"ended"`
	}
	// AuditList is entries of the audit log, newest first.
	AuditList struct {
		Entries []AuditEntry `json:"entries"`
		// Next continues the list, as the parameter before. A page of a list that goes on may have few entries, or none.
		Next int64 `json:"next,omitempty"`
	}
)

// Access keeps access tokens and the audit log.
type Access interface {
	// AddAccess keeps a new token or session. The error wraps ErrExists if one of that id is there, or if t is a token and another one
	// with that name is in force. It removes the sessions that expired more than a week ago.
	AddAccess(ctx context.Context, t AccessToken) error
	// RenewAccess replaces role, scope and expiry of the session of this id. The error wraps ErrUnknownAccess, also for a token and
	// for a session that was revoked.
	RenewAccess(ctx context.Context, t AccessToken) error
	// AccessToken returns the token of this id. The error wraps ErrUnknownAccess.
	AccessToken(ctx context.Context, id string) (AccessToken, error)
	// AccessTokens returns all tokens, newest first.
	AccessTokens(ctx context.Context) ([]AccessToken, error)
	// RevokeAccess makes the token of this id or name useless, or the session of this id, and returns it. The error wraps
	// ErrUnknownAccess.
	RevokeAccess(ctx context.Context, idOrName string) (AccessToken, error)
	// UseAccess notes that the token was used at a time, if the noted one is older by every.
	UseAccess(ctx context.Context, id string, at time.Time, every time.Duration) error
	// HoldTokens makes all tokens wait, those that register agents too, and AcceptTokens ends that. They return how many of the
	// tokens are otherwise in force.
	HoldTokens(ctx context.Context) (int, error)
	AcceptTokens(ctx context.Context) (int, error)
	// Audit appends to the audit log. The store sets position and digest.
	Audit(ctx context.Context, e AuditEntry) error
	// AuditHead returns position and digest of the newest entry; zero values without one. It is kept apart from the entries.
	AuditHead(ctx context.Context) (position int64, d digest.Digest, err error)
	// AuditLog returns the entries after a position, oldest first, at most limit.
	AuditLog(ctx context.Context, after int64, limit int) ([]AuditEntry, error)
	// PinKey notes that the database belongs to the hub whose key has this id. The error wraps ErrOtherKey if it belongs to
	// another.
	PinKey(ctx context.Context, keyID string) error
	// PinnedKey returns the id of the key of the hub that the database belongs to; empty if it belongs to none yet.
	PinnedKey(ctx context.Context) (string, error)
}
