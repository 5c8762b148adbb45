package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// AdminTokenFile is the file in a hub's folder with the first access token, of role admin, for commands on the hub's machine.
const AdminTokenFile = "admin.token"

// MaxTokenTime bounds how long an access token may be good. Zero, for no end, is allowed too.
const MaxTokenTime = 10 * 366 * 24 * time.Hour

// maxTokenName bounds a token's name, in bytes.
const maxTokenName = 128

// useEvery is how old the noted last use of a token may become, useSessionEvery that of a session.
const (
	useEvery        = time.Hour
	useSessionEvery = time.Minute
)

// Tokens makes, checks and revokes the access tokens of a store. It is a Source.
type Tokens struct {
	Store store.Access
	// Now is nil for time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
}

// Request describes a new token.
type Request struct {
	// Name says who uses it: a person or a machine.
	Name string
	Role Role
	store.AccessScope
	// ExpiresAt is zero for a token that does not expire.
	ExpiresAt time.Time
}

// Create makes a token, which only the caller has, and notes that in the audit log. The error wraps store.ErrInvalid or
// store.ErrExists.
func (t Tokens) Create(ctx context.Context, r Request) (Token, store.AccessToken, error) {
	if err := r.Check(t.now()); err != nil {
		return Token{}, store.AccessToken{}, err
	}
	secret := NewToken()
	kept := store.AccessToken{
		ID: secret.ID(), Hash: secret.Hash(), Name: r.Name, Role: string(r.Role), AccessScope: r.AccessScope,
		CreatedAt: t.now().UTC(), ExpiresAt: r.ExpiresAt,
	}
	if err := t.Store.AddAccess(ctx, kept); err != nil {
		return Token{}, store.AccessToken{}, err
	}
	err := Note(ctx, t.Store, store.AuditEntry{At: t.now(), Action: "create access token", Object: kept.Name + " (" + kept.ID + ")", Detail: r.describe()})
	return secret, kept, err
}

// Revoke makes the token of this id or name useless, or the session of this id, and notes that in the audit log. The error wraps store.ErrUnknownAccess.
func (t Tokens) Revoke(ctx context.Context, idOrName string) (store.AccessToken, error) {
	if parsed, err := ParseToken(idOrName); err == nil { // a person may paste a leaked token instead of its id
		idOrName = parsed.ID()
	}
	kept, err := t.Store.RevokeAccess(ctx, idOrName)
	if err != nil {
		return kept, err
	}
	action := "revoke access token"
	if kept.Subject != "" {
		action = "end session"
	}
	return kept, Note(ctx, t.Store, store.AuditEntry{At: t.now(), Action: action, Object: kept.Name + " (" + kept.ID + ")"})
}

// AdminName is the name of the first token.
const AdminName = "admin"

// DefaultTokenTime is how long a token is good for which nobody says so, and the first one.
const DefaultTokenTime = 90 * 24 * time.Hour

// First makes the first token, of role admin and good for DefaultTokenTime, if the store has none, and keeps it in a file: whoever
// may read that works on the hub's machine. It returns the zero Token if there are tokens already. Place writes the file, and fails with fs.ErrExist
// if it is there. A file that a crash has left is used: its token is not in the store yet.
func (t Tokens) First(ctx context.Context, file string, place func(path string, data []byte) error) (Token, error) {
	all, err := t.Store.AccessTokens(ctx)
	if err != nil || len(all) > 0 {
		return Token{}, err
	}
	secret := NewToken()
	err = place(file, []byte(secret.Reveal()+"\n"))
	if errors.Is(err, fs.ErrExist) {
		var data []byte
		if data, err = diskfile.Read(file, maxTokenFile); err == nil {
			secret, err = ParseToken(string(data))
		}
	}
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", file, err)
	}
	err = t.Store.AddAccess(ctx, store.AccessToken{
		ID: secret.ID(), Hash: secret.Hash(), Name: AdminName, Role: string(Admin), CreatedAt: t.now().UTC(), ExpiresAt: t.now().UTC().Add(DefaultTokenTime),
	})
	if errors.Is(err, store.ErrExists) { // another hub of the same database, or of the same folder, was faster
		return Token{}, t.forget(ctx, secret, file)
	}
	if err != nil {
		return Token{}, err
	}
	return secret, Note(ctx, t.Store, store.AuditEntry{At: t.now(), Action: "create access token", Object: AdminName + " (" + secret.ID() + ")", Detail: "role admin, the first"})
}

