package oci_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/idna"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// internet is all hosts that there are, on one server with TLS and one without. It keeps what secrets each host was sent.
type internet struct {
	transport *http.Transport
	// answers are the handlers of registries, by HOST or HOST:PORT. Services are the handlers of token services that
	// do more than give a token to anybody with the password or without credentials.
	answers, services map[string]http.HandlerFunc

	mu        sync.Mutex
	passwords map[string]int // how often the password, or the identity token, came to a host
	tokens    map[string]int // how often a token that was issued came to a host
}

const (
	operatorSecret = "correct-horse"
	issued         = "issued-token"
)

func newInternet(t *testing.T) *internet {
	w := &internet{answers: map[string]http.HandlerFunc{}, services: map[string]http.HandlerFunc{}, passwords: map[string]int{}, tokens: map[string]int{}}
	secure := httptest.NewTLSServer(http.HandlerFunc(w.serve))
	t.Cleanup(secure.Close)
	plain := httptest.NewServer(http.HandlerFunc(w.serve))
	t.Cleanup(plain.Close)
	to := func(s *httptest.Server) func(context.Context, string, string) (net.Conn, error) {
		return func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, s.Listener.Addr().String())
		}
	}
	w.transport = &http.Transport{
		DialContext: to(plain),
		DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := to(secure)(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return tls.Client(conn, &tls.Config{InsecureSkipVerify: true}), nil // who a host is, is not the question here
		},
	}
	t.Cleanup(w.transport.CloseIdleConnections)
	return w
}

func (w *internet) serve(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, password, _ := r.BasicAuth()
	authorized := password == operatorSecret || strings.Contains(string(body), operatorSecret)
	w.mu.Lock()
	if authorized {
		w.passwords[r.Host]++
	}
	if strings.Contains(r.Header.Get("Authorization"), issued) {
		w.tokens[r.Host]++
	}
	w.mu.Unlock()
	if answer := w.answers[r.Host]; answer != nil && strings.HasPrefix(r.URL.Path, "/v2/bundles/") {
		answer(rw, r)
		return
	}
	if answer := w.services[r.Host]; answer != nil {
		answer(rw, r)
		return
	}
	if !authorized && (r.Method != http.MethodGet || r.Header.Get("Authorization") != "") {
		rw.WriteHeader(http.StatusUnauthorized)
		return
	}
	_ = json.NewEncoder(rw).Encode(map[string]string{"access_token": issued})
}

// challenging answers those who have a token, and others with the challenges.
func challenging(challenges ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+issued:
			for _, c := range challenges {
				w.Header().Add("Www-Authenticate", c)
			}
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method == http.MethodPost:
			w.Header().Set("Location", r.URL.Path+"session")
			w.WriteHeader(http.StatusAccepted)
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusCreated)
		default:
			_, _ = io.WriteString(w, `{"tags":["latest"]}`)
		}
	}
}

func bearer(realm string) string { return `Bearer realm="` + realm + `",service="edge"` }

// options returns the options of a user with the credential for host.
func (w *internet) options(host string, cred auth.Credential) oci.Options {
	return oci.Options{HTTPClient: &http.Client{Transport: w.transport}, Credential: auth.StaticCredential(host, cred)}
}

// ask reads from the registry, and writes to it.
func (w *internet) ask(t *testing.T, host string, opts oci.Options) (pull, push error) {
	t.Helper()
	repo, err := oci.Location{Host: host}.Repository("bundles/dev/drone", opts)
	require.NoError(t, err)
	_, pull = repo.Tags(t.Context())
	blob := bundle.NewBlob("application/octet-stream", []byte("content"))
	push = repo.Push(t.Context(), blob.Descriptor, strings.NewReader("content"))
	return pull, push
}

var credentialKinds = map[string]auth.Credential{
	"password":       {Username: "agent", Password: operatorSecret},
	"identity token": {RefreshToken: operatorSecret},
}

