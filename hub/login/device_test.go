package login_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
)

// device exchanges an ID token about a person, with some claims of its own, for a session.
func (w *world) device(t *testing.T, person string, claims map[string]any) page {
	t.Helper()
	w.set(func(p *provider) { p.person = people[person] })
	all := map[string]any{"aud": "wherry-cli"}
	for name, v := range claims {
		all[name] = v
	}
	return w.browser(t).post("/login/device", w.newSession(t, all), "Accept: application/json")
}

func (w *world) newSession(t *testing.T, claims map[string]any) string {
	t.Helper()
	raw, err := w.idToken(claims)
	require.NoError(t, err)
	body, err := json.Marshal(store.NewSession{IDToken: raw})
	require.NoError(t, err)
	return string(body)
}

// renew renews the session of a command for whom the provider vouches.
func (w *world) renew(t *testing.T, person, token string) (made store.CreatedAccess, p page) {
	t.Helper()
	w.set(func(p *provider) { p.person = people[person] })
	p = w.browser(t).do(http.MethodPut, "/login/device", strings.NewReader(w.newSession(t, map[string]any{"aud": "wherry-cli"})), "Accept: application/json", "Authorization: Bearer "+token)
	_ = json.Unmarshal([]byte(p.body), &made)
	return made, p
}

func TestACommandRenewsItsSession(t *testing.T) {
	w := newWorld(t)
	var made store.CreatedAccess
	require.NoError(t, json.Unmarshal([]byte(w.device(t, "anna", nil).body), &made))
	start := w.clock

	w.clock = start.Add(55 * time.Minute)
	renewed, p := w.renew(t, "anna", made.Token)
	require.Equal(t, made.Token, renewed.Token, p.body)
	require.Equal(t, start.Add(115*time.Minute), renewed.Access.ExpiresAt)
	w.clock = start.Add(time.Hour)
	_, err := client.Client{URL: w.server.URL, Token: made.Token}.WhoAmI(t.Context())
	require.NoError(t, err)

	_, p = w.renew(t, "ben", made.Token)
	require.Equal(t, http.StatusUnauthorized, p.status, "a session is one person's")
	_, p = w.renew(t, "anna", access.NewToken().Reveal())
	require.Equal(t, http.StatusUnauthorized, p.status)

	// It has ended by itself: the provider's word begins another one.
	w.clock = start.Add(9 * time.Hour)
	other, p := w.renew(t, "anna", made.Token)
	require.Equal(t, http.StatusOK, p.status, p.body)
	require.NotEqual(t, made.Token, other.Token)
	require.Equal(t, w.clock.Add(time.Hour), other.Access.ExpiresAt)

	// Her groups give another role by now.
	people["anna now"] = map[string]any{"sub": "7", "groups": []string{"staff"}}
	defer delete(people, "anna now")
	renewed, p = w.renew(t, "anna now", other.Token)
	require.Equal(t, string(access.Viewer), renewed.Access.Role, p.body)
	actions := w.actions(t)
	require.Equal(t, "anna: change session: role viewer; was role approver, environments prod", actions[len(actions)-1])

	// She is in no group any more.
	people["anna now"]["groups"] = []string{"others"}
	_, p = w.renew(t, "anna now", other.Token)
	require.Equal(t, http.StatusForbidden, p.status)
	_, err = client.Client{URL: w.server.URL, Token: other.Token}.WhoAmI(t.Context())
	require.ErrorContains(t, err, "the session was ended")
	_, p = w.renew(t, "anna", other.Token)
	require.Equal(t, http.StatusUnauthorized, p.status, "what somebody has ended is not renewed")
}

func TestACommandSignsInAndOut(t *testing.T) {
	w := newWorld(t)
	var facts store.DeviceLogin
	require.NoError(t, json.Unmarshal([]byte(w.browser(t).do(http.MethodGet, "/login/device", nil, "Accept: application/json").body), &facts))
	require.Equal(t, store.DeviceLogin{Issuer: w.provider.URL, ClientID: "wherry-cli", Scopes: []string{"openid", "email", "groups"}}, facts)

	p := w.device(t, "anna", nil)
	require.Equal(t, http.StatusOK, p.status, p.body)
	var made store.CreatedAccess
	require.NoError(t, json.Unmarshal([]byte(p.body), &made))
	require.Equal(t, w.clock.Add(time.Hour), made.Access.ExpiresAt, "the word of the provider is good for an hour")
	c := client.Client{URL: w.server.URL, Token: made.Token}
	who, err := c.WhoAmI(t.Context())
	require.NoError(t, err)
	require.Equal(t, "anna", who.Name)
	require.Contains(t, who.May, string(access.Approve))
	require.Equal(t, []string{"anna: begin session: role approver, environments prod, 7 at ISSUER, for commands", "anna: sign in"}, w.actions(t))

	ended, err := c.SignOut(t.Context())
	require.NoError(t, err)
	require.True(t, ended)
	_, err = c.WhoAmI(t.Context())
	require.ErrorContains(t, err, "the session was ended")
	ended, err = c.SignOut(t.Context())
	require.NoError(t, err)
	require.False(t, ended)
	require.Equal(t, "anna: end session", w.actions(t)[2])
}

