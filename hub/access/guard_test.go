package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/hub/store"
)

var epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// gate is a guard with its tokens, and a clock that the test moves.
type gate struct {
	*Guard
	Tokens
	kept *memory
	now  time.Time
}

func newGate(t *testing.T, more ...Source) *gate {
	t.Helper()
	g := &gate{kept: &memory{}, now: epoch}
	clock := func() time.Time { return g.now }
	g.Tokens = Tokens{Store: g.kept, Now: clock}
	g.Guard = NewGuard(Options{Sources: append([]Source{g.Tokens}, more...), Now: clock})
	return g
}

func (g *gate) create(t *testing.T, r Request) Token {
	t.Helper()
	token, _, err := g.Create(t.Context(), r)
	require.NoError(t, err)
	return token
}

// ask sends a request that needs a permission, with headers of the form "Name: value".
func (g *gate) ask(p Permission, method string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "/v1/clusters", nil)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	g.Require(p, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, _ := From(r.Context())
		fmt.Fprintf(w, "%s %s", who.Actor(), who.Role)
	})).ServeHTTP(w, r)
	return w
}

func bearer(t Token) string { return "Authorization: Bearer " + t.Reveal() }

func TestTokensAreAskedForAndChecked(t *testing.T) {
	g := newGate(t)
	viewer := g.create(t, Request{Name: "ann", Role: Viewer, ExpiresAt: epoch.Add(time.Hour)})
	admin := g.create(t, Request{Name: "bob", Role: Admin})
	forged := admin
	forged.secret[31] ^= 1
	stranger := NewToken()
	basic := func(user, password string) string {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.SetBasicAuth(user, password)
		return "Authorization: " + r.Header.Get("Authorization")
	}
	for _, tt := range []struct {
		name    string
		p       Permission
		method  string
		headers []string
		status  int
		body    string
	}{
		{"a viewer reads", Read, "GET", []string{bearer(viewer)}, 200, "ann (" + viewer.ID() + ") viewer"},
		{"the scheme's case does not matter", Read, "GET", []string{"Authorization: bEARER " + viewer.Reveal()}, 200, "ann"},
		{"an admin administers", Administer, "POST", []string{bearer(admin)}, 200, "bob"},
		{"a viewer does not", Administer, "GET", []string{bearer(viewer)}, 403, "Forbidden"},
		{"a browser sends Basic", Read, "GET", []string{basic("anyone", admin.Reveal())}, 200, "bob"},
		{"which does not write", Operate, "POST", []string{basic("", admin.Reveal())}, 401, "Basic"},
		{"but by a form of the hub's own page", Operate, "POST", []string{basic("", admin.Reveal()), "Sec-Fetch-Site: same-origin"}, 200, "bob"},
		{"also without TLS", Operate, "POST", []string{basic("", admin.Reveal()), "Origin: http://example.com"}, 200, "bob"},
		{"not by one of another site", Operate, "POST", []string{basic("", admin.Reveal()), "Sec-Fetch-Site: cross-site", "Origin: http://example.com"}, 401, "Basic"},
		{"nor of another host", Operate, "POST", []string{basic("", admin.Reveal()), "Origin: http://evil.example"}, 401, "Basic"},
		{"nor by what a person did", Operate, "POST", []string{basic("", admin.Reveal()), "Sec-Fetch-Site: none"}, 401, "Basic"},
		{"open routes need nothing", Open, "POST", nil, 200, ""},
		{"open routes look at nothing", Open, "POST", []string{"Authorization: nonsense"}, 200, ""},
		{"no token", Read, "GET", nil, 401, "Unauthenticated"},
		{"another secret", Read, "GET", []string{bearer(forged)}, 401, "not one of this hub's"},
		{"another id", Read, "GET", []string{bearer(stranger)}, 401, "not one of this hub's"},
		{"a damaged token", Read, "GET", []string{bearer(viewer) + "x"}, 401, "not one of this hub's"},
		{"an empty one", Read, "GET", []string{"Authorization: Bearer "}, 401, "not one of this hub's"},
		{"two headers", Read, "GET", []string{bearer(viewer), bearer(admin)}, 401, "more than one"},
		{"two tokens in one", Read, "GET", []string{bearer(viewer) + ", " + bearer(admin)}, 401, "not one of"},
		{"another scheme", Read, "GET", []string{"Authorization: Digest " + viewer.Reveal()}, 401, "as Bearer"},
		{"damaged Basic", Read, "GET", []string{"Authorization: Basic ???"}, 401, "damaged"},
		{"the token elsewhere", Read, "GET", []string{"Cookie: token=" + viewer.Reveal(), "X-Token: " + viewer.Reveal()}, 401, "Unauthenticated"},
		{"control characters", Read, "GET", []string{"Authorization: Bearer \x1b[2J" + viewer.Reveal()}, 401, "not one of"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g.now = g.now.Add(10 * time.Second) // wrong tokens are bounded
			w := g.ask(tt.p, tt.method, tt.headers...)
			require.Equal(t, tt.status, w.Code, w.Body)
			require.Contains(t, w.Body.String(), tt.body)
			require.NotContains(t, w.Body.String(), "\x1b")
			if tt.p != Open {
				require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
			}
			if tt.status == 401 {
				require.Equal(t, `Bearer realm="wherry hub"`, w.Header().Get("WWW-Authenticate"))
			}
		})
	}
	require.Contains(t, g.ask(Read, "GET", "Accept: text/html,*/*").Header().Get("WWW-Authenticate"), "Basic realm=")

	g.now = epoch.Add(time.Hour)
	require.Contains(t, g.ask(Read, "GET", bearer(viewer)).Body.String(), "has expired")
	_, err := g.Revoke(t.Context(), "bob")
	require.NoError(t, err)
	require.Contains(t, g.ask(Read, "GET", bearer(admin)).Body.String(), "was revoked")
	require.NotContains(t, g.ask(Read, "GET", bearer(forged)).Body.String(), "revoked", "only its owner is told")

	g.kept.err = errors.New("disk on fire")
	w := g.ask(Read, "GET", bearer(viewer))
	require.Equal(t, 503, w.Code)
	require.NotContains(t, w.Body.String(), "fire")
	g.kept.err = nil

	g.kept.tokens = []store.AccessToken{{ID: stranger.ID(), Hash: stranger.Hash(), Name: "x", Role: "viewer", AccessScope: store.AccessScope{Selector: "in ("}}}
	require.Equal(t, 503, g.ask(Read, "GET", bearer(stranger)).Code, "a scope that cannot be read is not the whole fleet")
	g.kept.tokens[0].Hash = nil
	require.Equal(t, 401, g.ask(Read, "GET", bearer(stranger)).Code)
}