func TestCredentialsGoWhereARuleSaysSo(t *testing.T) {
	t.Parallel()
	const registryHost = "registry.example.com"
	for _, tc := range []struct {
		name     string
		registry string // registryHost where it is empty
		realm    string
		plain    bool     // the registry has no TLS, as the user knows
		listed   []string // Options.AuthHosts
		recorded string   // what a login has met
		withheld string   // the host that gets none; empty where it gets them
		hint     bool     // the error says how to allow that host
	}{
		{name: "the registry itself", realm: "https://registry.example.com/token"},
		{name: "in other letters, with a dot and the port", realm: "https://Registry.EXAMPLE.com.:443/token"},
		{name: "another port of its name", registry: "registry.plant-7:5000", realm: "https://registry.plant-7:5001/token"},
		{name: "another port of its address", registry: "10.0.0.7:5000", realm: "https://10.0.0.7/token"},
		{name: "the registry itself without TLS, which the user wants", plain: true, registry: "registry.plant-7:5000", realm: "http://registry.plant-7:5000/token"},
		{name: "another port of its name without TLS", plain: true, registry: "registry.plant-7:5000", realm: "http://registry.plant-7:5001/token", withheld: "registry.plant-7:5001"},
		{name: "TLS for a registry without", plain: true, registry: "registry.plant-7:5000", realm: "https://registry.plant-7/token"},
		{name: "another port of loopback", registry: "127.0.0.1:5000", realm: "http://127.0.0.1:5001/token", withheld: "127.0.0.1:5001", hint: true},
		{name: "another port of loopback that is listed", registry: "127.0.0.1:5000", realm: "http://127.0.0.1:5001/token", listed: []string{"127.0.0.1:5001"}},
		{name: "another name of loopback", registry: "127.0.0.1:5000", realm: "https://localhost:5001/token", withheld: "localhost:5001", hint: true},

		{name: "its registered domain", realm: "https://auth.example.com/token"},
		{name: "its registered domain, by a longer name", realm: "https://tokens.eu.example.com:8443/token"},
		{name: "its registered domain in Unicode", registry: "registry.xn--bcher-kva.example.org", realm: "https://auth.bücher.example.org/token"},
		{name: "its registered domain under two suffixes", registry: "registry.example.co.uk", realm: "https://auth.example.co.uk/token"},
		{name: "another domain under the same suffix", registry: "registry.example.co.uk", realm: "https://evil.co.uk/token", withheld: "evil.co.uk", hint: true},
		{name: "another customer of a host that the list has", registry: "registry.github.io", realm: "https://evil.github.io/token", withheld: "evil.github.io", hint: true},
		{name: "a suffix that nobody registers in", registry: "registry.team-a.svc.cluster.local", realm: "https://token.team-b.svc.cluster.local/token", withheld: "token.team-b.svc.cluster.local", hint: true},
		{name: "the end of an address", registry: "10.0.0.7", realm: "https://10.9.0.7/token", withheld: "10.9.0.7", hint: true},
		{name: "its registered domain without TLS", plain: true, registry: "registry.example.com:5000", realm: "http://auth.example.com/token", withheld: "auth.example.com:80"},

		{name: "another domain", realm: "https://evil.example/token", withheld: "evil.example", hint: true},
		{name: "another domain that ends like it", realm: "https://notexample.com/token", withheld: "notexample.com", hint: true},
		{name: "another domain that begins like it", realm: "https://registry.example.com.evil.example/token", withheld: "registry.example.com.evil.example", hint: true},
		{name: "another domain in Unicode dots", realm: "https://registry.example.com。evil.example/token", withheld: "registry.example.com.evil.example", hint: true},
		{name: "a name that looks like it", realm: "https://registry.exаmple.com/token", withheld: "registry.xn--exmple-4nf.com", hint: true},
		{name: "its name as a user's", realm: "https://registry.example.com@evil.example/token", withheld: "evil.example"},
		{name: "a user's name at its own host", realm: "https://root@registry.example.com/token", withheld: "registry.example.com"},

		{name: "a host that is listed", realm: "https://auth.corp.internal/token", listed: []string{"other.corp.internal", "Auth.corp.internal"}},
		{name: "another port of a host that is listed", realm: "https://auth.corp.internal:8443/token", listed: []string{"auth.corp.internal"}, withheld: "auth.corp.internal:8443", hint: true},
		{name: "a port that is listed", realm: "https://10.0.0.8:8443/token", listed: []string{"10.0.0.8:8443"}},
		{name: "a host of IPv6 that is listed", realm: "https://[fd00::0:8]:8443/token", listed: []string{"[fd00::8]:8443"}},
		{name: "a host that is listed, without TLS", plain: true, registry: "registry.plant-7:5000", realm: "http://auth.corp.internal/token", listed: []string{"auth.corp.internal:80"}, withheld: "auth.corp.internal:80"},

		{name: "a host that login has recorded", realm: "https://auth.corp.internal:8443/token", recorded: "auth.corp.internal:8443"},
		{name: "another host than login has recorded", realm: "https://evil.example/token", recorded: "auth.corp.internal", withheld: "evil.example", hint: true},
		{name: "a host that login has recorded, without TLS", plain: true, registry: "registry.plant-7:5000", realm: "http://auth.corp.internal/token", recorded: "auth.corp.internal:80", withheld: "auth.corp.internal:80"},

		{name: "Docker Hub", registry: "docker.io", realm: "https://auth.docker.io/token"},
		{name: "Docker Hub by its other name", registry: "registry.hub.docker.com", realm: "https://auth.docker.io/token"},
		{name: "Docker's hardened images", registry: "dhi.io", realm: "https://auth.docker.io/token"},
		{name: "GitHub", registry: "ghcr.io", realm: "https://ghcr.io/token"},
		{name: "GitLab", registry: "registry.gitlab.com", realm: "https://gitlab.com/jwt/auth"},
		{name: "Google", registry: "us-docker.pkg.dev", realm: "https://us-docker.pkg.dev/v2/token"},
		{name: "Azure", registry: "plants.azurecr.io", realm: "https://plants.azurecr.io/oauth2/token"},
		{name: "Quay", registry: "quay.io", realm: "https://quay.io/v2/auth"},
		{name: "Amazon's public one", registry: "public.ecr.aws", realm: "https://public.ecr.aws/token/"},
		{name: "DigitalOcean", registry: "registry.digitalocean.com", realm: "https://api.digitalocean.com/v2/registry/auth"},
		{name: "Alibaba", registry: "registry.cn-hangzhou.aliyuncs.com", realm: "https://dockerauth.cn-hangzhou.aliyuncs.com/auth"},
		{name: "Scaleway", registry: "rg.fr-par.scw.cloud", realm: "https://api.scaleway.com/registry-internal/v1/regions/fr-par/tokens"},
		{name: "Scaleway's, for somebody else there", registry: "evil.functions.fnc.fr-par.scw.cloud", realm: "https://api.scaleway.com/tokens", withheld: "api.scaleway.com", hint: true},
		{name: "Docker Hub's, for somebody else", realm: "https://auth.docker.io/token", withheld: "auth.docker.io", hint: true},
	} {
		for kind, cred := range credentialKinds {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				w := newInternet(t)
				host := registryHost
				if tc.registry != "" {
					host = tc.registry
				}
				at := host
				if host == "docker.io" {
					at = "registry-1.docker.io"
				}
				w.answers[at] = challenging(bearer(tc.realm))
				opts := w.options(at, cred)
				opts.PlainHTTP, opts.AuthHosts = tc.plain, tc.listed
				opts.AuthRecord = filepath.Join(t.TempDir(), "record.json")
				if tc.recorded != "" {
					record := fmt.Sprintf(`{"authHosts":{%q:%q}}`, at, tc.recorded)
					require.NoError(t, os.WriteFile(opts.AuthRecord, []byte(record), 0o600))
				}
				pull, push := w.ask(t, host, opts)
				if tc.withheld == "" {
					require.NoError(t, pull)
					require.NoError(t, push)
					realm, err := url.Parse(tc.realm)
					require.NoError(t, err)
					require.Equal(t, []string{dialed(realm.Host)}, hostNames(w.passwords))
					require.Equal(t, []string{dialed(at)}, hostNames(w.tokens), "the token is for the registry alone")
					return
				}
				for _, err := range []error{pull, push} {
					var withheld *oci.WithheldError
					require.ErrorAs(t, err, &withheld)
					require.ErrorIs(t, err, oci.ErrUnauthorized)
					require.Equal(t, tc.withheld, withheld.Host)
					require.Equal(t, tc.hint, withheld.Listable)
					require.ErrorContains(t, err, "credentials for "+at+" were not sent to "+tc.withheld+": ")
					require.Equal(t, tc.hint, strings.Contains(err.Error(), "--auth-host "+tc.withheld+" (in agent.yaml: authHosts)"), err)
					require.NotContains(t, err.Error(), operatorSecret)
				}
				require.Empty(t, w.passwords)
				require.Empty(t, w.tokens)
			})
		}
	}
}

