package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"
)

const (
	// maxTokenBytes bounds the answer of a token service; tokens have to fit into a header.
	maxTokenBytes = 128 << 10
	// clientID names the program to OAuth2 token services, which want some name.
	clientID = "wherry"
)

// authGuard is the transport of one registry's client. It alone sends credentials to token services, where authRules
// allow it. oras, above it, handles only Basic authentication at the registry itself and anonymous tokens.
type authGuard struct {
	base       http.RoundTripper
	header     http.Header // of requests to token services
	rules      authRules
	credential auth.CredentialFunc
	tokens     auth.Cache
	// listed is the last token service that got credentials only because Options.AuthHosts lists it.
	listed atomic.Pointer[string]

	mu     sync.Mutex
	issued time.Time // of the newest token
}

func newAuthGuard(host string, base http.RoundTripper, opts Options) *authGuard {
	g := &authGuard{
		base:       cmp.Or(base, http.DefaultTransport),
		header:     http.Header{"User-Agent": {cmp.Or(opts.UserAgent, "wherry")}},
		rules:      authRules{registry: &url.URL{Scheme: "https", Host: host}, hosts: opts.AuthHosts, record: opts.AuthRecord},
		credential: opts.Credential,
		tokens:     auth.NewCache(),
	}
	if opts.PlainHTTP {
		g.rules.registry.Scheme = "http"
	}
	if g.credential == nil {
		g.credential = func(context.Context, string) (auth.Credential, error) { return auth.EmptyCredential, nil }
	}
	return g
}

// forBasic returns the name and password for the registry, and nothing for other hosts.
func (g *authGuard) forBasic(ctx context.Context, host string) (auth.Credential, error) {
	if host != g.rules.registry.Host {
		return auth.EmptyCredential, nil
	}
	cred, err := g.credential(ctx, host)
	return auth.Credential{Username: cred.Username, Password: cred.Password}, err
}

// RoundTrip sends the request. If the registry asks for a token and there are credentials, RoundTrip gets a token and
// sends the request again.
func (g *authGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	if !g.toRegistry(req.URL) {
		if req.Header.Get("Authorization") != "" {
			if req.Body != nil {
				_ = req.Body.Close()
			}
			return nil, g.elsewhere(req.URL)
		}
		return g.base.RoundTrip(req)
	}
	host := g.rules.registry.Host
	scopes := auth.GetAllScopesForHost(req.Context(), host)
	usual := strings.Join(scopes, " ")
	first := req
	if token, err := g.tokens.GetToken(req.Context(), host, auth.SchemeBearer, usual); err == nil && req.Header.Get("Authorization") == "" {
		first = withToken(req, token)
	}
	resp, err := g.base.RoundTrip(first)
	if err == nil && resp.StatusCode == http.StatusForbidden {
		resp, err = g.afterForbidden(req, first, resp)
	}
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return from(req, resp), err
	}
	asked, ok := bearerOf(resp.Header.Values("Www-Authenticate"))
	realm, err := url.Parse(asked.params["realm"])
	if !ok || err != nil || realm.Host == "" || realm.Scheme != "https" && realm.Scheme != "http" {
		return from(req, resp), nil
	}
	cred, err := g.credential(req.Context(), host)
	if err == nil && cred == auth.EmptyCredential {
		return from(req, resp), nil
	}
	_ = resp.Body.Close() // only its header is needed
	if err != nil {
		return nil, err
	}
	if scope := asked.params["scope"]; scope != "" {
		scopes = auth.CleanScopes(append(scopes, strings.Split(scope, " ")...))
	}
	wanted := strings.Join(scopes, " ")
	token, err := g.tokens.Set(req.Context(), host, auth.SchemeBearer, wanted, func(ctx context.Context) (string, error) {
		return g.fetchToken(ctx, realm, asked.params["service"], scopes, cred)
	})
	if err == nil && wanted != usual { // requests of this kind begin with it from now on
		_, err = g.tokens.Set(req.Context(), host, auth.SchemeBearer, usual, func(context.Context) (string, error) { return token, nil })
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	g.issued = time.Now()
	g.mu.Unlock()
	return g.sendAgain(req, token)
}

// expiry is the age from which a token may have expired. No registry gives tokens for less.
const expiry = time.Minute

// afterForbidden returns the answer in place of a 403, which some registries, ECR among them, give for credentials that have expired.
// Where others are stored by now, or the token is old, the registry is asked as if it had answered 401.
func (g *authGuard) afterForbidden(req, sent *http.Request, resp *http.Response) (*http.Response, error) {
	scheme, _, _ := strings.Cut(sent.Header.Get("Authorization"), " ")
	switch {
	case strings.EqualFold(scheme, "Basic"):
		cred, err := g.forBasic(req.Context(), g.rules.registry.Host)
		if err != nil || cred == auth.EmptyCredential {
			return resp, nil
		}
		now := req.Clone(req.Context())
		now.SetBasicAuth(cred.Username, cred.Password)
		if now.Header.Get("Authorization") != sent.Header.Get("Authorization") { // oras, above, asks for them again
			resp.StatusCode, resp.Status = http.StatusUnauthorized, "401 Unauthorized"
			resp.Header.Set("Www-Authenticate", `Basic realm="`+g.rules.registry.Host+`"`)
		}
		return resp, nil
	case sent == req: // there was no token, or none of the guard's
		return resp, nil
	}
	g.mu.Lock()
	age := time.Since(g.issued)
	g.mu.Unlock()
	again, ok := rewound(req)
	if age < expiry || !ok {
		return resp, nil
	}
	_ = resp.Body.Close()
	return g.base.RoundTrip(again) // which is answered with a challenge
}