func TestAnonymousIsForRequestsWithoutCredentialsAlone(t *testing.T) {
	g := newGate(t, Anonymous{Viewer})
	require.Equal(t, "anonymous viewer", g.ask(Read, "GET").Body.String())
	require.Equal(t, 403, g.ask(Operate, "POST").Code)
	require.Equal(t, 401, g.ask(Read, "GET", bearer(NewToken())).Code)

	g = newGate(t, Anonymous{Admin})
	require.Equal(t, "anonymous admin", g.ask(Operate, "POST").Body.String())
	require.Equal(t, "anonymous admin", g.ask(Operate, "POST", "Sec-Fetch-Site: same-origin").Body.String())
	for _, header := range []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site", "Origin: http://evil.example"} {
		require.Equal(t, 401, g.ask(Operate, "POST", header).Code, "a form of another site: %s", header)
	}
}

func TestTokensAreMadeWithinBounds(t *testing.T) {
	g := newGate(t)
	for name, r := range map[string]Request{
		"no name":                      {Role: Viewer},
		"a name of its own":            {Name: "local", Role: Viewer},
		"a control character":          {Name: "a\x1bb", Role: Viewer},
		"a name that is too long":      {Name: strings.Repeat("a", 129), Role: Viewer},
		"space":                        {Name: " ann", Role: Viewer},
		"no role":                      {Name: "ann"},
		"an unknown role":              {Name: "ann", Role: "root"},
		"an admin with a scope":        {Name: "ann", Role: Admin, AccessScope: store.AccessScope{Environments: []string{"dev"}}},
		"an operator with a workspace": {Name: "ann", Role: Operator, AccessScope: store.AccessScope{Workspaces: []string{"shop"}}},
		"a selector that is none":      {Name: "ann", Role: Viewer, AccessScope: store.AccessScope{Selector: "a=b=c"}},
		"an end that has passed":       {Name: "ann", Role: Viewer, ExpiresAt: epoch},
		"an end that is too far":       {Name: "ann", Role: Viewer, ExpiresAt: epoch.Add(MaxTokenTime + time.Second)},
	} {
		_, _, err := g.Create(t.Context(), r)
		require.ErrorIs(t, err, store.ErrInvalid, name)
	}
	require.Empty(t, g.kept.tokens)
	require.Empty(t, g.kept.log)

	ctx := With(t.Context(), Identity{Name: "root", ID: "0123456789ab", Role: Admin})
	token, kept, err := g.Create(ctx, Request{Name: "ann", Role: Viewer, AccessScope: store.AccessScope{Environments: []string{"dev"}, Selector: "region=east"}})
	require.NoError(t, err)
	_, err = g.Revoke(t.Context(), token.Reveal())
	require.NoError(t, err)
	require.Equal(t, []store.AuditEntry{
		{At: epoch, Actor: "root (0123456789ab)", Action: "create access token", Object: "ann (" + kept.ID + ")", Detail: "role viewer, environments dev, selector region=east"},
		{At: epoch, Actor: "local", Action: "revoke access token", Object: "ann (" + kept.ID + ")"},
	}, g.kept.log)
	require.NotContains(t, fmt.Sprint(g.kept), token.Reveal()[17:])
	_, err = g.Revoke(t.Context(), "nobody")
	require.ErrorIs(t, err, store.ErrUnknownAccess)
}

