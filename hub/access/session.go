package access

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

// Sessions are those of people who have signed in with another system. It is a Source, by a cookie for browsers and as Bearer for
// commands, and answers for access tokens as Tokens does. A session is kept as an access token is, and has a short life.
type Sessions struct {
	Tokens Tokens
	// Length is how long a session lasts, and Idle how long it may go without a request. Proof is how long the word of the other system
	// is good: then the browser has to bring it again.
	Length, Idle, Proof time.Duration
	// Plain is for a hub on plain HTTP, on loopback alone.
	Plain bool
}

// Person is somebody for whom another system vouches. ExpiresAt is not used.
type Person struct {
	Request
	// Subject is who it is for that system.
	Subject string
}

// Cookie returns a cookie that this hub alone gets back, from pages of its own and from links that lead to it; "" is the name of that
// with the session. A life of zero removes it.
func (s Sessions) Cookie(name, value string, life time.Duration) *http.Cookie {
	c := &http.Cookie{Name: "__Host-wherry" + name, Value: value, Path: "/", MaxAge: int(life.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
	if s.Plain { // a browser takes the other name over TLS alone
		c.Name, c.Secure = "wherry"+name, false
	}
	if life == 0 {
		c.MaxAge = -1
	}
	return c
}

// CookieOf returns the value of a cookie that Cookie has made; empty without one.
func (s Sessions) CookieOf(r *http.Request, name string) string {
	c, err := r.Cookie(s.Cookie(name, "", 0).Name)
	if err != nil {
		return ""
	}
	return c.Value
}

// Identify implements Source.
func (s Sessions) Identify(r *http.Request) (Identity, error) {
	kept, err := s.find(r)
	if err == nil && kept.Subject == "" {
		return s.Tokens.judge(r.Context(), kept)
	}
	if err == nil {
		kept, err = s.alive(kept)
	}
	if err != nil {
		return Identity{Name: kept.Name, ID: kept.ID}, err
	}
	if !s.Tokens.now().Before(kept.ExpiresAt) {
		return Identity{}, &hubapi.Error{Code: hubapi.CodeUnauthenticated, Kind: hubapi.KindSession, Message: "the session has to be renewed: load a page, or sign in again"}
	}
	return s.Tokens.used(r.Context(), kept, useSessionEvery)
}

// find returns what is kept of the token of a request: of the session in its cookie, or of what the header Authorization has.
func (s Sessions) find(r *http.Request) (store.AccessToken, error) {
	token, err := presented(r)
	if err == nil {
		return s.Tokens.find(r.Context(), token)
	}
	value := s.CookieOf(r, "")
	if !errors.Is(err, ErrNoCredentials) || value == "" {
		return store.AccessToken{}, err
	}
	var kept store.AccessToken
	if token, err = ParseToken(value); err == nil {
		kept, err = s.Tokens.find(r.Context(), token)
	}
	if err == nil && kept.Subject == "" || errors.Is(err, ErrToken) || errors.As(err, new(*hubapi.Error)) {
		return store.AccessToken{}, unauthenticated("the cookie is not a session of this hub")
	}
	return kept, err
}

// session returns the session of a request, if it has not ended. It may have to be renewed.
func (s Sessions) session(r *http.Request) (store.AccessToken, error) {
	kept, err := s.find(r)
	if err != nil {
		return kept, err
	}
	if kept.Subject == "" {
		return store.AccessToken{}, ErrNoCredentials
	}
	return s.alive(kept)
}

// alive returns a session if it has not ended. With a refusal, it returns one that somebody has ended.
func (s Sessions) alive(kept store.AccessToken) (store.AccessToken, error) {
	now, used := s.Tokens.now(), kept.UsedAt
	if used.Before(kept.CreatedAt) {
		used = kept.CreatedAt
	}
	switch {
	case !kept.RevokedAt.IsZero():
		return kept, ended("the session was ended")
	case kept.Waits, !now.Before(kept.CreatedAt.Add(s.Length)), now.Sub(used) >= s.Idle+useSessionEvery:
		return store.AccessToken{}, ended("the session has ended")
	}
	return kept, nil
}

func ended(message string) error {
	return &hubapi.Error{Code: hubapi.CodeUnauthenticated, Kind: hubapi.KindEndedSession, Message: message}
}

// Begin begins the session of a person, and gives the browser its cookie. If the browser has one of that person already, it renews that
// with the person's role and scope as of now. The audit log has what changed.
func (s Sessions) Begin(w http.ResponseWriter, r *http.Request, p Person) error {
	now := s.Tokens.now().UTC()
	if err := p.Check(now); err != nil {
		return err
	}
	kept, err := s.session(r)
	if err == nil && kept.Subject == p.Subject && kept.Name == p.Name {
		_, err = s.renew(r.Context(), kept, p, now)
		return err
	}
	if _, err := s.End(w, r); err != nil { // somebody else signs in
		return err
	}
	secret, _, err := s.open(r.Context(), p, "", now)
	if err == nil {
		http.SetCookie(w, s.Cookie("", secret.Reveal(), s.Length))
	}
	return err
}

// Renew renews the session whose token a request has as Bearer, for the same person, with their role and scope as of now. If it has
// ended by itself, Renew begins another one. A session that somebody has ended is not renewed.
func (s Sessions) Renew(r *http.Request, p Person) (Token, store.AccessToken, error) {
	now := s.Tokens.now().UTC()
	if err := p.Check(now); err != nil {
		return Token{}, store.AccessToken{}, err
	}
	token, err := presented(r)
	if err != nil {
		return Token{}, store.AccessToken{}, err
	}
	kept, err := s.Tokens.find(r.Context(), token)
	switch {
	case err != nil:
		return Token{}, store.AccessToken{}, err
	case kept.Subject != p.Subject || kept.Name != p.Name:
		return Token{}, store.AccessToken{}, ended("the session is not yours")
	case !kept.RevokedAt.IsZero():
		return Token{}, store.AccessToken{}, ended("the session was ended")
	}
	if _, err := s.alive(kept); err != nil {
		return s.open(r.Context(), p, forCommands, now)
	}
	kept, err = s.renew(r.Context(), kept, p, now)
	return token, kept, err
}

const forCommands = ", for commands"

// Open begins a session of a person for commands, which send its token as Bearer.
func (s Sessions) Open(ctx context.Context, p Person) (Token, store.AccessToken, error) {
	now := s.Tokens.now().UTC()
	if err := p.Check(now); err != nil {
		return Token{}, store.AccessToken{}, err
	}
	return s.open(ctx, p, forCommands, now)
}

func (s Sessions) open(ctx context.Context, p Person, how string, now time.Time) (Token, store.AccessToken, error) {
	secret := NewToken()
	kept := store.AccessToken{ID: secret.ID(), Hash: secret.Hash(), Name: p.Name, Subject: p.Subject, Role: string(p.Role), AccessScope: p.AccessScope, CreatedAt: now}
	kept.ExpiresAt = s.proofEnds(kept, now)
	if err := s.Tokens.Store.AddAccess(ctx, kept); err != nil {
		return Token{}, store.AccessToken{}, err
	}
	return secret, kept, s.note(ctx, kept, "begin session", p.describe()+", "+p.Subject+how, now)
}

func (s Sessions) proofEnds(kept store.AccessToken, now time.Time) time.Time {
	if end := kept.CreatedAt.Add(s.Length); end.Before(now.Add(s.Proof)) {
		return end
	}
	return now.Add(s.Proof)
}

func (s Sessions) renew(ctx context.Context, kept store.AccessToken, p Person, now time.Time) (store.AccessToken, error) {
	was := Request{Role: Role(kept.Role), AccessScope: kept.AccessScope}.describe()
	kept.Role, kept.AccessScope, kept.ExpiresAt = string(p.Role), p.AccessScope, s.proofEnds(kept, now)
	if err := s.Tokens.Store.RenewAccess(ctx, kept); err != nil {
		return kept, err
	}
	if is := p.describe(); is != was {
		return kept, s.note(ctx, kept, "change session", is+"; was "+was, now)
	}
	return kept, nil
}

// End ends the session that a request has, in the name of its person, and removes its cookie. It reports whether there was one.
func (s Sessions) End(w http.ResponseWriter, r *http.Request) (bool, error) {
	http.SetCookie(w, s.Cookie("", "", 0))
	kept, err := s.session(r)
	if err == nil {
		_, err = s.Tokens.Revoke(With(r.Context(), Identity{Name: kept.Name, ID: kept.ID}), kept.ID)
		return err == nil, err
	}
	if errors.Is(err, ErrNoCredentials) || errors.As(err, new(*hubapi.Error)) {
		err = nil
	}
	return false, err
}

// note notes what happened to a session in the name of its person.
func (s Sessions) note(ctx context.Context, kept store.AccessToken, action, detail string, now time.Time) error {
	who := Identity{Name: kept.Name, ID: kept.ID}
	return Note(With(ctx, who), s.Tokens.Store, store.AuditEntry{At: now, Action: action, Object: who.Actor(), Detail: detail})
}
