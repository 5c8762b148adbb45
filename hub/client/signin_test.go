package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
)

// world is a hub and a provider without a network between them, so that a test may move the time.
type world struct {
	describes map[string]any
	began     map[string]any
	answers   []string // of the provider while the person signs in: an error's code, "lost", "down" or "done"; the last one again and again
	asked     []time.Duration
	began0    time.Time
	hub       http.HandlerFunc
	got       string // how the hub was asked, and the ID token that it was sent
	scope     string
}

const issuer = "https://login.example.com"

func newWorld() *world {
	w := &world{began0: time.Now(), answers: []string{"authorization_pending", "done"}, scope: "openid groups"}
	w.describes = map[string]any{
		"issuer": issuer, "authorization_endpoint": issuer + "/auth", "token_endpoint": issuer + "/token", "jwks_uri": issuer + "/keys",
		"device_authorization_endpoint": issuer + "/device",
	}
	w.began = map[string]any{
		"device_code": "the device's code", "user_code": "WDJB-MJHT\x1b[2J", "verification_uri": issuer + "/enter", "verification_uri_complete": issuer + "/enter?code=WDJB-MJHT",
		"expires_in": 600, "interval": 5,
	}
	w.hub = func(rw http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			hubapi.WriteJSON(rw, http.StatusOK, store.DeviceLogin{Issuer: issuer, ClientID: "wherry-cli", Scopes: []string{"openid", "groups"}})
			return
		}
		var asked store.NewSession
		_ = json.NewDecoder(r.Body).Decode(&asked)
		w.got = r.Method + " " + asked.IDToken
		hubapi.WriteJSON(rw, http.StatusOK, store.CreatedAccess{Token: "the session", Access: store.AccessToken{Name: "anna"}})
	}
	return w
}

// RoundTrip implements http.RoundTripper.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	rec := httptest.NewRecorder()
	switch r.URL.Host + r.URL.Path {
	case "hub.example.com/login/device":
		w.hub(rec, r)
	case "login.example.com/.well-known/openid-configuration":
		hubapi.WriteJSON(rec, http.StatusOK, w.describes)
	case "login.example.com/device":
		if form := formOf(r); form.Get("client_id") != "wherry-cli" || form.Get("scope") != w.scope {
			hubapi.WriteJSON(rec, http.StatusBadRequest, map[string]string{"error": "invalid_client", "error_description": "unknown\x1b[2J"})
			break
		}
		hubapi.WriteJSON(rec, http.StatusOK, w.began)
	case "login.example.com/token":
		w.asked = append(w.asked, time.Since(w.began0))
		form := formOf(r)
		what := w.answers[0]
		w.answers = w.answers[min(1, len(w.answers)-1):]
		switch {
		case what == "lost":
			return nil, io.ErrUnexpectedEOF
		case what == "down":
			rec.WriteHeader(http.StatusBadGateway)
		case what == "done" && form.Get("grant_type") == "refresh_token" && form.Get("refresh_token") == "once" && form.Get("client_id") == "wherry-cli":
			hubapi.WriteJSON(rec, http.StatusOK, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": "a later ID token", "refresh_token": "twice"})
		case what == "done" && form.Get("device_code") == "the device's code":
			hubapi.WriteJSON(rec, http.StatusOK, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": "the ID token"})
		default:
			hubapi.WriteJSON(rec, http.StatusBadRequest, map[string]string{"error": what})
		}
	default:
		rec.WriteHeader(http.StatusTeapot)
	}
	return rec.Result(), nil
}

func formOf(r *http.Request) url.Values {
	body, _ := io.ReadAll(r.Body)
	form, _ := url.ParseQuery(string(body))
	return form
}

func (w *world) signIn(ctx context.Context) (client.Prompt, string, error) {
	var shown client.Prompt
	c := client.Client{URL: "https://hub.example.com", HTTP: &http.Client{Transport: w}}
	session, err := c.SignIn(ctx, func(p client.Prompt) { shown = p })
	return shown, session.Token, err
}

func TestAPersonSignsInFromACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		shown, token, err := w.signIn(t.Context())
		require.NoError(t, err)
		require.Equal(t, "the session", token)
		require.Equal(t, "POST the ID token", w.got)
		require.Equal(t, client.Prompt{Address: issuer + "/enter", Complete: issuer + "/enter?code=WDJB-MJHT", Code: shown.Code, Ends: w.began0.Add(10 * time.Minute).UTC()}, shown)
		require.NotContains(t, shown.Code, "\x1b")
		require.Equal(t, []time.Duration{5 * time.Second, 10 * time.Second}, w.asked)
	})
}

func TestACommandAsksForARefreshToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.describes["scopes_supported"], w.scope = []string{"openid", "offline_access"}, "openid groups offline_access"
		_, _, err := w.signIn(t.Context())
		require.NoError(t, err)
	})
}

