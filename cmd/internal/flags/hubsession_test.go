package flags

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/hubapi"
	"github.com/wherry-dev/wherry/cmd/internal/cli"
	"github.com/wherry-dev/wherry/cmd/internal/failure"
	"github.com/wherry-dev/wherry/hub/access"
	"github.com/wherry-dev/wherry/hub/client"
	"github.com/wherry-dev/wherry/hub/store"
)

// sessions is a hub and its provider: the hub takes one token, and the provider one refresh token.
type sessions struct {
	*httptest.Server
	token, refresh string
	renewed        int
	away, busy     bool
	lasts          time.Duration // of a renewed session
}

func newSessions(t *testing.T) *sessions {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv(hubTokenVariable, "")
	s := &sessions{token: access.NewToken().Reveal(), refresh: "r0", lasts: time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if s.away {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		hubapi.WriteJSON(w, http.StatusOK, map[string]any{"issuer": s.URL, "authorization_endpoint": s.URL + "/auth", "token_endpoint": s.URL + "/token", "jwks_uri": s.URL + "/keys"})
	})
	mux.HandleFunc("POST /token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("refresh_token") != s.refresh {
			hubapi.WriteJSON(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
			return
		}
		s.refresh += "+"
		hubapi.WriteJSON(w, http.StatusOK, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": "i", "refresh_token": s.refresh})
	})
	mux.HandleFunc("PUT /login/device", func(w http.ResponseWriter, _ *http.Request) {
		if s.busy {
			(&hubapi.Error{Code: hubapi.CodeUnavailable, Message: "the provider does not answer"}).Write(w)
			return
		}
		s.renewed++
		s.token = access.NewToken().Reveal()
		hubapi.WriteJSON(w, http.StatusOK, store.CreatedAccess{Token: s.token, Access: store.AccessToken{Name: "anna", ExpiresAt: time.Now().Add(s.lasts)}})
	})
	mux.HandleFunc("GET /v1/whoami", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+s.token {
			(&hubapi.Error{Code: hubapi.CodeUnauthenticated, Kind: hubapi.KindEndedSession, Message: "the session has ended"}).Write(w)
			return
		}
		hubapi.WriteJSON(w, http.StatusOK, store.WhoAmI{AccessToken: store.AccessToken{Name: "anna"}})
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

// login stores the session as one that ends after a time.
func (s *sessions) login(t *testing.T, ends time.Duration) {
	t.Helper()
	require.NoError(t, StoreHubLogin(t.Context(), s.URL, HubLogin{Token: s.token, Session: true, Expires: time.Now().Add(ends), Renewal: client.Renewal{Issuer: s.URL, ClientID: "cli", Refresh: s.refresh}}))
}

func (s *sessions) client(t *testing.T) client.Client {
	t.Helper()
	c, err := NewHubClient(&cobra.Command{}, s.URL, "", "")
	require.NoError(t, err)
	return c
}

func TestACommandRenewsASessionThatEnds(t *testing.T) {
	for name, ends := range map[string]time.Duration{"it ends soon": time.Minute, "it has ended": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			s := newSessions(t)
			s.login(t, ends)
			c, other := s.client(t), s.client(t)
			for range 2 {
				_, err := c.WhoAmI(t.Context())
				require.NoError(t, err)
			}
			_, err := other.WhoAmI(t.Context())
			require.NoError(t, err, "it takes what another command has renewed")
			require.Equal(t, 1, s.renewed)
			stored, err := readHubLogins()
			require.NoError(t, err)
			login := stored.Hubs[hubKey(s.URL)]
			require.Equal(t, []any{s.token, "r0+", true}, []any{login.Token, login.Renewal.Refresh, login.Session})
		})
	}
}

// At its end a session may be renewed to the same moment, and a provider takes a refresh token once.
func TestARefreshTokenIsUsedOnce(t *testing.T) {
	s := newSessions(t)
	s.lasts = time.Minute
	s.login(t, time.Minute)
	c, other := s.client(t), s.client(t)
	for _, c := range []client.Client{c, other} {
		_, err := c.WhoAmI(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, 1, s.renewed)
	require.Equal(t, "r0+", s.refresh)
}

func TestASignOutIsNotUndoneByACommandThatRuns(t *testing.T) {
	s := newSessions(t)
	s.login(t, -time.Minute)
	c := s.client(t)
	_, err := ForgetHubLogin(t.Context(), s.URL)
	require.NoError(t, err)
	_, err = c.WhoAmI(t.Context())
	require.ErrorIs(t, err, client.ErrSignInAgain)
	require.Empty(t, HubLogins())
	require.Zero(t, s.renewed)
}

func TestAHubThatIsBusyEndsNoSession(t *testing.T) {
	s := newSessions(t)
	s.busy = true
	s.login(t, time.Minute)
	_, err := s.client(t).WhoAmI(t.Context())
	require.NoError(t, err)
	stored, err := readHubLogins()
	require.NoError(t, err)
	require.Equal(t, "r0+", stored.Hubs[hubKey(s.URL)].Renewal.Refresh, "what the provider has given is kept")
}

func TestASessionIsNotRenewedBeforeItHasTo(t *testing.T) {
	s := newSessions(t)
	s.login(t, time.Hour)
	_, err := s.client(t).WhoAmI(t.Context())
	require.NoError(t, err)
	require.Zero(t, s.renewed)
}

func TestASessionIsUsedToItsEndIfNobodyRenewsIt(t *testing.T) {
	s := newSessions(t)
	s.login(t, time.Minute)
	s.away = true
	_, err := s.client(t).WhoAmI(t.Context())
	require.NoError(t, err)
}

func TestAnErrorSaysToSignInAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*sessions)
		code   int
		says   string
	}{
		"the provider wants the person": {func(s *sessions) { s.refresh = "another" }, cli.Denied, "invalid_grant"},
		"the provider is away":          {func(s *sessions) { s.away = true }, cli.Failed, "502"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSessions(t)
			s.login(t, -time.Minute)
			tt.change(s)
			_, err := s.client(t).WhoAmI(t.Context())
			var failed *cli.Error
			require.ErrorAs(t, failure.Hub(err, s.URL), &failed)
			require.Equal(t, []any{tt.code, "sign in again: wherry login hub " + s.URL}, []any{failed.Code, failed.Hint})
			require.ErrorContains(t, err, tt.says)
		})
	}
}

// A provider may give no refresh token.
func TestASessionWithoutARenewalIsUsedUntilItEnds(t *testing.T) {
	s := newSessions(t)
	s.refresh = ""
	s.login(t, time.Minute)
	c := s.client(t)
	_, err := c.WhoAmI(t.Context())
	require.NoError(t, err)
	s.token = "another"
	_, err = c.WhoAmI(t.Context())
	var failed *cli.Error
	require.ErrorAs(t, failure.Hub(err, s.URL), &failed)
	require.Equal(t, "sign in again: wherry login hub "+s.URL, failed.Hint)
	login, err := ForgetHubLogin(t.Context(), s.URL)
	require.NoError(t, err)
	require.True(t, login.Session)
}
