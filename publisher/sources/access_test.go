package sources

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/egress"
)

const login = "Basic cm9ib3Q6cGE1NQ=="

// chartServer serves an index that names archive, and notes the Authorization of each request by its path.
func chartServer(t *testing.T, start func(http.Handler) *httptest.Server, archive func() string) (url string, sent map[string]string) {
	sent = map[string]string{}
	server := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent[r.URL.Path] = r.Header.Get("Authorization")
		if strings.HasSuffix(r.URL.Path, "/index.yaml") {
			fmt.Fprintf(w, "entries:\n  app:\n  - {version: 1.0.0, digest: %s, urls: [%q]}\n", digest.FromString("chart").Encoded(), archive())
			return
		}
		_, _ = w.Write([]byte("chart"))
	}))
	t.Cleanup(server.Close)
	return server.URL, sent
}

// fetchChart fetches a chart.
func fetchChart(t *testing.T, repository string, access *egress.Access) (string, error) {
	r := NewResolver(Options{Access: access})
	defer func() { require.NoError(t, r.Close()) }()
	c, err := r.Content(t.Context(), Source{Kind: bundle.ArtifactChart, URL: repository, Chart: "app", Semver: ">=1.0.0"})
	return string(c.Chart), err
}

func TestAnIndexLeadsNoLoginAway(t *testing.T) {
	usual := http.DefaultTransport
	defer func() { http.DefaultTransport = usual }()
	file := filepath.Join(t.TempDir(), "netrc")
	require.NoError(t, os.WriteFile(file, []byte("machine 127.0.0.1 login robot password pa55"), 0o600))
	t.Setenv("NETRC", file)
	var own, foreign, plain string
	var archive string
	tls := func(h http.Handler) *httptest.Server {
		s := httptest.NewTLSServer(h)
		http.DefaultTransport = s.Client().Transport // all of them have one certificate
		return s
	}
	at := func() string { return archive }
	own, ownSent := chartServer(t, tls, at)
	foreign, foreignSent := chartServer(t, tls, at)
	plain, plainSent := chartServer(t, httptest.NewServer, at)
	for _, test := range []struct {
		name, repository, archive string
		own, foreign, plain       map[string]string
	}{
		{"an own repository", own, "app.tgz", map[string]string{"/index.yaml": login, "/app.tgz": login}, nil, nil},
		{"one whose archives are elsewhere", own, foreign + "/app.tgz", map[string]string{"/index.yaml": login}, map[string]string{"/app.tgz": ""}, nil},
		{"one whose archives are at the same host without TLS", own, plain + "/app.tgz", map[string]string{"/index.yaml": login}, nil, map[string]string{"/app.tgz": ""}},
		{"another on the same host", foreign, "app.tgz", nil, map[string]string{"/index.yaml": "", "/app.tgz": ""}, nil},
		{"another that names what is behind the login", foreign, own + "/secret.tgz", map[string]string{"/secret.tgz": ""}, map[string]string{"/index.yaml": ""}, nil},
		{"one without TLS", plain, "app.tgz", nil, nil, map[string]string{"/index.yaml": "", "/app.tgz": ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			clear(ownSent)
			clear(foreignSent)
			clear(plainSent)
			archive = test.archive
			access := egress.New(own)
			access.Allow("127.0.0.1")
			data, err := fetchChart(t, test.repository, access)
			require.NoError(t, err)
			require.Equal(t, "chart", data)
			for i, sent := range []map[string]string{ownSent, foreignSent, plainSent} {
				want := []map[string]string{test.own, test.foreign, test.plain}[i]
				if want == nil {
					want = map[string]string{}
				}
				require.Equal(t, want, sent, i)
			}
		})
	}
}

func TestNoSourceReachesWhatIsPrivate(t *testing.T) {
	internal := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked for", r.URL) }))
	defer internal.Close()
	public, _ := chartServer(t, httptest.NewServer, func() string { return strings.Replace(internal.URL, "127.0.0.1", "localhost", 1) + "/app.tgz" })
	access := egress.New()
	access.Allow(strings.TrimPrefix(public, "http://"))
	_, err := fetchChart(t, public, access)
	require.ErrorAs(t, err, new(*egress.RefusedError), "an archive that an index names")
	r := NewResolver(Options{})
	defer r.Close()
	host := strings.TrimPrefix(internal.URL, "http://")
	for _, s := range []Source{
		{Kind: bundle.ArtifactChart, URL: internal.URL, Chart: "app"},
		{Kind: bundle.ArtifactGit, URL: internal.URL + "/x"},
		{Kind: bundle.ArtifactImage, URL: host + "/x", Tag: "1"},
		{Kind: bundle.ArtifactChart, URL: host + "/x", Semver: "*"},
		{Kind: bundle.ArtifactChart, URL: "http://10.0.0.1", Chart: "app"},
		{Kind: bundle.ArtifactImage, URL: "10.0.0.1/x", Tag: "1"},
	} {
		require.ErrorAs(t, r.Of(t.Context(), s).Err, new(*egress.RefusedError), s.URL)
	}
}

func TestNoErrorRepeatsAnAnswer(t *testing.T) {
	const secret = "root:x:0:0:secret"
	for name, answer := range map[string]http.HandlerFunc{
		"a page": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, secret) },
		"an error of a registry": func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprintf(w, `{"errors": [{"code": "DENIED", "message": %q}]}`, secret)
		},
		"headers": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Docker-Content-Digest", secret)
			w.Header().Set("Content-Type", secret)
			fmt.Fprintf(w, "entries:\n  app:\n  - {version: 1.0.0, digest: %q, urls: [%q]}\n", secret, secret+"://")
		},
		"a redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "secret://"+secret)
			w.WriteHeader(http.StatusFound)
		},
	} {
		server := httptest.NewServer(answer)
		for _, s := range []Source{
			{Kind: bundle.ArtifactChart, URL: server.URL, Chart: "app", Semver: ">=1.0.0"},
			{Kind: bundle.ArtifactGit, URL: server.URL},
			{Kind: bundle.ArtifactImage, URL: strings.TrimPrefix(server.URL, "http://") + "/x", Tag: "1"},
			{Kind: bundle.ArtifactImage, URL: strings.TrimPrefix(server.URL, "http://") + "/x", Semver: ">=1.0.0"},
		} {
			r := NewResolver(Options{Access: egress.New(server.URL)})
			_, err := r.Content(t.Context(), s)
			require.Error(t, err, "%s: %+v", name, s)
			require.NotContains(t, err.Error(), "secret", "%s: %+v", name, s)
			require.NotContains(t, err.Error(), "root", "%s: %+v", name, s)
			require.NoError(t, r.Close())
		}
		server.Close()
	}
}