func TestASessionOfCommandsEndsByItself(t *testing.T) {
	w := newWorld(t)
	var made store.CreatedAccess
	require.NoError(t, json.Unmarshal([]byte(w.device(t, "ben", nil).body), &made))
	c := client.Client{URL: w.server.URL, Token: made.Token}
	_, err := c.WhoAmI(t.Context())
	require.NoError(t, err)
	w.clock = w.clock.Add(time.Hour)
	_, err = c.WhoAmI(t.Context())
	require.ErrorContains(t, err, "has to be renewed")
	w.clock = w.clock.Add(8 * time.Hour)
	_, err = c.WhoAmI(t.Context())
	require.ErrorContains(t, err, "the session has ended")
}

func TestAnIDTokenThatIsNotForACommandOfNowIsRefused(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		person string
		claims map[string]any
		bend   func(map[string]any)
		says   string
	}{
		"one for the hub itself":         {"anna", map[string]any{"aud": clientID}, nil, "is not valid"},
		"one for another client as well": {"anna", map[string]any{"aud": []string{"wherry-cli", "other"}, "azp": "other"}, nil, "is not valid"},
		"one of a browser":               {"anna", map[string]any{"nonce": "n"}, nil, "is not valid"},
		"one of an hour ago":             {"anna", nil, func(c map[string]any) { c["iat"] = w.clock.Add(-time.Hour).Unix() }, "is not valid"},
		"one of tomorrow":                {"anna", nil, func(c map[string]any) { c["iat"] = w.clock.Add(24 * time.Hour).Unix() }, "is not valid"},
		"one that has expired":           {"anna", nil, func(c map[string]any) { c["exp"] = w.clock.Add(-time.Second).Unix() }, "is not valid"},
		"one of another provider":        {"anna", nil, func(c map[string]any) { c["iss"] = "https://evil.example" }, "is not valid"},
		"one about a stranger":           {"", nil, func(c map[string]any) { c["sub"] = "66" }, "in none of the groups"},
	} {
		t.Run(name, func(t *testing.T) {
			w.set(func(p *provider) { p.bend = tt.bend })
			p := w.device(t, tt.person, tt.claims)
			require.Equal(t, http.StatusForbidden, p.status)
			require.Contains(t, p.body, tt.says)
		})
	}
	require.Contains(t, w.actions(t), "66 at ISSUER: refuse sign-in: 66 is in none of the groups that may use this hub")
	for _, body := range []string{"", "{}", "[]", `{"idToken": ""}`} {
		require.Equal(t, http.StatusBadRequest, w.browser(t).post("/login/device", body, "Accept: application/json").status, body)
	}
	require.Equal(t, http.StatusForbidden, w.browser(t).post("/login/device", "{}", "Accept: application/json", "Sec-Fetch-Site: cross-site").status)
}

// A cookie and an access token are no worse for a hub whose people sign in.
func TestBothKindsOfTokensAreTaken(t *testing.T) {
	w := newWorld(t)
	secret, _, err := w.Access().Create(t.Context(), access.Request{Name: "script", Role: access.Viewer, ExpiresAt: w.clock.Add(time.Hour)})
	require.NoError(t, err)
	c := client.Client{URL: w.server.URL, Token: secret.Reveal()}
	who, err := c.WhoAmI(t.Context())
	require.NoError(t, err)
	require.Equal(t, "script", who.Name)
	ended, err := c.SignOut(t.Context())
	require.NoError(t, err)
	require.False(t, ended, "an access token is no session")

	b := w.browser(t)
	at, err := url.Parse(w.server.URL)
	require.NoError(t, err)
	b.Jar.SetCookies(at, []*http.Cookie{{Name: "wherry", Value: secret.Reveal()}})
	require.Equal(t, http.StatusUnauthorized, b.get("/clusters").status, "an access token is no cookie")
}
