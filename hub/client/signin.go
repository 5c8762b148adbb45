package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/hub/store"
)

// The errors of SignIn.
var (
	// ErrNoSignIn means that people do not sign in at the hub from commands, or that its provider does not let them.
	ErrNoSignIn = errors.New("commands cannot sign in")
	// ErrSignInRefused means that the person, or the provider for them, said no.
	ErrSignInRefused = errors.New("the sign-in was refused")
	// ErrSignInLate means that nobody has finished the sign-in in time.
	ErrSignInLate = errors.New("nobody has finished the sign-in in time")
	// ErrSignInAgain means that the provider does not renew the sign-in.
	ErrSignInAgain = errors.New("the sign-in has ended")
	// ErrProvider means that the provider cannot be asked, or does not answer as it should.
	ErrProvider = errors.New("login provider")
)

// Prompt is what a person needs to sign in with a browser, on whatever machine. Its texts are plain.
type Prompt struct {
	// Address is that of the page that asks for the code; Complete has the code in it, and is empty if the provider has no such page.
	Address, Complete, Code string
	// Ends is when the code expires.
	Ends time.Time
}

const (
	// maxSignIn bounds a sign-in.
	maxSignIn = 30 * time.Minute
	// minInterval and maxInterval bound the pause between two questions to the provider, in seconds.
	minInterval, maxInterval = 1, 60
)

// Session is the session of a person.
type Session struct {
	Token   string
	Access  store.AccessToken // as the hub keeps it
	Renewal Renewal
}

// Renewal renews a session without its person. It is for the provider that they have signed in at, whatever the hub names later.
type Renewal struct {
	Issuer   string `json:"issuer,omitempty"`
	ClientID string `json:"clientID,omitempty"`
	// Refresh is the refresh token of OAuth 2.0; empty if the provider has given none.
	Refresh string `json:"refresh,omitempty"`
}

// SignIn signs a person in at the provider of the hub's login, by the device flow of RFC 8628, and returns the session that the hub
// has begun for them. Show shows the prompt to the person, and returns at once. SignIn returns when they have signed in, with an
// error above, a *hubapi.Error, or that of ctx.
func (c Client) SignIn(ctx context.Context, show func(Prompt)) (s Session, err error) {
	hub, err := get[store.DeviceLogin](ctx, c, devicePath, nil)
	if err != nil {
		if refused := (*hubapi.Error)(nil); errors.As(err, &refused) && refused.Code == hubapi.CodeNotFound {
			err = fmt.Errorf("%w: %w", ErrNoSignIn, err)
		}
		return s, err
	}
	tokens, err := c.signIn(ctx, hub, show)
	if err != nil {
		return s, err
	}
	return c.session(ctx, http.MethodPost, tokens, Renewal{Issuer: hub.Issuer, ClientID: hub.ClientID})
}

// Renew renews the session whose token the client has, as far as the groups of its person still allow it. If the session has ended by itself, it
// begins another one. The provider may take Refresh only once: keep the new one.
func (c Client) Renew(ctx context.Context, by Renewal) (s Session, err error) {
	if by.Refresh == "" {
		return s, ErrSignInAgain
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = oidc.ClientContext(ctx, c.forProvider(ctx))
	at, _, err := endpoint(ctx, by.Issuer)
	if err != nil {
		return s, err
	}
	flow := oauth2.Config{ClientID: by.ClientID, Endpoint: at}
	tokens, err := flow.TokenSource(ctx, &oauth2.Token{RefreshToken: by.Refresh}).Token()
	if said := (*oauth2.RetrieveError)(nil); errors.As(err, &said) && said.ErrorCode != "" {
		return s, fmt.Errorf("%w: %s: %s", ErrSignInAgain, by.Issuer, store.Plain(store.Clip(said.ErrorCode)))
	} else if err != nil {
		return s, providerError(by.Issuer, err)
	}
	return c.session(ctx, http.MethodPut, tokens, by)
}

// session exchanges the provider's tokens for a session. With an error, it has the new Renewal.
func (c Client) session(ctx context.Context, method string, tokens *oauth2.Token, by Renewal) (Session, error) {
	s := Session{Renewal: by}
	s.Renewal.Refresh = tokens.RefreshToken
	raw, _ := tokens.Extra("id_token").(string)
	if raw == "" {
		return s, fmt.Errorf("%w %s: it has signed you in and sent no ID token", ErrProvider, by.Issuer)
	}
	answer, err := write[store.CreatedAccess](ctx, c, method, devicePath, nil, store.NewSession{IDToken: raw})
	s.Token, s.Access = answer.Token, answer.Access
	return s, err
}

// SignOut ends the session whose token the client has. It reports whether there was one: an access token is none.
func (c Client) SignOut(ctx context.Context) (bool, error) {
	answer, err := write[store.EndedSession](ctx, c, http.MethodDelete, devicePath, nil, nil)
	return answer.Ended, err
}

const devicePath = "login/device"

// endpoint asks a provider where commands sign in and renew, and for which scopes.
func endpoint(ctx context.Context, issuer string) (at oauth2.Endpoint, scopes []string, err error) {
	if !oci.LoopbackOrHTTPS(issuer) {
		return at, nil, fmt.Errorf("%w: its address %q is not https", ErrProvider, store.Plain(store.Clip(issuer)))
	}
	found, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return at, nil, providerError(issuer, err)
	}
	at = found.Endpoint()
	for _, u := range []string{cmp.Or(at.DeviceAuthURL, issuer), at.TokenURL} {
		if !oci.LoopbackOrHTTPS(u) {
			return at, nil, fmt.Errorf("%w %s: its address %q is not https", ErrProvider, issuer, store.Plain(store.Clip(u)))
		}
	}
	at.AuthStyle = oauth2.AuthStyleInParams // a public client has no secret
	var said struct {
		Scopes []string `json:"scopes_supported"`
	}
	_ = found.Claims(&said) // another type is none
	return at, said.Scopes, nil
}

