// Package login signs people in at a hub with their company's accounts, by OpenID Connect: browsers by the authorization code flow with PKCE,
// commands by the device flow of RFC 8628.
//
// Begin with Read, which reads the file of "wherry hub serve --login", and New. A Login is an access.Source, and has Routes: /login sends
// a browser to the provider, /login/callback takes it back, and POST /logout ends the session. At /login/device a command learns how to
// sign its person in at the provider, exchanges the ID token for a session, and renews that with another one.
//
// The hub keeps nothing of the provider: no token of it, and no state of a sign-in, which is in a cookie. After an hour the browser has
// to go there once more, so that a person who left a group has no session for longer. A provider that cannot be reached stops nobody's
// session before that, and not the hub.
package login

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/store"
)

// Where people sign in and out.
const (
	// Path takes the parameter back, the page to go on with.
	Path          = "/login"
	callbackPath  = "/login/callback"
	signedOutPath = "/login/out"
	// DevicePath is where commands sign in.
	DevicePath = "/login/device"
)

const (
	// proof is how long the provider's word is good.
	proof = time.Hour
	// attemptTime bounds the time of a sign-in at the provider.
	attemptTime = 10 * time.Minute
	// providerTime bounds one answer of the provider, maxAnswer its size in bytes.
	providerTime = 10 * time.Second
	maxAnswer    = 1 << 20
	// rediscover is how long what the provider says of itself is used, retry the pause after it could not be reached.
	rediscover = time.Hour
	retry      = 5 * time.Second
	// atOnce bounds the sign-ins that ask the provider at once.
	atOnce = 16
	// maxBack bounds the page to go on with, in bytes: a cookie has at most 4 KiB. maxGroups bounds the groups of a person.
	maxBack   = 1024
	maxGroups = 4096
	// attempt is the cookie of a sign-in that has begun.
	attempt = "-login"
)

// Options are the parts of a Login. Tokens is required.
type Options struct {
	Tokens access.Tokens
	// Now is nil for time.Now.
	Now func() time.Time
	// Log is nil for silence.
	Log *slog.Logger
	// Fail answers a request for which the hub itself has failed.
	Fail func(http.ResponseWriter, *http.Request, error)
	// SignedOut shows that a person is signed out here, and how they sign in again, or out at the provider; that is empty if it has no page for it.
	SignedOut func(w http.ResponseWriter, r *http.Request, signIn, provider string)
}

// Login signs people in. It may be used by several goroutines.
type Login struct {
	access.Sessions
	config *Config
	o      Options
	slots  chan struct{}

	mu       sync.Mutex
	provider *provider // nil until it was reached
	asked    time.Time // when it was asked last
	failed   error     // why it was not reached then
}

// provider is an OpenID Connect provider as it describes itself.
type provider struct {
	*oidc.Provider
	style oauth2.AuthStyle // in which it takes the client's secret
	end   string           // where people sign out; empty for nowhere
}

// New returns a Login. It does not ask the provider.
func New(c *Config, o Options) *Login {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Login{
		Sessions: access.Sessions{Tokens: o.Tokens, Length: c.length, Idle: c.idle, Proof: proof, Plain: strings.HasPrefix(c.URL, "http:")},
		config:   c, o: o, slots: make(chan struct{}, atOnce),
	}
}

// Routes returns the routes.
func (l *Login) Routes() []access.Route {
	route := func(pattern string, answer func(http.ResponseWriter, *http.Request) error) access.Route {
		return access.Route{Pattern: pattern, Permission: access.Open, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Cache-Control", "no-store")
			if err := answer(w, r); err != nil {
				l.o.Fail(w, r, err)
			}
		})}
	}
	return []access.Route{
		route("GET "+Path, l.begin), route("GET "+callbackPath, l.finish), route("POST /logout", l.signOut), route("GET "+signedOutPath, l.signedOut),
		route("GET "+DevicePath, l.describeDevice), route("POST "+DevicePath, l.admitDevice), route("PUT "+DevicePath, l.renewDevice), route("DELETE "+DevicePath, l.endDevice),
	}
}

