package config

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/serve"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/graph"
	"github.com/wherry-dev/wherry/bundle/oci"
)

func TestWhatIsCarried(t *testing.T) {
	c, err := configured(t, "carryBudget: 20GiB\ncarryPlatforms: [linux/amd64, linux/arm/v7]\n")
	require.NoError(t, err)
	require.Equal(t, Carry{Budget: 20 << 30, Platforms: graph.Platforms{"linux/amd64", "linux/arm/v7"}}, c.Carry)

	c, err = configured(t, "", "--carry-budget", "500MB", "--carry-platforms", "linux/amd64,linux/arm64")
	require.NoError(t, err)
	require.Equal(t, Carry{Budget: 500_000_000, Platforms: graph.Platforms{"linux/amd64", "linux/arm64"}}, c.Carry)

	for flag, want := range map[[2]string]string{
		{"--carry-budget", "much"}:        `"much" is not a size (expected: a size of at least 1MB, such as 500MB or 20GiB)`,
		{"--carry-budget", "0GiB"}:        "too little",
		{"--carry-budget", "999999999TB"}: "too much",
		{"--carry-platforms", "arm64"}:    `"arm64" is not OS/ARCHITECTURE, such as linux/arm64`,
	} {
		_, err := configured(t, "", flag[0], flag[1])
		require.ErrorContains(t, err, want)
	}
}

// asked is a server that notes what it is asked.
type asked struct {
	*httptest.Server
	mu  sync.Mutex
	got []string
}

func ask(t *testing.T, name string) *asked {
	a := &asked{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.got = append(a.got, req.Method+" "+req.URL.RequestURI())
		w.Header().Set("Server", name)
		if req.URL.Path != "/v2/" {
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(a.Close)
	return a
}

func (a *asked) host() string { return strings.TrimPrefix(a.URL, "http://") }

func TestEndpointsAndCopiesAreAskedFirst(t *testing.T) {
	endpoint, plain := ask(t, serve.Name), ask(t, "registry")
	c := &Config{Registry: Registry{Locations: []oci.Location{{Host: plain.host(), Prefix: "edge"}, {Host: endpoint.host(), Prefix: "edge"}, {Dir: t.TempDir()}}}}
	r, err := c.connect()
	require.NoError(t, err)
	sources := r.carryOptions().Sources
	for range 2 {
		all, err := sources(t.Context(), "images.example:5000/app/web")
		require.NoError(t, err)
		require.Len(t, all, 3)
		require.Equal(t, []string{plain.host(), endpoint.host(), "images.example:5000"}, []string{all[0].Host, all[1].Host, all[2].Host})
		for _, s := range all[:2] {
			_, err = s.Resolve(t.Context(), digest.FromString("x").String())
			require.Error(t, err)
		}
	}
	want := "HEAD /v2/app/web/manifests/" + digest.FromString("x").String() + "?ns=images.example%3A5000"
	require.Equal(t, []string{"HEAD /v2/", want, want}, endpoint.got)
	want = "HEAD /v2/edge/images.example_5000/app/web/manifests/" + digest.FromString("x").String()
	require.Equal(t, []string{"HEAD /v2/", want, want}, plain.got, "it is asked once what it is, and for what was copied there")

	_, err = sources(t.Context(), "not a host/app")
	require.Error(t, err)
}

// TestTheAdapterDirectoryTakesWhatWasCopied has the artifact at the site's registry alone.
func TestTheAdapterDirectoryTakesWhatWasCopied(t *testing.T) {
	site := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(site.Close)
	place := oci.Location{Host: strings.TrimPrefix(site.URL, "http://"), Prefix: "edge"}
	origin := ask(t, "registry")
	repository := origin.host() + "/models/x"
	name, err := oci.MirrorName(repository)
	require.NoError(t, err)
	repo, err := place.Repository(name, oci.Options{})
	require.NoError(t, err)
	config := bundle.NewBlob(ocispec.MediaTypeEmptyJSON, []byte("{}"))
	manifest := bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte(`{"schemaVersion":2,"mediaType":"`+ocispec.MediaTypeImageManifest+`","config":{"mediaType":"`+
		config.Descriptor.MediaType+`","digest":"`+config.Descriptor.Digest.String()+`","size":2},"layers":[]}`))
	for _, b := range []bundle.Blob{config, manifest} {
		require.NoError(t, repo.Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data)))
	}

	r, err := (&Config{Registry: Registry{Locations: []oci.Location{place}}}).connect()
	require.NoError(t, err)
	src, err := r.artifactsOf(t.TempDir())(repository)
	require.NoError(t, err)
	d, err := src.Resolve(t.Context(), manifest.Descriptor.Digest.String())
	require.NoError(t, err)
	for _, want := range []ocispec.Descriptor{d, config.Descriptor} {
		_, err := bundle.ReadBlob(t.Context(), src, want, 1<<10)
		require.NoError(t, err)
	}
	require.Empty(t, origin.got)

	_, err = src.Resolve(t.Context(), digest.FromString("other").String())
	require.Error(t, err)
	require.Len(t, origin.got, 1, "what the site does not have is asked for where it comes from")
}

func TestTheAdapterDirectoryTakesWhatWasCarried(t *testing.T) {
	dir := t.TempDir()
	origin := ask(t, "registry")
	content := `{"mediaType":"` + ocispec.MediaTypeImageManifest + `"}`
	blob := bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte(content))
	repo, err := oci.NewLayout(filepath.Join(dir, state.StoreDir)).Repository("carried")
	require.NoError(t, err)
	require.NoError(t, repo.Push(t.Context(), blob.Descriptor, strings.NewReader(content)))

	r, err := (&Config{}).connect()
	require.NoError(t, err)
	src, err := r.artifactsOf(dir)(origin.host() + "/models/x")
	require.NoError(t, err)
	d, err := src.Resolve(t.Context(), blob.Descriptor.Digest.String())
	require.NoError(t, err)
	f, err := src.Fetch(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.Empty(t, origin.got)

	_, err = src.Resolve(t.Context(), digest.FromString("other").String())
	require.Error(t, err)
	require.Len(t, origin.got, 1)
}