// rewound returns a request to send a second time, and false if its body cannot be.
func rewound(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err == nil
}

// sendAgain sends a request that the registry did not answer for want of a token.
func (g *authGuard) sendAgain(req *http.Request, token string) (*http.Response, error) {
	again := withToken(req, token)
	if req.Body != nil && req.Body != http.NoBody {
		if req.GetBody == nil {
			return nil, errors.New("what is being sent cannot be sent a second time, after the login")
		}
		body, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		again.Body = body
	}
	resp, err := g.base.RoundTrip(again)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		resp.Header.Del("Www-Authenticate") // already logged in: keep oras from logging in again
	}
	return from(req, resp), err
}

// toRegistry reports whether u is at the registry itself.
func (g *authGuard) toRegistry(u *url.URL) bool {
	host, err := hostOfURL(u)
	own, bad := hostOfURL(g.rules.registry)
	return err == nil && bad == nil && u.Scheme == g.rules.registry.Scheme && host == own
}

// elsewhere is the error of a request with credentials that would leave the registry.
func (g *authGuard) elsewhere(u *url.URL) error {
	host, err := hostOfURL(u)
	if err != nil {
		return err
	}
	return &WithheldError{Registry: g.rules.registry.Host, Host: host.String(), why: "they are for the registry itself"}
}

// fetchToken asks the token service at realm for a token: by GET with the name and password, or by POST with an
// identity token.
// See https://distribution.github.io/distribution/spec/auth/token/ and /oauth/.
func (g *authGuard) fetchToken(ctx context.Context, realm *url.URL, service string, scopes []string, cred auth.Credential) (string, error) {
	if cred.AccessToken != "" {
		return cred.AccessToken, nil
	}
	listed, err := g.rules.check(realm)
	if err != nil {
		return "", err
	}
	req, err := tokenRequest(ctx, realm, service, scopes, cred)
	if err != nil {
		return "", err
	}
	for key, values := range g.header {
		req.Header[key] = values
	}
	client := &http.Client{Transport: g.base, CheckRedirect: g.stay}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", errorAnswer(resp)
	}
	var answer struct {
		Token       string `json:"token"`
		AccessToken string `json:"access_token"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxTokenBytes)).Decode(&answer); err != nil || answer.Token+answer.AccessToken == "" {
		return "", fmt.Errorf("%w: the token service at %s answers without a token", ErrUnreachable, realm.Host)
	}
	if listed {
		host, _ := hostOfURL(realm) // it was read before
		text := host.String()
		g.listed.Store(&text)
	}
	if answer.AccessToken != "" {
		return answer.AccessToken, nil
	}
	return answer.Token, nil
}

// stay follows a token service's redirects within the same origin only.
func (g *authGuard) stay(req *http.Request, via []*http.Request) error {
	if len(via) >= 10 {
		return errors.New("too many redirects")
	}
	from, err1 := hostOfURL(via[0].URL)
	to, err2 := hostOfURL(req.URL)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if from == to && via[0].URL.Scheme == req.URL.Scheme && req.URL.User == nil {
		return nil
	}
	return &WithheldError{Registry: g.rules.registry.Host, Host: to.String(), why: "the token service at " + from.String() + " redirects there"}
}

func tokenRequest(ctx context.Context, realm *url.URL, service string, scopes []string, cred auth.Credential) (*http.Request, error) {
	if cred.RefreshToken != "" {
		form := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {cred.RefreshToken}, "service": {service}, "client_id": {clientID}}
		if len(scopes) > 0 {
			form.Set("scope", strings.Join(scopes, " "))
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, realm.String(), strings.NewReader(form.Encode()))
		if err == nil {
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		return req, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, realm.String(), nil)
	if err != nil {
		return nil, err
	}
	req.SetBasicAuth(cred.Username, cred.Password)
	query := req.URL.Query()
	if service != "" {
		query.Set("service", service)
	}
	for _, scope := range scopes {
		query.Add("scope", scope)
	}
	req.URL.RawQuery = query.Encode()
	return req, nil
}

// errorAnswer returns the error for an unsuccessful response, with the reasons listed in its body.
func errorAnswer(resp *http.Response) *errcode.ErrorResponse {
	answer := &errcode.ErrorResponse{Method: resp.Request.Method, URL: resp.Request.URL, StatusCode: resp.StatusCode}
	// The body is optional; the status is enough.
	_ = json.NewDecoder(io.LimitReader(resp.Body, maxMetadataBytes)).Decode(&struct {
		Errors *errcode.Errors `json:"errors"`
	}{&answer.Errors})
	return answer
}

func withToken(req *http.Request, token string) *http.Request {
	clone := req.Clone(req.Context())
	clone.Header.Set("Authorization", "Bearer "+token)
	return clone
}

// from makes req the request of resp, so that callers cannot read the token from the request that was really sent.
func from(req *http.Request, resp *http.Response) *http.Response {
	if resp != nil {
		resp.Request = req
	}
	return resp
}

var _ http.RoundTripper = (*authGuard)(nil)