// To returns the address that signs a person in and goes on with a page.
func To(page string) string { return Path + "?" + url.Values{back: {page}}.Encode() }

// The values of a sign-in that has begun. The browser keeps them in a cookie, so that nobody else can finish it.
const (
	state    = "state"
	nonce    = "nonce"
	verifier = "verifier"
	back     = "back"
)

func (l *Login) begin(w http.ResponseWriter, r *http.Request) error {
	to, err := l.discover()
	if err != nil {
		return l.away(err)
	}
	a := url.Values{state: {rand.Text()}, nonce: {rand.Text()}, verifier: {oauth2.GenerateVerifier()}, back: {local(r.URL.Query().Get(back))}}
	http.SetCookie(w, l.Cookie(attempt, a.Encode(), attemptTime))
	http.Redirect(w, r, l.oauth(to, "").AuthCodeURL(a.Get(state), oidc.Nonce(a.Get(nonce)), oauth2.S256ChallengeOption(a.Get(verifier))), http.StatusSeeOther)
	return nil
}

// local returns the address of a page of this hub; the first page for any other.
func local(page string) string {
	u, err := url.Parse(page)
	if err != nil || len(page) > maxBack || u.Host != "" || !strings.HasPrefix(page, "/") || strings.HasPrefix(page, "//") || strings.ContainsAny(page, "\\\t\r\n") || strings.HasPrefix(u.Path, Path) {
		return "/"
	}
	return page
}

func (l *Login) finish(w http.ResponseWriter, r *http.Request) error {
	a, err := l.attempt(r)
	http.SetCookie(w, l.Cookie(attempt, "", 0)) // it is good once
	if err != nil {
		return err
	}
	done, err := l.slot()
	if err != nil {
		return err
	}
	defer done()
	who, err := l.ask(r.Context(), a, r.URL.Query())
	if err != nil {
		return err
	}
	person, err := l.admit(r.Context(), who)
	if err != nil {
		if _, failed := l.End(w, r); failed != nil {
			return failed
		}
		return err
	}
	if err := l.Begin(w, r, person); err != nil {
		return err
	}
	http.Redirect(w, r, local(a.Get(back)), http.StatusSeeOther)
	return nil
}

// slot returns an error if too many people sign in at once. The caller calls done at the end.
func (l *Login) slot() (done func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	default:
		return nil, &hubapi.Error{Code: hubapi.CodeBusy, Message: "too many people sign in at once; begin again", RetryAfter: retry}
	}
}

