package login_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/hub"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/demo"
	"github.com/wherry-dev/wherry/hub/login"
	"github.com/wherry-dev/wherry/hub/store"
)

// world is a provider, and a hub with a sample fleet whose people sign in there.
type world struct {
	*provider
	*hub.Hub
	server *httptest.Server
	clock  time.Time
}

// people are as the provider knows them.
var people = map[string]map[string]any{
	"anna": {"sub": "7", "email": "anna@example.com", "email_verified": true, "groups": []string{"staff", "release-managers"}},
	"ben":  {"sub": "8", "email": "ben@example.com", "email_verified": true, "groups": []string{"release-managers"}},
	"shop": {"sub": "9", "preferred_username": "anna", "name": "anna", "groups": []string{"shop-team"}},
	"root": {"sub": "1", "groups": "platform-admins"},
}

const file = `
url: %s
issuer: %s
clientID: wherry-hub
clientSecretFile: secret
deviceClientID: wherry-cli
scopes: [email, groups]
trustEmail: true
roles:
- {group: platform-admins, role: admin}
- {group: release-managers, role: approver, environments: [prod]}
- {group: shop-team, role: viewer, workspaces: [shop]}
- {group: staff, role: viewer}
members:
- {name: anna, subject: "7"}
- {name: ben, email: ben@example.com}
- {name: rita, subject: "1"}
`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{clock: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)}
	w.provider = newProvider(t, func() time.Time { return w.clock })
	w.Hub, w.server = w.newHub(t)
	return w
}

// newHub returns a hub of its own folder, and where it serves.
func (w *world) newHub(t *testing.T) (*hub.Hub, *httptest.Server) {
	t.Helper()
	dir := t.TempDir()
	server := httptest.NewUnstartedServer(nil)
	config := filepath.Join(dir, "login.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, file, "http://"+server.Listener.Addr().String(), w.provider.URL), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte(clientSecret+"\n"), 0o600))
	c, err := login.Read(config)
	require.NoError(t, err)
	h, err := hub.Open(dir, hub.Options{Now: func() time.Time { return w.clock }, Login: c})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.Close()) })
	require.NoError(t, demo.Fill(t.Context(), filepath.Join(dir, hub.DatabaseFile), 30, w.clock))
	server.Config.Handler = h.Handler()
	server.Start()
	t.Cleanup(server.Close)
	return h, server
}

// browser is a browser of somebody.
type browser struct {
	t *testing.T
	*http.Client
	hub string
}

func (w *world) browser(t *testing.T) *browser {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &browser{t, &http.Client{Jar: jar}, w.server.URL}
}

// page is an answer that a browser shows.
type page struct {
	status int
	url    *url.URL
	body   string
}

func (b *browser) do(method, address string, body io.Reader, headers ...string) page {
	b.t.Helper()
	if strings.HasPrefix(address, "/") {
		address = b.hub + address
	}
	r, err := http.NewRequestWithContext(b.t.Context(), method, address, body)
	require.NoError(b.t, err)
	r.Header.Set("Accept", "text/html")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	answer, err := b.Do(r)
	require.NoError(b.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(b.t, err)
	return page{answer.StatusCode, answer.Request.URL, string(text)}
}

func (b *browser) get(address string) page { return b.do(http.MethodGet, address, nil) }

func (b *browser) post(address, body string, headers ...string) page {
	return b.do(http.MethodPost, address, strings.NewReader(body), headers...)
}

// signIn signs in as a person whom the provider knows.
func (w *world) signIn(t *testing.T, person string) *browser {
	t.Helper()
	w.set(func(p *provider) { p.person = people[person] })
	b := w.browser(t)
	p := b.get("/login?back=/clusters")
	require.Equal(t, http.StatusOK, p.status, p.body)
	require.Equal(t, "/clusters", p.url.Path)
	return b
}

// session returns the cookie with the session.
func (b *browser) session() string {
	at, err := url.Parse(b.hub)
	require.NoError(b.t, err)
	for _, c := range b.Jar.Cookies(at) {
		if c.Name == "wherry" {
			return c.Value
		}
	}
	return ""
}

// actions returns what the audit log has, as "ACTOR: ACTION: DETAIL", without ids.
func (w *world) actions(t *testing.T) (all []string) {
	t.Helper()
	entries, err := w.Access().Store.AuditLog(t.Context(), 0, 1000)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Actor != access.Local {
			actor, _, _ := strings.Cut(e.Actor, " (")
			all = append(all, strings.ReplaceAll(strings.TrimSuffix(actor+": "+e.Action+": "+e.Detail, ": "), w.provider.URL, "ISSUER"))
		}
	}
	return all
}

