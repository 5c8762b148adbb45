package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// SignIn signs a person in at the provider of the hub's login, by the device flow of RFC 8628, and returns the token of the session that the hub
// has begun for them, and what it keeps. Show shows the prompt to the person, and returns at once. SignIn returns when they have signed in, with an
// error above, a *hubapi.Error, or that of ctx.
func (c Client) SignIn(ctx context.Context, show func(Prompt)) (token string, kept store.AccessToken, err error) {
	var hub store.DeviceLogin
	if err := c.get(ctx, devicePath, nil, &hub); err != nil {
		if refused := (*hubapi.Error)(nil); errors.As(err, &refused) && refused.Code == hubapi.CodeNotFound {
			err = fmt.Errorf("%w: %w", ErrNoSignIn, err)
		}
		return "", kept, err
	}
	raw, err := c.idToken(ctx, hub, show)
	if err != nil {
		return "", kept, err
	}
	var answer store.CreatedAccess
	err = c.write(ctx, http.MethodPost, devicePath, nil, store.NewSession{IDToken: raw}, &answer)
	return answer.Token, answer.Access, err
}

// SignOut ends the session whose token the client has. It reports whether there was one: an access token is none.
func (c Client) SignOut(ctx context.Context) (bool, error) {
	var answer store.EndedSession
	return answer.Ended, c.write(ctx, http.MethodDelete, devicePath, nil, nil, &answer)
}

const devicePath = "login/device"

// idToken has a person sign in at the provider, and returns the ID token. Nobody has verified it: it is for the hub.
func (c Client) idToken(ctx context.Context, hub store.DeviceLogin, show func(Prompt)) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx = oidc.ClientContext(ctx, c.forProvider(ctx))
	if !oci.LoopbackOrHTTPS(hub.Issuer) {
		return "", fmt.Errorf("%w: its address %q is not https", ErrProvider, hub.Issuer)
	}
	found, err := oidc.NewProvider(ctx, hub.Issuer)
	if err != nil {
		return "", providerError(hub.Issuer, err)
	}
	at := found.Endpoint()
	if at.DeviceAuthURL == "" {
		return "", fmt.Errorf("%w: %s has no device flow (RFC 8628)", ErrNoSignIn, hub.Issuer)
	}
	for _, u := range []string{at.DeviceAuthURL, at.TokenURL} {
		if !oci.LoopbackOrHTTPS(u) {
			return "", fmt.Errorf("%w %s: its address %q is not https", ErrProvider, hub.Issuer, store.Plain(store.Clip(u)))
		}
	}
	at.AuthStyle = oauth2.AuthStyleInParams // a public client has no secret
	flow := oauth2.Config{ClientID: hub.ClientID, Scopes: hub.Scopes, Endpoint: at}
	begun, err := flow.DeviceAuth(ctx)
	if err != nil {
		return "", providerError(hub.Issuer, err)
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
			return "", ctx.Err()
		case !time.Now().Before(begun.Expiry):
			return "", ErrSignInLate
		case lost(err):
			begun.Interval = min(2*begun.Interval, maxInterval) // RFC 8628, section 3.5
			continue
		default:
			return "", providerError(hub.Issuer, err)
		}
		raw, _ := tokens.Extra("id_token").(string)
		if raw == "" {
			return "", fmt.Errorf("%w %s: it has signed you in and sent no ID token", ErrProvider, hub.Issuer)
		}
		return raw, nil
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