// attempt returns the sign-in that a request finishes.
func (l *Login) attempt(r *http.Request) (url.Values, error) {
	a, err := url.ParseQuery(l.CookieOf(r, attempt))
	if err != nil || a.Get(state) == "" || a.Get(nonce) == "" || a.Get(verifier) == "" || !same(a.Get(state), r.URL.Query().Get(state)) {
		return nil, refuse(hubapi.CodeBadRequest, "this sign-in was not begun in this browser, or is over: begin again")
	}
	return a, nil
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// ask exchanges the code of an answer of the provider for an ID token, and returns whom that is about.
func (l *Login) ask(ctx context.Context, a, answer url.Values) (who identity, err error) {
	if why := answer.Get("error"); why != "" {
		return who, refuse(hubapi.CodeForbidden, "the provider does not sign you in: %s", strings.TrimSuffix(why+": "+answer.Get("error_description"), ": "))
	}
	if iss := answer.Get("iss"); iss != "" && iss != l.config.Issuer { // RFC 9207
		return who, refuse(hubapi.CodeForbidden, "another provider has answered")
	}
	of, err := l.discover()
	if err != nil {
		return who, l.away(err)
	}
	secret, err := l.config.secret()
	if err != nil {
		return who, l.away(err)
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, l.config.client), 2*providerTime)
	defer cancel()
	tokens, err := l.oauth(of, secret).Exchange(ctx, answer.Get("code"), oauth2.VerifierOption(a.Get(verifier)))
	var said *oauth2.RetrieveError
	if errors.As(err, &said) && said.ErrorCode != "" {
		l.o.Log.Warn("sign-in refused by the provider", "issuer", l.config.Issuer, "error", store.Plain(store.Clip(said.ErrorCode+" "+said.ErrorDescription)))
		return who, refuse(hubapi.CodeForbidden, "the provider does not take this sign-in: %s", said.ErrorCode)
	}
	if err != nil {
		return who, l.away(err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	return l.verify(ctx, of, raw, l.config.ClientID, func(token *oidc.IDToken) error {
		if !same(token.Nonce, a.Get(nonce)) {
			return errors.New("its nonce is another sign-in's")
		}
		return nil
	})
}

// verify returns whom an ID token for a client is about.
func (l *Login) verify(ctx context.Context, of *provider, raw, clientID string, check func(*oidc.IDToken) error) (who identity, err error) {
	token, err := of.Verifier(&oidc.Config{ClientID: clientID, Now: l.o.Now}).Verify(ctx, raw)
	if err == nil {
		err = check(token)
	}
	if err == nil {
		who, err = l.config.identity(token, clientID)
	}
	if err != nil {
		l.o.Log.Warn("sign-in refused: the ID token is not valid", "issuer", l.config.Issuer, "err", store.Plain(store.Clip(err.Error())))
		return who, refuse(hubapi.CodeForbidden, "the provider's ID token is not valid; the hub's log says why")
	}
	return who, nil
}

// identity returns whom a verified ID token is about. It reads no claim that a person may edit.
func (c *Config) identity(token *oidc.IDToken, clientID string) (i identity, err error) {
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return i, err
	}
	text := func(name string) (s string) {
		_ = json.Unmarshal(claims[name], &s) // another type is none
		return s
	}
	if azp := text("azp"); azp != "" && azp != clientID || azp == "" && len(token.Audience) > 1 {
		return i, errors.New("it was issued to another client")
	}
	if i.subject = token.Subject; i.subject == "" || i.subject != store.Plain(store.Clip(i.subject)) {
		return i, errors.New("its subject is no name")
	}
	if bytes.Equal(claims["email_verified"], []byte("true")) {
		i.email = text("email")
	}
	groups := claims[c.GroupsClaim]
	if json.Unmarshal(groups, &i.groups) != nil { // some providers write one as a text
		i.groups = nil
		if one := text(c.GroupsClaim); one != "" {
			i.groups = []string{one}
		}
	}
	if len(i.groups) > maxGroups {
		return i, fmt.Errorf("it has %d groups, at most %d are read", len(i.groups), maxGroups)
	}
	return i, nil
}

// admit returns the person of an identity. One who is known to the provider, and may not sign in, is refused, which the audit log has.
func (l *Login) admit(ctx context.Context, who identity) (access.Person, error) {
	p, why := l.config.person(who)
	if why == nil {
		why = p.Check(l.o.Now())
	}
	if why == nil {
		return p, nil
	}
	ctx = access.With(ctx, access.Identity{Name: p.Subject})
	if err := access.Note(ctx, l.o.Tokens.Store, store.AuditEntry{At: l.o.Now(), Action: "refuse sign-in", Object: p.Subject, Detail: why.Error()}); err != nil {
		return p, err
	}
	return p, refuse(hubapi.CodeForbidden, "%s", why)
}

func (l *Login) signOut(w http.ResponseWriter, r *http.Request) error {
	if _, err := l.End(w, r); err != nil {
		return err
	}
	http.Redirect(w, r, signedOutPath, http.StatusSeeOther)
	return nil
}

// signedOut shows where people sign out at the provider, whose own session goes on: a form of this hub may not lead to another site, a link may. See
// OpenID Connect RP-Initiated Logout 1.0, section 2.
func (l *Login) signedOut(w http.ResponseWriter, r *http.Request) error {
	end := ""
	if of, err := l.discover(); err == nil && of.end != "" {
		u, _ := url.Parse(of.end) // it was parsed already
		q := u.Query()
		q.Set("client_id", l.config.ClientID)
		u.RawQuery = q.Encode()
		end = u.String()
	}
	l.o.SignedOut(w, r, Path, end)
	return nil
}

// oauth returns the client of a provider.
func (l *Login) oauth(p *provider, secret string) *oauth2.Config {
	endpoint := p.Endpoint()
	if endpoint.AuthStyle = p.style; l.config.ClientSecretFile == "" {
		endpoint.AuthStyle = oauth2.AuthStyleInParams
	}
	return &oauth2.Config{
		ClientID: l.config.ClientID, ClientSecret: secret, Endpoint: endpoint, RedirectURL: strings.TrimSuffix(l.config.URL, "/") + callbackPath,
		Scopes: append([]string{oidc.ScopeOpenID}, l.config.Scopes...),
	}
}

// discover returns the provider as it describes itself. One request asks it, and others wait for that.
func (l *Login) discover() (*provider, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := l.o.Now().Sub(l.asked).Abs() // a clock may be set back
	if l.failed != nil && age < retry {
		return nil, l.failed
	}
	if l.failed == nil && l.provider != nil && age < rediscover {
		return l.provider, nil
	}
	l.provider, l.failed = l.config.describe()
	l.asked = l.o.Now()
	return l.provider, l.failed
}

// describe asks the provider to describe itself. A provider that would have secrets sent without TLS is an error.
func (c *Config) describe() (*provider, error) {
	found, err := oidc.NewProvider(oidc.ClientContext(context.Background(), c.client), c.Issuer)
	if err != nil {
		return nil, err
	}
	var said struct {
		Auth    string   `json:"authorization_endpoint"`
		Token   string   `json:"token_endpoint"`
		Keys    string   `json:"jwks_uri"`
		End     string   `json:"end_session_endpoint"`
		Methods []string `json:"token_endpoint_auth_methods_supported"`
	}
	if err := found.Claims(&said); err != nil {
		return nil, err
	}
	for _, endpoint := range []string{said.Auth, said.Token, said.Keys} {
		if !c.takes(endpoint) {
			return nil, fmt.Errorf("its address %q is not https", endpoint)
		}
	}
	p := &provider{Provider: found, style: oauth2.AuthStyleInHeader} // the default of OpenID Connect Discovery 1.0, section 3
	if c.takes(said.End) {
		p.end = said.End
	}
	if len(said.Methods) > 0 && !slices.Contains(said.Methods, "client_secret_basic") {
		p.style = oauth2.AuthStyleInParams
	}
	return p, nil
}

// takes reports whether people and secrets may be sent to an address of the provider: with TLS, unless the provider itself is on this machine.
func (c *Config) takes(endpoint string) bool {
	return oci.LoopbackOrHTTPS(endpoint) && (strings.HasPrefix(endpoint, "https:") || strings.HasPrefix(c.Issuer, "http:"))
}

// away is the answer while the provider cannot be asked. Why is for the hub's log: it may name what is inside the network.
func (l *Login) away(why error) error {
	l.o.Log.Warn("login provider not reached", "issuer", l.config.Issuer, "err", store.Plain(store.Clip(why.Error())))
	return &hubapi.Error{Code: hubapi.CodeUnavailable, Message: fmt.Sprintf("the hub cannot reach %s, where people sign in; the hub's log says why", l.config.Issuer), RetryAfter: 3 * retry}
}

func refuse(code hubapi.Code, format string, args ...any) error {
	return &hubapi.Error{Code: code, Message: store.Plain(store.Clip(fmt.Sprintf(format, args...)))}
}

// bounded reads no answer beyond maxAnswer.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		answer.Body = http.MaxBytesReader(nil, answer.Body, maxAnswer)
	}
	return answer, err
}