func TestAPersonSignsInAndOut(t *testing.T) {
	w := newWorld(t)
	b := w.browser(t)
	w.set(func(p *provider) { p.person = people["anna"] })
	p := b.get("/clusters?environment=prod")
	require.Equal(t, http.StatusUnauthorized, p.status)
	require.Contains(t, p.body, `href="/login?back=%2Fclusters%3Fenvironment%3Dprod">Sign in</a>`)
	p = b.get("/login?back=%2Fclusters%3Fenvironment%3Dprod")
	require.Equal(t, http.StatusOK, p.status, p.body)
	require.Equal(t, "/clusters?environment=prod", p.url.RequestURI())
	require.Contains(t, p.body, "anna (approver, prod)")
	require.Contains(t, p.body, `<form method="post" action="/logout"><button>Sign out</button></form>`)
	require.Equal(t, []string{"anna: begin session: role approver, environments prod, 7 at ISSUER", "anna: sign in"}, w.actions(t))

	cookie := b.session()
	require.NotEmpty(t, cookie)
	p = b.post("/logout", "", "Sec-Fetch-Site: same-origin")
	require.Equal(t, http.StatusOK, p.status)
	require.Equal(t, "/login/out", p.url.Path)
	require.Contains(t, p.body, `<a class="button" href="/login">Sign in again</a>`)
	require.Contains(t, p.body, `<a href="`+w.provider.URL+`/end?client_id=wherry-hub&amp;ui=1">sign out there too</a>`)
	require.Equal(t, http.StatusUnauthorized, b.get("/").status)
	require.Empty(t, b.session())
	require.Contains(t, get(t, w.server.URL, "Cookie: wherry="+cookie), "the session was ended", "a copy of the cookie is of no use")
	require.Equal(t, "anna: end session", w.actions(t)[2])
}

// get sends a request to /v1/whoami with a header, and returns the answer.
func get(t *testing.T, hub, header string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub+"/v1/whoami", nil)
	require.NoError(t, err)
	name, value, _ := strings.Cut(header, ": ")
	r.Header.Set(name, value)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	return string(text)
}

func TestCookiesAreForThisHubAlone(t *testing.T) {
	w := newWorld(t)
	b := w.signIn(t, "anna")
	b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.server.URL+"/login", nil)
	require.NoError(t, err)
	answer, err := b.Do(r)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Regexp(t, `^wherry-login=[^;]+; Path=/; Max-Age=600; HttpOnly; SameSite=Lax$`, answer.Header.Get("Set-Cookie"))
	secure := access.Sessions{}.Cookie("", "x", time.Hour)
	require.Equal(t, "__Host-wherry=x; Path=/; Max-Age=3600; HttpOnly; Secure; SameSite=Lax", secure.String())

	_, other := w.newHub(t)
	require.Contains(t, get(t, other.URL, "Cookie: wherry="+b.session()), "not a session of this hub")
	require.Contains(t, get(t, w.server.URL, "Cookie: wherry="+b.session()), `"name":"anna"`)
	secret, _, err := w.Access().Create(t.Context(), access.Request{Name: "ci", Role: access.Admin, ExpiresAt: w.clock.Add(time.Hour)})
	require.NoError(t, err)
	require.Contains(t, get(t, w.server.URL, "Cookie: wherry="+secret.Reveal()), "not a session of this hub", "an access token is no session")
	require.Contains(t, get(t, w.server.URL, "Authorization: Bearer "+secret.Reveal()), `"name":"ci"`, "tokens stay")
}

