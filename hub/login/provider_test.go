package login_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"
)

// provider is an OpenID Connect provider with one client, which signs in whoever comes as the person that the test has set.
type provider struct {
	*httptest.Server
	key *ecdsa.PrivateKey
	now func() time.Time

	mu     sync.Mutex
	person map[string]any
	codes  map[string]url.Values // requests of sign-ins, by code; one is good once
	// bend changes an ID token before it is signed, with is the key that signs it, describe what the provider says of itself.
	bend     func(claims map[string]any)
	with     *ecdsa.PrivateKey
	describe func(map[string]any)
	down     bool
	asked    int // how often it described itself
}

const (
	clientID     = "wherry-hub"
	clientSecret = "the client's secret"
)

func newProvider(t *testing.T, now func() time.Time) *provider {
	t.Helper()
	key := newKey(t)
	p := &provider{key: key, with: key, now: now, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.asked++
		said := map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/auth", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"id_token_signing_alg_values_supported": []string{"ES256"}, "end_session_endpoint": p.URL + "/end?ui=1",
		}
		if p.describe != nil {
			p.describe(said)
		}
		answer(w, http.StatusOK, said)
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "1", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /auth", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.down {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// set changes the provider while nobody asks it.
func (p *provider) set(change func(*provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	back := url.Values{"state": {q.Get("state")}}
	switch {
	case q.Get("client_id") != clientID || q.Get("response_type") != "code" || !strings.Contains(q.Get("scope"), "openid"):
		http.Error(w, "unknown client", http.StatusBadRequest)
		return
	case q.Get("code_challenge") == "" || q.Get("code_challenge_method") != "S256":
		back.Set("error", "invalid_request")
		back.Set("error_description", "PKCE is missing")
	case p.person == nil:
		back.Set("error", "access_denied")
	default:
		code := rand.Text()
		p.codes[code] = q
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, _ := r.BasicAuth()
	id, _ = url.QueryUnescape(id)
	secret, _ = url.QueryUnescape(secret)
	begun, known := p.codes[r.FormValue("code")]
	delete(p.codes, r.FormValue("code"))
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	switch {
	case id != clientID || secret != clientSecret:
		answer(w, http.StatusUnauthorized, map[string]string{"error": "invalid_client"})
		return
	case !known || r.FormValue("redirect_uri") != begun.Get("redirect_uri") || base64.RawURLEncoding.EncodeToString(sum[:]) != begun.Get("code_challenge"):
		answer(w, http.StatusBadRequest, map[string]string{"error": "invalid_grant"})
		return
	}
	raw, err := p.idToken(map[string]any{"aud": clientID, "nonce": begun.Get("nonce")})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, http.StatusOK, map[string]any{"access_token": "a", "token_type": "Bearer", "expires_in": 300, "id_token": raw})
}

// idToken returns an ID token about the person.
func (p *provider) idToken(claims map[string]any) (string, error) {
	claims["iss"], claims["iat"], claims["exp"] = p.URL, p.now().Unix(), p.now().Add(5*time.Minute).Unix()
	maps.Copy(claims, p.person)
	if p.bend != nil {
		p.bend(claims)
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: p.with, KeyID: "1"}}, nil)
	if err != nil {
		return "", err
	}
	body, _ := json.Marshal(claims)
	signed, err := signer.Sign(body)
	if err != nil {
		return "", err
	}
	return signed.CompactSerialize()
}