// signIn has a person sign in at the provider. Nobody has verified the ID token: it is for the hub.
func (c Client) signIn(ctx context.Context, hub store.DeviceLogin, show func(Prompt)) (*oauth2.Token, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = oidc.ClientContext(ctx, c.forProvider(ctx))
	at, scopes, err := endpoint(ctx, hub.Issuer)
	if err != nil {
		return nil, err
	}
	if at.DeviceAuthURL == "" {
		return nil, fmt.Errorf("%w: %s has no device flow (RFC 8628)", ErrNoSignIn, hub.Issuer)
	}
	flow := oauth2.Config{ClientID: hub.ClientID, Scopes: hub.Scopes, Endpoint: at}
	if slices.Contains(scopes, oidc.ScopeOfflineAccess) && !slices.Contains(flow.Scopes, oidc.ScopeOfflineAccess) { // else many providers give no refresh token
		flow.Scopes = append(slices.Clone(flow.Scopes), oidc.ScopeOfflineAccess)
	}
	begun, err := flow.DeviceAuth(ctx)
	if err != nil {
		return nil, providerError(hub.Issuer, err)
	}
	if end := time.Now().Add(maxSignIn); begun.Expiry.IsZero() || begun.Expiry.After(end) {
		begun.Expiry = end
	}
	begun.Interval = min(max(cmp.Or(begun.Interval, 5), minInterval), maxInterval) // 5 by RFC 8628, section 3.2
	show(Prompt{store.Plain(begun.VerificationURI), store.Plain(begun.VerificationURIComplete), store.Plain(begun.UserCode), begun.Expiry})
	for {
		tokens, err := flow.DeviceAccessToken(ctx, begun)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !time.Now().Before(begun.Expiry):
			return nil, ErrSignInLate
		case lost(err):
			begun.Interval = min(2*begun.Interval, maxInterval) // RFC 8628, section 3.5
			continue
		default:
			return nil, providerError(hub.Issuer, err)
		}
		return tokens, nil
	}
}

// forProvider returns the client for requests to the provider: it ends with ctx, follows no redirect, and reads no endless answer. It sends no token.
func (c Client) forProvider(ctx context.Context) *http.Client {
	client := *c.client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		both, cancel := context.WithCancel(r.Context()) // oauth2.Config.DeviceAuth leaves its own out
		context.AfterFunc(ctx, cancel)
		answer, err := next.RoundTrip(r.WithContext(both))
		if err == nil {
			answer.Body = http.MaxBytesReader(nil, answer.Body, maxErrorBytes)
		}
		return answer, err
	})
	return &client
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// lost reports whether the provider may answer the next time.
func lost(err error) bool {
	var said *oauth2.RetrieveError
	if errors.As(err, &said) {
		return said.ErrorCode == "" && said.Response.StatusCode >= http.StatusInternalServerError
	}
	return errors.As(err, new(*url.Error))
}

// providerError returns the error of a provider's answer, or of none.
func providerError(issuer string, err error) error {
	var said *oauth2.RetrieveError
	switch {
	case errors.As(err, new(*url.Error)):
		return fmt.Errorf("%w %s: %w", ErrProvider, issuer, reasonOf(err))
	case !errors.As(err, &said):
		return fmt.Errorf("%w %s: %s", ErrProvider, issuer, store.Plain(store.Clip(err.Error())))
	}
	why := store.Plain(store.Clip(strings.TrimSuffix(said.ErrorCode+": "+said.ErrorDescription, ": ")))
	switch {
	case said.ErrorCode == "access_denied":
		return fmt.Errorf("%w by %s", ErrSignInRefused, issuer)
	case said.ErrorCode == "expired_token":
		return ErrSignInLate
	case why == "":
		why = fmt.Sprintf("it answered %d %s", said.Response.StatusCode, http.StatusText(said.Response.StatusCode))
	}
	return fmt.Errorf("%w %s: %s", ErrProvider, issuer, why)
}