func TestAnIDTokenThatIsNotForThisSignInIsRefused(t *testing.T) {
	w := newWorld(t)
	w.set(func(p *provider) { p.person = people["anna"] })
	for name, bend := range map[string]func(map[string]any){
		"another nonce":             func(c map[string]any) { c["nonce"] = "x" },
		"no nonce":                  func(c map[string]any) { delete(c, "nonce") },
		"another audience":          func(c map[string]any) { c["aud"] = "another-client" },
		"several audiences, no azp": func(c map[string]any) { c["aud"] = []string{clientID, "another-client"} },
		"issued to another client":  func(c map[string]any) { c["azp"] = "another-client" },
		"another issuer":            func(c map[string]any) { c["iss"] = "https://login.example.com" },
		"expired":                   func(c map[string]any) { c["exp"] = w.clock.Add(-time.Second).Unix() },
		"no expiry":                 func(c map[string]any) { delete(c, "exp") },
		"no subject":                func(c map[string]any) { delete(c, "sub") },
		"a subject that hides":      func(c map[string]any) { c["sub"] = "7\u202e" },
	} {
		t.Run(name, func(t *testing.T) {
			w.set(func(p *provider) { p.bend = bend })
			b := w.browser(t)
			p := b.get("/login")
			require.Equal(t, http.StatusForbidden, p.status, p.body)
			require.Contains(t, p.body, "ID token is not valid")
			require.Empty(t, b.session())
		})
	}
	w.set(func(p *provider) { p.bend, p.with = nil, newKey(t) })
	require.Equal(t, http.StatusForbidden, w.browser(t).get("/login").status, "signed with another key")
	w.set(func(p *provider) { p.with = p.key })
	require.Equal(t, http.StatusOK, w.browser(t).get("/login").status)
}

// returned begins a sign-in and returns the address to which the provider sends the browser back.
func (b *browser) returned() *url.URL {
	b.t.Helper()
	var at *url.URL
	b.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if at = r.URL; strings.HasSuffix(at.Path, "/callback") {
			return http.ErrUseLastResponse
		}
		return nil
	}
	b.get("/login")
	b.CheckRedirect = nil
	require.NotNil(b.t, at)
	return at
}

func TestASignInIsFinishedOnceAndWhereItBegan(t *testing.T) {
	w := newWorld(t)
	w.set(func(p *provider) { p.person = people["anna"] })
	b := w.browser(t)
	back := b.returned()
	require.Contains(t, w.browser(t).get(back.String()).body, "not begun in this browser", "a stolen address")
	require.Equal(t, http.StatusUnauthorized, b.get("/").status)

	back = b.returned()
	other := *back
	q := other.Query()
	q.Set("state", "another")
	other.RawQuery = q.Encode()
	p := b.get(other.String())
	require.Equal(t, http.StatusBadRequest, p.status)
	require.Contains(t, b.get(back.String()).body, "not begun in this browser", "a sign-in has one try")

	back = b.returned()
	at, _ := url.Parse(b.hub)
	kept := b.Jar.Cookies(at)
	require.Equal(t, http.StatusOK, b.get(back.String()).status)
	copied := w.browser(t)
	copied.Jar.SetCookies(at, kept)
	p = copied.get(back.String())
	require.Equal(t, http.StatusForbidden, p.status, "the code was used")
	require.Contains(t, p.body, "invalid_grant")

	// A code that was stolen is of no use without the verifier.
	back = b.returned()
	for _, c := range b.Jar.Cookies(at) {
		if c.Name == "wherry-login" {
			values, err := url.ParseQuery(c.Value)
			require.NoError(t, err)
			values.Set("verifier", strings.Repeat("x", 43))
			c.Value = values.Encode()
			b.Jar.SetCookies(at, []*http.Cookie{c})
		}
	}
	p = b.get(back.String())
	require.Equal(t, http.StatusForbidden, p.status)
	require.Contains(t, p.body, "invalid_grant")

	w.set(func(p *provider) { p.person = nil })
	p = w.browser(t).get("/login")
	require.Equal(t, http.StatusForbidden, p.status)
	require.Contains(t, p.body, "access_denied")

	back = b.returned()
	q = back.Query()
	q.Set("iss", "https://other.example.com")
	back.RawQuery = q.Encode()
	require.Equal(t, http.StatusForbidden, b.get(back.String()).status)
}

func TestNobodyIsSentToAnotherSite(t *testing.T) {
	w := newWorld(t)
	w.set(func(p *provider) { p.person = people["anna"] })
	for _, back := range []string{"https://evil.example", "//evil.example", `/\evil.example`, "/\t/evil.example", "javascript:alert(1)", "/login?back=/", "", "/" + strings.Repeat("x", 2000)} {
		p := w.browser(t).get("/login?back=" + url.QueryEscape(back))
		require.Equal(t, w.server.URL+"/", p.url.String(), back)
		require.Equal(t, http.StatusOK, p.status)
	}
}