// ReadFile returns the token that a file holds, as the store keeps it. The error wraps fs.ErrNotExist, ErrToken or
// store.ErrUnknownAccess.
func (t Tokens) ReadFile(ctx context.Context, file string) (store.AccessToken, error) {
	data, err := diskfile.Read(file, maxTokenFile)
	if err != nil {
		return store.AccessToken{}, err
	}
	secret, err := ParseToken(string(data))
	if err != nil {
		return store.AccessToken{}, fmt.Errorf("%s: %w", file, err)
	}
	return t.Store.AccessToken(ctx, secret.ID())
}

// forget removes the file of a token that is not in the store.
func (t Tokens) forget(ctx context.Context, secret Token, file string) error {
	if _, err := t.Store.AccessToken(ctx, secret.ID()); !errors.Is(err, store.ErrUnknownAccess) {
		return err
	}
	return os.Remove(file)
}

// maxTokenFile bounds the file with a token.
const maxTokenFile = 4 << 10

// Check returns an error that wraps store.ErrInvalid for what cannot be a token at this time.
func (r Request) Check(now time.Time) error {
	if r.Name == "" || len(r.Name) > maxTokenName || r.Name != store.Plain(r.Name) || strings.TrimSpace(r.Name) != r.Name || r.Name == Local {
		return fmt.Errorf("access token: %w: name %q: expected 1 to %d characters, without control characters, other than %q", store.ErrInvalid, store.Plain(store.Clip(r.Name)), maxTokenName, Local)
	}
	if _, err := ParseRole(string(r.Role)); err != nil {
		return err
	}
	scope, err := ParseScope(r.AccessScope)
	if err != nil {
		return err
	}
	switch {
	case r.Role.whole() && !scope.Whole():
		return fmt.Errorf("access token: %w: role %s has no scope: tokens, the audit log and metrics are of the whole fleet", store.ErrInvalid, r.Role)
	case r.Role == Operator && len(r.Workspaces) > 0:
		return fmt.Errorf("access token: %w: role operator takes no workspaces, since clusters belong to none", store.ErrInvalid)
	case !r.ExpiresAt.IsZero() && (!r.ExpiresAt.After(now) || r.ExpiresAt.Sub(now) > MaxTokenTime):
		return fmt.Errorf("access token: %w: expected an expiry within ten years, or never", store.ErrInvalid)
	}
	return nil
}

func (r Request) describe() string {
	parts := []string{"role " + string(r.Role)}
	if len(r.Environments) > 0 {
		parts = append(parts, "environments "+strings.Join(r.Environments, ","))
	}
	if len(r.Workspaces) > 0 {
		parts = append(parts, "workspaces "+strings.Join(r.Workspaces, ","))
	}
	if r.Selector != "" {
		parts = append(parts, "selector "+r.Selector)
	}
	return strings.Join(parts, ", ")
}

// Identify implements Source: it takes a token as Bearer, or as the password of Basic for requests that change nothing, and for forms of the
// hub's own pages. A browser sends Basic on its own accord, also for a form on a page of another site.
func (t Tokens) Identify(r *http.Request) (Identity, error) {
	token, err := presented(r)
	if err != nil {
		return Identity{}, err
	}
	return t.Check(r.Context(), token)
}

// presented returns the token in the header Authorization. The error is ErrNoCredentials without one, or a *hubapi.Error.
func presented(r *http.Request) (Token, error) {
	headers := r.Header.Values("Authorization")
	if len(headers) == 0 {
		return Token{}, ErrNoCredentials
	}
	if len(headers) > 1 {
		return Token{}, unauthenticated("the request has more than one Authorization header")
	}
	kind, value, _ := strings.Cut(headers[0], " ")
	switch {
	case strings.EqualFold(kind, "Bearer"):
	case strings.EqualFold(kind, "Basic"):
		if r.Method != http.MethodGet && r.Method != http.MethodHead && !ownPage(r) {
			return Token{}, unauthenticated("Basic authorization is for pages alone; send the token as Bearer")
		}
		_, password, ok := r.BasicAuth()
		if !ok {
			return Token{}, unauthenticated("the Basic authorization is damaged")
		}
		value = password
	default:
		return Token{}, unauthenticated("send an access token, as Bearer")
	}
	token, err := ParseToken(value)
	if err != nil {
		return Token{}, unauthenticated("the access token is not one of this hub's")
	}
	return token, nil
}