// hostNames are the names, without ports, of the hosts that something came to.
func hostNames(came map[string]int) []string {
	names := map[string]bool{}
	for host := range came {
		names[dialed(host)] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// dialed is the name of a host, with or without a port, in one form.
func dialed(host string) string {
	u := url.URL{Host: host}
	name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		return ascii
	}
	return name
}

// What a registry, or a token service, answers has the credentials go nowhere else.
func TestCredentialsAreNotLuredAway(t *testing.T) {
	t.Parallel()
	const at, own, evil = "registry.example.com", "https://registry.example.com/token", "https://evil.example/token"
	redirect := func(to string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, status) }
	}
	for _, tc := range []struct {
		name    string
		answer  http.HandlerFunc // of the registry
		service http.HandlerFunc // of its token service, at its own host; nil is one that does as it should
		works   bool             // the registry can be read all the same
		says    string           // the error
	}{
		{name: "a token service that redirects to another host", answer: challenging(bearer(own)), service: redirect(evil, http.StatusFound), says: "not sent to evil.example: the token service at registry.example.com redirects there"},
		{name: "a token service that redirects to another host, with what it was sent", answer: challenging(bearer(own)), service: redirect(evil, http.StatusTemporaryRedirect), says: "not sent to evil.example"},
		{name: "a token service that redirects to a host in the same domain", answer: challenging(bearer(own)), service: redirect("https://evil.example.com/token", http.StatusPermanentRedirect), says: "not sent to evil.example.com"},
		{name: "a token service that redirects to another port", answer: challenging(bearer(own)), service: redirect("https://registry.example.com:8443/token", http.StatusTemporaryRedirect), says: "not sent to registry.example.com:8443"},
		{name: "a token service that redirects to HTTP without TLS", answer: challenging(bearer(own)), service: redirect("http://registry.example.com/token", http.StatusTemporaryRedirect), says: "not sent to registry.example.com:80"},
		{name: "a token service that redirects in circles", answer: challenging(bearer(own)), service: redirect(own, http.StatusTemporaryRedirect), says: "too many redirects"},
		{name: "two challenges, the second of another host", answer: challenging(bearer(own), bearer(evil)), works: true},
		{name: "two challenges, the first of another host", answer: challenging(bearer(evil), bearer(own)), says: "not sent to evil.example"},
		{name: "two challenges in one header", answer: challenging(`Negotiate, ` + bearer(evil) + `, Basic realm="edge"`), says: "not sent to evil.example"},
		{name: "a challenge that nobody knows before one of another host", answer: challenging(`Negotiate abc==`, bearer(evil)), says: "not sent to evil.example"},
		{name: "a realm twice", answer: challenging(`Bearer realm="` + own + `",realm="` + evil + `"`), says: "not sent to evil.example"},
		{name: "a realm that a quote hides", answer: challenging(`Bearer service="a\",realm=` + own + `",realm="` + evil + `"`), says: "not sent to evil.example"},
		{name: "a registry that redirects to another one", answer: redirect("https://evil.example/v2/bundles/dev/drone/tags/list", http.StatusTemporaryRedirect), says: "401"},
	} {
		for kind, cred := range credentialKinds {
			t.Run(tc.name+", "+kind, func(t *testing.T) {
				t.Parallel()
				w := newInternet(t)
				w.answers[at] = tc.answer
				w.answers["evil.example"] = challenging(bearer(evil))
				if tc.service != nil {
					w.services[at] = tc.service
				}
				pull, push := w.ask(t, at, w.options(at, cred))
				if tc.works {
					require.NoError(t, pull)
					require.NoError(t, push)
				} else {
					require.ErrorContains(t, pull, tc.says)
					require.Error(t, push)
				}
				for _, came := range []map[string]int{w.passwords, w.tokens} {
					require.Subset(t, []string{at}, slices.Collect(maps.Keys(came)))
				}
			})
		}
	}
}