func TestNamesAreThoseOfTheConfiguration(t *testing.T) {
	w := newWorld(t)
	with := func(changes map[string]any) page {
		w.set(func(p *provider) {
			p.person = map[string]any{}
			for name, v := range people["ben"] {
				p.person[name] = v
			}
			for name, v := range changes {
				p.person[name] = v
			}
		})
		return w.browser(t).get("/login")
	}
	require.Contains(t, with(nil).body, "ben (approver, prod)")
	for name, changes := range map[string]map[string]any{
		"an address that was not verified": {"email_verified": false},
		"one verified by word":             {"email_verified": "true"},
		"one that nothing says about":      {"email_verified": nil},
		"another address":                  {"email": "BEN@example.com"},
		"names that people may edit":       {"email": "", "preferred_username": "ben@example.com", "name": "ben", "nickname": "ben", "upn": "ben@example.com"},
	} {
		p := with(changes)
		require.Equal(t, http.StatusForbidden, p.status, name)
		require.Contains(t, p.body, "no member with the subject &#34;8&#34;", name)
	}
	p := with(map[string]any{"sub": "7"})
	require.Contains(t, p.body, "7 is both anna and ben")
	p = with(map[string]any{"groups": []string{"strangers"}})
	require.Equal(t, http.StatusForbidden, p.status)
	require.Contains(t, p.body, "8 is in none of the groups that may use this hub")
	require.Contains(t, w.actions(t), "8 at ISSUER: refuse sign-in: 8 is in none of the groups that may use this hub")

	b := w.signIn(t, "shop")
	require.Contains(t, b.get("/").body, "9 (viewer, shop)", "somebody who calls themselves anna")
	require.Contains(t, w.signIn(t, "root").get("/").body, "rita (admin)", "one group as a text")
}

func TestASessionEndsAndFollowsTheGroups(t *testing.T) {
	w := newWorld(t)
	b := w.signIn(t, "anna")
	cookie := b.session()
	pass := func(d time.Duration) page { w.clock = w.clock.Add(d); return b.get("/clusters") }

	require.Equal(t, http.StatusOK, pass(40*time.Minute).status)
	before := w.asked
	p := pass(25 * time.Minute) // the provider is asked again
	require.Equal(t, http.StatusOK, p.status)
	require.Contains(t, p.body, "anna (approver, prod)")
	require.Equal(t, cookie, b.session())
	require.Greater(t, w.asked, before, "it described itself more than an hour ago")

	// Her groups change: with the next renewal her role does.
	w.set(func(p *provider) { p.person = map[string]any{"sub": "7", "groups": []string{"staff"}} })
	require.Contains(t, pass(30*time.Minute).body, "anna (approver, prod)")
	require.Contains(t, get(t, w.server.URL, "Cookie: wherry="+cookie), `"role":"approver"`)
	require.Contains(t, pass(40*time.Minute).body, "anna (viewer)")
	require.Equal(t, "anna: change session: role viewer; was role approver, environments prod", w.actions(t)[2])

	// A script is told, and not sent to a login.
	require.Equal(t, http.StatusOK, pass(30*time.Minute).status)
	w.clock = w.clock.Add(31 * time.Minute)
	require.Contains(t, get(t, w.server.URL, "Cookie: wherry="+cookie), `"kind":"session"`)

	// She leaves.
	w.set(func(p *provider) { p.person = map[string]any{"sub": "7", "groups": []string{}} })
	require.Equal(t, http.StatusForbidden, pass(0).status)
	require.Empty(t, b.session())
	require.Contains(t, get(t, w.server.URL, "Cookie: wherry="+cookie), "the session was ended")
	log := w.actions(t)
	require.Equal(t, []string{"7 at ISSUER: refuse sign-in: 7 is in none of the groups that may use this hub", "anna: end session"}, log[3:5])

	// Nobody stays signed in for longer than eight hours, or without a request for an hour.
	b = w.signIn(t, "anna")
	for range 15 {
		require.Equal(t, http.StatusOK, pass(31*time.Minute).status)
	}
	p = pass(31 * time.Minute)
	require.Equal(t, http.StatusUnauthorized, p.status)
	require.Contains(t, p.body, "the session has ended")
	b = w.signIn(t, "anna")
	require.Equal(t, http.StatusUnauthorized, pass(62*time.Minute).status)

	// Somebody ends it.
	b = w.signIn(t, "anna")
	var me store.WhoAmI
	require.NoError(t, json.Unmarshal([]byte(get(t, w.server.URL, "Cookie: wherry="+b.session())), &me))
	_, err := w.Access().Revoke(context.Background(), me.ID)
	require.NoError(t, err)
	require.Equal(t, http.StatusUnauthorized, pass(0).status)
}