func TestWrongTokensOfAnAddressAreBounded(t *testing.T) {
	g := newGate(t)
	good := g.create(t, Request{Name: "ann", Role: Viewer})
	late := g.create(t, Request{Name: "bob", Role: Viewer})
	require.Equal(t, 200, g.ask(Read, "GET", bearer(good)).Code)
	for range failuresPerMinute {
		require.Equal(t, 401, g.ask(Read, "GET", bearer(NewToken())).Code)
	}
	asked := g.kept.asked
	w := g.ask(Read, "GET", bearer(NewToken()))
	require.Equal(t, 429, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, asked, g.kept.asked, "the database is not asked")
	require.Equal(t, 200, g.ask(Read, "GET", bearer(good)).Code, "who was let in before stays")
	require.Equal(t, 429, g.ask(Read, "GET", bearer(late)).Code)
	require.Equal(t, 401, g.ask(Read, "GET").Code, "a browser is still asked for a password")
	g.now = g.now.Add(7 * time.Second)
	require.Equal(t, 200, g.ask(Read, "GET", bearer(late)).Code)
}

func TestRequestsOfATokenAndOfAnAddressAreBounded(t *testing.T) {
	g := newGate(t)
	g.Guard = NewGuard(Options{Sources: []Source{g.Tokens}, Now: func() time.Time { return g.now }, RequestsPerMinute: 60, Client: func(r *http.Request) string { return r.Header.Get("From") }})
	ann, bob := g.create(t, Request{Name: "ann", Role: Viewer}), g.create(t, Request{Name: "bob", Role: Viewer})
	for range 60 {
		require.Equal(t, 200, g.ask(Read, "GET", bearer(ann), "From: a").Code)
	}
	w := g.ask(Read, "GET", bearer(ann), "From: b")
	require.Equal(t, 429, w.Code, "by token")
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, 429, g.ask(Read, "GET", bearer(bob), "From: a").Code, "by address")
	require.Equal(t, 200, g.ask(Read, "GET", bearer(bob), "From: b").Code)
	require.Equal(t, 200, g.ask(Open, "POST", "From: a").Code)
	g.now = g.now.Add(time.Second)
	require.Equal(t, 200, g.ask(Read, "GET", bearer(ann), "From: c").Code)
}