// The content of a blob goes where the registry says, as far as oras lets it. The token and the password do not.
func TestUploadsElsewhereCarryNoCredentials(t *testing.T) {
	t.Parallel()
	const at = "registry.example.com"
	for name, challenge := range map[string]string{"a token": bearer("https://" + at + "/token"), "a password": `Basic realm="edge"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newInternet(t)
			w.answers[at] = func(rw http.ResponseWriter, r *http.Request) {
				switch {
				case r.Header.Get("Authorization") == "":
					challenging(challenge)(rw, r)
				case r.Method == http.MethodPost:
					rw.Header().Set("Location", "https://evil.example/v2/bundles/upload")
					rw.WriteHeader(http.StatusAccepted)
				case strings.Contains(r.URL.Path, "/blobs/"):
					http.Redirect(rw, r, "https://evil.example/blob", http.StatusTemporaryRedirect)
				}
			}
			w.services["evil.example"] = func(rw http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(rw, "content") }
			repo, err := oci.Location{Host: at}.Repository("bundles/dev/drone", w.options(at, credentialKinds["password"]))
			require.NoError(t, err)
			blob := bundle.NewBlob("application/octet-stream", []byte("content"))
			require.Error(t, repo.Push(t.Context(), blob.Descriptor, strings.NewReader("content")))
			body, err := repo.Fetch(t.Context(), blob.Descriptor)
			require.NoError(t, err)
			require.NoError(t, body.Close())
			for _, came := range []map[string]int{w.passwords, w.tokens} {
				require.Subset(t, []string{at}, slices.Collect(maps.Keys(came)))
			}
		})
	}
}

// What this package reads as no realm, and oras as one, is stopped where it is sent.
func TestARealmThatIsReadInTwoWaysGetsNoCredentials(t *testing.T) {
	t.Parallel()
	const at = "registry.example.com"
	w := newInternet(t)
	w.answers[at] = challenging(`Bearer realm="https:\x2f\x2f203.0.113.7/token",service="edge"`)
	pull, push := w.ask(t, at, w.options(at, credentialKinds["password"]))
	for _, err := range []error{pull, push} {
		require.ErrorContains(t, err, "credentials for registry.example.com were not sent to 203.0.113.7: they are for the registry itself")
	}
	require.Empty(t, w.passwords)
}

// Without credentials nothing can be stolen: the token service may be anywhere, and its token is for the registry alone.
func TestATokenForAnybodyMayComeFromAnywhere(t *testing.T) {
	t.Parallel()
	w := newInternet(t)
	w.answers["registry.example.com"] = challenging(bearer("https://203.0.113.7/token"))
	pull, push := w.ask(t, "registry.example.com", w.options("another.example.com", credentialKinds["password"]))
	require.NoError(t, pull)
	require.NoError(t, push)
	require.Empty(t, w.passwords)
	require.Equal(t, []string{"registry.example.com"}, hostNames(w.tokens))
}

// A token is asked for once, and again when it is good no more. A credential that is a token itself goes to nobody else.
func TestTokensAreKeptAndRenewed(t *testing.T) {
	t.Parallel()
	const at = "registry.example.com"
	w := newInternet(t)
	good := true
	w.answers[at] = func(rw http.ResponseWriter, r *http.Request) {
		if !good {
			r.Header.Del("Authorization")
			good = true
		}
		challenging(bearer("https://auth.example.com/token")+`,scope="repository:bundles/dev/drone:pull,push,delete"`)(rw, r)
	}
	repo, err := oci.Location{Host: at}.Repository("bundles/dev/drone", w.options(at, credentialKinds["password"]))
	require.NoError(t, err)
	for i, want := range []int{1, 1, 2, 2} {
		good = i != 2
		_, err := repo.Tags(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, w.passwords["auth.example.com"], "request %d", i)
	}

	pull, push := w.ask(t, at, w.options(at, auth.Credential{AccessToken: issued}))
	require.NoError(t, pull)
	require.NoError(t, push)
	require.Equal(t, 2, w.passwords["auth.example.com"])
	require.Equal(t, []string{at}, hostNames(w.tokens))
}

// A registry that does not take the token that its service gives has been asked enough.
func TestARegistryThatTakesNoToken(t *testing.T) {
	t.Parallel()
	const at = "registry.example.com"
	w := newInternet(t)
	w.answers[at] = func(rw http.ResponseWriter, r *http.Request) {
		r.Header.Del("Authorization")
		challenging(bearer("https://auth.example.com/token"))(rw, r)
	}
	pull, push := w.ask(t, at, w.options(at, credentialKinds["password"]))
	for _, err := range []error{pull, push} {
		require.ErrorIs(t, err, oci.ErrUnauthorized)
		require.NotErrorAs(t, err, new(*oci.WithheldError))
	}
	require.Equal(t, 2, w.passwords["auth.example.com"])
}

// A login records where the password went, if that was allowed by name; a logout forgets it.
func TestLoginRecordsWhereThePasswordGoes(t *testing.T) {
	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	t.Setenv("PATH", config) // no credential helper is found
	const at = "registry.corp.internal"
	record := oci.AuthRecord(filepath.Join(config, "config.json"))
	w := newInternet(t)
	w.services[at] = challenging(bearer("https://auth.corp.internal/token"))
	w.answers[at] = w.services[at]
	opts := oci.Options{HTTPClient: &http.Client{Transport: w.transport}}

	_, err := oci.Login(t.Context(), at, "agent", operatorSecret, opts)
	var withheld *oci.WithheldError
	require.ErrorAs(t, err, &withheld)
	require.Equal(t, "auth.corp.internal", withheld.Host)
	require.Empty(t, w.passwords)
	require.NoFileExists(t, record)
	require.NoFileExists(t, filepath.Join(config, "config.json"))

	opts.AuthHosts = []string{withheld.Host}
	_, err = oci.Login(t.Context(), at, "agent", "guess", opts)
	require.ErrorIs(t, err, oci.ErrUnauthorized)
	require.NoFileExists(t, record)
	recorded, err := oci.Login(t.Context(), at, "agent", operatorSecret, opts)
	require.NoError(t, err)
	require.Equal(t, "auth.corp.internal", recorded)
	info, err := os.Stat(record)
	require.NoError(t, err)
	require.EqualValues(t, 0o600, info.Mode())
	data, err := os.ReadFile(record)
	require.NoError(t, err)
	require.JSONEq(t, `{"authHosts":{"registry.corp.internal":"auth.corp.internal"}}`, string(data))
	opts.AuthHosts = nil
	pull, push := w.ask(t, at, opts) // with docker's credentials and the recorded host
	require.NoError(t, pull)
	require.NoError(t, push)

	w.answers[at] = challenging(bearer("https://evil.example/token"))
	pull, _ = w.ask(t, at, opts)
	require.ErrorContains(t, pull, "not sent to evil.example")
	require.ErrorContains(t, pull, "and at the last login it named auth.corp.internal")

	require.NoError(t, os.WriteFile(record, []byte("{"), 0o600))
	pull, _ = w.ask(t, at, opts)
	require.ErrorContains(t, pull, record+" is damaged")
	require.NoError(t, os.WriteFile(record, data, 0o600))
	require.NoError(t, oci.Logout(t.Context(), at))
	data, err = os.ReadFile(record)
	require.NoError(t, err)
	require.NotContains(t, string(data), at)
	require.Equal(t, []string{"auth.corp.internal"}, hostNames(w.passwords))
}

func TestAuthHostsThatAreNone(t *testing.T) {
	t.Parallel()
	for _, host := range []string{"", "https://auth.example.com", "auth.example.com/token", "*.example.com", "user@auth.example.com", "auth.example.com:", "auth.example.com:x", "a b", "auth.example.com,other", "auth.example.com?x", ":443"} {
		require.ErrorIs(t, oci.CheckAuthHost(host), oci.ErrAuthHost, host)
		_, err := oci.Location{Host: "registry"}.Open(oci.Options{AuthHosts: []string{host}})
		require.ErrorIs(t, err, oci.ErrAuthHost)
	}
	for _, host := range []string{"auth", "auth.example.com", "auth.example.com:8443", "10.0.0.7:5001", "[fd00::8]", "[fd00::8]:8443", "auth.bücher.example"} {
		require.NoError(t, oci.CheckAuthHost(host), host)
	}
}