func TestOnlyPagesOfTheHubChangeAnything(t *testing.T) {
	w := newWorld(t)
	b := w.signIn(t, "anna")
	const pause = `{"action":"pause","platform":"coffee","environment":"prod","reason":"sale"}`
	for _, headers := range [][]string{
		{"Sec-Fetch-Site: cross-site"},
		{"Sec-Fetch-Site: same-site"},
		{"Origin: https://evil.example"},
		{"Origin: null"},
		{"Sec-Fetch-Site: cross-site", "Content-Type: text/plain"},
	} {
		p := b.post("/v1/decisions", pause, headers...)
		require.Equal(t, http.StatusForbidden, p.status, headers)
		require.Contains(t, p.body, "page of another site")
		require.Equal(t, http.StatusForbidden, b.post("/logout", "", headers...).status)
	}
	require.Equal(t, http.StatusOK, b.do(http.MethodGet, "/clusters", nil, "Sec-Fetch-Site: cross-site").status, "a link leads to the hub")
	p := b.post("/v1/decisions", pause, "Sec-Fetch-Site: same-origin")
	require.Equal(t, http.StatusOK, p.status, p.body)
	log := w.actions(t)
	require.Equal(t, "anna: pause promotion", log[len(log)-1])
	p = b.post("/v1/decisions", strings.Replace(pause, "prod", "stage", 1), "Sec-Fetch-Site: same-origin")
	require.Equal(t, http.StatusForbidden, p.status, "outside her scope")
}

func TestAGroupSeesItsScopeAlone(t *testing.T) {
	w := newWorld(t)
	b := w.signIn(t, "shop")
	for _, path := range []string{
		"/", "/workloads", "/clusters", "/deployments", "/environments", "/v1/deployments", "/v1/clusters", "/v1/counts?of=deployments&by=workspace,workload",
		"/v1/facets?of=deployments&by=workspace,workload", "/v1/history?workload=web", "/v1/events?follow=false&after=0",
	} {
		p := b.get(path)
		require.Equal(t, http.StatusOK, p.status, path)
		for _, hidden := range []string{"ledger", "monitor", "payments"} {
			require.NotContains(t, p.body, hidden, path)
		}
	}
	require.Contains(t, b.get("/v1/counts?of=deployments&by=workload").body, "web")
	require.Equal(t, http.StatusNotFound, b.get("/v1/deployments?workload=ledger").status)
	require.Equal(t, http.StatusForbidden, b.get("/v1/decisions?environment=prod").status)
	require.Equal(t, http.StatusForbidden, b.get("/v1/access").status)
}

func TestAProviderThatIsAwayOrWrongStopsNobodyElse(t *testing.T) {
	w := newWorld(t)
	b := w.signIn(t, "anna")
	secret, _, err := w.Access().Create(t.Context(), access.Request{Name: "ci", Role: access.Viewer, ExpiresAt: w.clock.Add(24 * time.Hour)})
	require.NoError(t, err)
	w.clock = w.clock.Add(30 * time.Minute)
	require.Equal(t, http.StatusOK, b.get("/").status)
	w.clock = w.clock.Add(40 * time.Minute)
	for name, change := range map[string]func(*provider){
		"away": func(p *provider) { p.down = true },
		"too large": func(p *provider) {
			p.describe = func(said map[string]any) { said["more"] = strings.Repeat("x", 2<<20) }
		},
		"plain HTTP": func(p *provider) {
			p.describe = func(said map[string]any) { said["token_endpoint"] = "http://login.example.com/token" }
		},
		"another issuer": func(p *provider) {
			p.describe = func(said map[string]any) { said["issuer"] = "https://login.example.com" }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.clock = w.clock.Add(10 * time.Second) // after which it is asked again
			w.set(change)
			p := b.get("/clusters")
			require.Equal(t, http.StatusServiceUnavailable, p.status, p.body)
			require.Contains(t, p.body, "the hub cannot reach "+w.provider.URL)
			require.Contains(t, get(t, w.server.URL, "Authorization: Bearer "+secret.Reveal()), `"name":"ci"`)
			w.set(func(p *provider) { p.down, p.describe = false, nil })
			asked := w.asked
			require.Equal(t, http.StatusServiceUnavailable, b.get("/clusters").status)
			require.Equal(t, asked, w.asked, "it is not asked each time")
		})
	}
	w.clock = w.clock.Add(10 * time.Second)
	require.Equal(t, http.StatusOK, b.get("/clusters").status, "the same session goes on")
}