func TestCountersAreBounded(t *testing.T) {
	r := newRate(60, 60)
	for i := range 5 * maxRemembered {
		_, ok := r.take(fmt.Sprint(i), 1, epoch)
		require.True(t, ok)
	}
	require.LessOrEqual(t, len(r.keys.now)+len(r.keys.old), 2*maxRemembered)
	_, ok := r.take("", 1000, epoch)
	require.True(t, ok)
	for range 60 {
		_, ok = r.take("x", 1, epoch)
		require.True(t, ok)
	}
	_, ok = r.take("x", 1, epoch.Add(-time.Hour))
	require.False(t, ok, "a clock that is set back gives nothing")
	_, ok = r.take("x", 1, epoch.Add(2*time.Hour))
	require.True(t, ok)
}

func TestALongRequestEndsOnceItsTokenIsRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &memory{}
		tokens := Tokens{Store: kept}
		g := NewGuard(Options{Sources: []Source{tokens}})
		token, _, err := tokens.Create(t.Context(), Request{Name: "ann", Role: Viewer})
		require.NoError(t, err)
		began := make(chan context.Context)
		h := g.Require(Read, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began <- r.Context()
			<-r.Context().Done()
		}))
		r := httptest.NewRequest("GET", "/v1/events", nil)
		r.Header.Set("Authorization", "Bearer "+token.Reveal())
		done := make(chan struct{})
		go func() {
			h.ServeHTTP(httptest.NewRecorder(), r)
			close(done)
		}()
		request := <-began
		time.Sleep(time.Hour)
		require.NoError(t, request.Err())
		_, err = tokens.Revoke(t.Context(), "ann")
		require.NoError(t, err)
		revoked := time.Now()
		<-done
		require.LessOrEqual(t, time.Since(revoked), recheckEvery)
		asked := kept.asked
		time.Sleep(time.Hour)
		require.Equal(t, asked, kept.asked, "nothing runs on")
	})
}

// The last use is noted once an hour.
func TestUseIsNoted(t *testing.T) {
	g := newGate(t)
	token := g.create(t, Request{Name: "ann", Role: Viewer})
	for range 3 {
		g.ask(Read, "GET", bearer(token))
		require.Equal(t, epoch, g.kept.tokens[0].UsedAt)
		g.now = g.now.Add(20 * time.Minute)
	}
	g.ask(Read, "GET", bearer(token))
	require.Equal(t, epoch.Add(time.Hour), g.kept.tokens[0].UsedAt)
}

// A comparison that ends at the first wrong byte would tell how many are right.
func TestSecretsAreComparedAsAWhole(t *testing.T) {
	g := newGate(t)
	token := g.create(t, Request{Name: "ann", Role: Viewer})
	for _, at := range []int{0, 15, 31} {
		wrong := token
		wrong.secret[at] ^= 0x80
		_, err := g.Check(t.Context(), wrong)
		var refused *hubapi.Error
		require.ErrorAs(t, err, &refused)
		unknown, _ := ParseToken("wha_000000000000_" + wrong.Reveal()[17:])
		_, same := g.Check(t.Context(), unknown)
		require.Equal(t, err, same, "an unknown id and a wrong secret are told alike")
	}
}

func TestHeaders(t *testing.T) {
	w := httptest.NewRecorder()
	Headers(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	require.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
	require.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "DENY", w.Header().Get("X-Frame-Options"))
}

func TestOpenRoutesThatCostMuchAreBounded(t *testing.T) {
	g := newGate(t)
	h := g.Bound(3, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	ask := func(address string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodGet, "/login", nil)
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for range 3 {
		require.Equal(t, http.StatusTeapot, ask("192.0.2.1:1").Code)
	}
	w := ask("192.0.2.1:2")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Equal(t, http.StatusTeapot, ask("192.0.2.2:1").Code, "another address")
	g.now = g.now.Add(time.Minute)
	require.Equal(t, http.StatusTeapot, ask("192.0.2.1:3").Code)
}