// ownPage reports whether a browser says that a page of the host that is asked has sent the request.
func ownPage(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin")) // browsers without TLS send this alone
	return err == nil && origin.Host != "" && origin.Host == r.Host
}

// Check returns the identity of a token's owner, as of now. The error is a *hubapi.Error with CodeUnauthenticated, or the
// store's; of a token that was revoked or has expired, name and id are returned with it.
func (t Tokens) Check(ctx context.Context, token Token) (Identity, error) {
	kept, err := t.find(ctx, token)
	if err != nil {
		return Identity{}, err
	}
	return t.judge(ctx, kept)
}

// judge is Check for what is kept of a token.
func (t Tokens) judge(ctx context.Context, kept store.AccessToken) (Identity, error) {
	now, was := t.now(), Identity{Name: kept.Name, ID: kept.ID}
	switch {
	case kept.Subject != "":
		return Identity{}, unauthenticated("this is the session of a person, and this hub has no login any more")
	case !kept.RevokedAt.IsZero():
		return was, unauthenticated("access token %s was revoked", kept.ID)
	case !kept.ExpiresAt.IsZero() && !now.Before(kept.ExpiresAt):
		return was, unauthenticated("access token %s has expired; \"wherry hub access create\" makes another", kept.ID)
	case kept.Waits:
		return was, unauthenticated("access token %s waits: the hub was restored from a backup, and an admin has to accept its tokens (wherry hub restore --accept-tokens)", kept.ID)
	}
	return t.used(ctx, kept, useEvery)
}

// find returns what is kept of a token. Whoever has not the secret does not learn whether a token of the id exists, nor how much of the
// secret is right.
func (t Tokens) find(ctx context.Context, token Token) (store.AccessToken, error) {
	kept, err := t.Store.AccessToken(ctx, token.ID())
	known := err == nil && len(kept.Hash) == sha256.Size
	if err != nil && !errors.Is(err, store.ErrUnknownAccess) {
		return store.AccessToken{}, err
	}
	if !known {
		kept.Hash = make([]byte, sha256.Size)
	}
	if subtle.ConstantTimeCompare(kept.Hash, token.Hash()) != 1 || !known {
		return store.AccessToken{}, unauthenticated("the access token is not one of this hub's")
	}
	return kept, nil
}

// used returns the identity that a kept token gives, and notes its use.
func (t Tokens) used(ctx context.Context, kept store.AccessToken, every time.Duration) (Identity, error) {
	identity, err := IdentityOf(kept)
	if err != nil { // the database was changed by hand, or by a newer version: no scope is not the whole fleet
		return Identity{}, fmt.Errorf("access token %s: %w", kept.ID, err)
	}
	if now := t.now(); now.Sub(kept.UsedAt) >= every {
		if err := t.Store.UseAccess(ctx, kept.ID, now, every); err != nil && t.Log != nil {
			t.Log.Warn("use of an access token not noted", "token", kept.ID, "err", err)
		}
	}
	return identity, nil
}

// IdentityOf returns the identity that a kept token gives. The error says that its role or scope is not valid; it does not
// wrap store.ErrInvalid, since no caller is at fault.
func IdentityOf(kept store.AccessToken) (Identity, error) {
	scope, err := ParseScope(kept.AccessScope)
	if err != nil {
		return Identity{}, errors.New(err.Error())
	}
	role, err := ParseRole(kept.Role)
	if err != nil {
		return Identity{}, errors.New(err.Error())
	}
	return Identity{Name: kept.Name, ID: kept.ID, Session: kept.Subject != "", Role: role, Scope: scope, ExpiresAt: kept.ExpiresAt}, nil
}

func (t Tokens) now() time.Time {
	if t.Now == nil {
		return time.Now()
	}
	return t.Now()
}

func unauthenticated(format string, args ...any) error {
	return &hubapi.Error{Code: hubapi.CodeUnauthenticated, Message: fmt.Sprintf(format, args...)}
}