func TestACommandRenewsItsSession(t *testing.T) {
	by := client.Renewal{Issuer: issuer, ClientID: "wherry-cli", Refresh: "once"}
	for name, tt := range map[string]struct {
		by     client.Renewal
		answer string
		hub    http.HandlerFunc
		is     error
		keeps  string
	}{
		"it is renewed": {by: by, answer: "done", keeps: "twice"},
		"the provider has given no refresh token": {by: client.Renewal{Issuer: issuer}, answer: "done", is: client.ErrSignInAgain},
		"the provider wants the person":           {by: by, answer: "invalid_grant", is: client.ErrSignInAgain},
		"the provider is away":                    {by: by, answer: "lost", is: client.ErrProvider},
		"an old place without TLS":                {by: client.Renewal{Issuer: "http://login.example.com", Refresh: "once"}, answer: "done", is: client.ErrProvider},
		"the hub refuses it": {by: by, answer: "done", keeps: "twice", is: &hubapi.Error{Code: hubapi.CodeForbidden, Message: "not in the group"}, hub: func(rw http.ResponseWriter, _ *http.Request) {
			(&hubapi.Error{Code: hubapi.CodeForbidden, Message: "not in the group"}).Write(rw)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.answers = []string{tt.answer}
			if tt.hub != nil {
				w.hub = tt.hub
			}
			s, err := client.Client{URL: "https://hub.example.com", Token: "the old session", HTTP: &http.Client{Transport: w}}.Renew(t.Context(), tt.by)
			require.Equal(t, tt.keeps, s.Renewal.Refresh, "the provider may take a refresh token once")
			if refused := (*hubapi.Error)(nil); errors.As(tt.is, &refused) {
				require.ErrorAs(t, err, &refused)
				return
			}
			require.ErrorIs(t, err, tt.is)
			if tt.is == nil {
				require.Equal(t, "the session", s.Token)
				require.Equal(t, "PUT a later ID token", w.got)
			}
		})
	}
}

func TestTheProviderSetsThePace(t *testing.T) {
	for name, tt := range map[string]struct {
		answers []string
		want    []time.Duration
	}{
		"it asks for more time":    {[]string{"slow_down", "authorization_pending", "done"}, []time.Duration{5 * time.Second, 15 * time.Second, 25 * time.Second}},
		"an answer is lost":        {[]string{"lost", "done"}, []time.Duration{5 * time.Second, 15 * time.Second}},
		"it is away for a moment":  {[]string{"down", "down", "done"}, []time.Duration{5 * time.Second, 15 * time.Second, 35 * time.Second}},
		"it does not name a pause": {[]string{"done"}, []time.Duration{5 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				w.answers = tt.answers
				if len(tt.answers) == 1 {
					delete(w.began, "interval")
				}
				_, _, err := w.signIn(t.Context())
				require.NoError(t, err)
				require.Equal(t, tt.want, w.asked)
			})
		})
	}
}

func TestASignInThatFailsSaysWhy(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*world)
		is     error
		says   string
	}{
		"the person says no":            {func(w *world) { w.answers = []string{"access_denied"} }, client.ErrSignInRefused, "refused by " + issuer},
		"the code expires":              {func(w *world) { w.answers = []string{"expired_token"} }, client.ErrSignInLate, "in time"},
		"nobody comes":                  {func(w *world) { w.answers = []string{"authorization_pending"} }, client.ErrSignInLate, "in time"},
		"the network stays away":        {func(w *world) { w.answers = []string{"lost"} }, client.ErrSignInLate, "in time"},
		"the provider has no such flow": {func(w *world) { delete(w.describes, "device_authorization_endpoint") }, client.ErrNoSignIn, "has no device flow"},
		"a flow without TLS":            {func(w *world) { w.describes["device_authorization_endpoint"] = "http://evil.example/device" }, client.ErrProvider, "is not https"},
		"another provider":              {func(w *world) { w.describes["issuer"] = "https://evil.example" }, client.ErrProvider, "did not match"},
		"another client":                {func(w *world) { w.began = nil; w.hub = hubOf("else", issuer) }, client.ErrProvider, "invalid_client: unknown"},
		"a provider without TLS":        {func(w *world) { w.hub = hubOf("wherry-cli", "http://login.example.com") }, client.ErrProvider, "is not https"},
		"a hub without a login": {func(w *world) {
			w.hub = func(rw http.ResponseWriter, _ *http.Request) {
				(&hubapi.Error{Code: hubapi.CodeNotFound, Message: "no login here"}).Write(rw)
			}
		}, client.ErrNoSignIn, "no login here"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				tt.change(w)
				_, token, err := w.signIn(t.Context())
				require.ErrorIs(t, err, tt.is)
				require.ErrorContains(t, err, tt.says)
				require.False(t, strings.ContainsRune(err.Error(), '\x1b'))
				require.Empty(t, token)
			})
		})
	}
}

func hubOf(clientID, issuer string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		hubapi.WriteJSON(rw, http.StatusOK, store.DeviceLogin{Issuer: issuer, ClientID: clientID, Scopes: []string{"openid"}})
	}
}

func TestAnInterruptEndsASignIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := newWorld()
		w.answers = []string{"authorization_pending"}
		time.AfterFunc(time.Minute+time.Second, cancel)
		_, _, err := w.signIn(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, w.asked, 12)
	})
}
