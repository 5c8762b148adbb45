package egress_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/airgap/export"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/copier"
	"github.com/wherry-dev/wherry/publisher/egress"
	"github.com/wherry-dev/wherry/publisher/registrytest"
)

// way is where readers of blobs are sent: from one place to another, of which the last one has them.
type way struct {
	mu    sync.Mutex
	chain []string
	start string   // the registry that sends them there
	sent  []string // what was asked with a login
}

// registry starts a registry whose readers go that way, and returns its host.
func (w *way) registry(t *testing.T) string {
	registry := registrytest.New(t, "memory", "")
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		_, _, login := r.BasicAuth()
		if login {
			w.sent = append(w.sent, r.Host+r.URL.Path)
		}
		hop := 0
		if r.Host != w.start {
			hop = len(w.chain)
		}
		if _, err := fmt.Sscanf(r.URL.Path, "/hop/%d/", &hop); err == nil {
			r.URL.Path = strings.TrimPrefix(r.URL.Path, fmt.Sprintf("/hop/%d", hop))
		} else if !login && w.start != "" {
			rw.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			if !strings.HasPrefix(r.URL.Path, "/v2/images/") { // these are for everybody
				rw.WriteHeader(http.StatusUnauthorized)
				return
			}
		}
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") && hop < len(w.chain) {
			http.Redirect(rw, r, fmt.Sprintf("%s/hop/%d%s", w.chain[hop], hop+1, r.URL.Path), http.StatusTemporaryRedirect)
			return
		}
		registry.ServeHTTP(rw, r)
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// Releases name registries that nobody chose, and answers lead on from there. An export reaches those that it was told of, and public
// ones; a copy reaches its two alone, whatever the package names. A login goes to the registry that it is for.
func TestExportsAndCopiesStayWhereTheyMayGo(t *testing.T) {
	w := new(way)
	from, images, to := w.registry(t), w.registry(t), w.registry(t)
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	image := pushImage(t, images)
	stream := bundle.Stream{Platform: "plant", Environment: "prod", ClusterType: "drone"}
	list, sum, err := bundle.MarshalArtifacts(bundle.MergeArtifacts([]bundle.Artifact{image}))
	require.NoError(t, err)
	draft := agenttest.New(stream, 1, now, map[string]string{"web-main/a.yaml": "x", bundle.ArtifactsPath: string(list)}, key)
	draft.ChangeRelease = func(r *bundle.Release) { r.Artifacts = sum }
	location := oci.Location{Host: from, Prefix: "edge"}
	repo, err := location.Repository(stream.Repository(), oci.Options{})
	require.NoError(t, err)
	desc, err := draft.Publish(t.Context(), repo)
	require.NoError(t, err)
	require.NoError(t, repo.Tag(t.Context(), desc, draft.Release.Tag()))

	near := []string{"http://127.0.0.2:80", "https://[::1]:6443", "http://169.254.169.254", "http://[::ffff:127.0.0.2]", "http://0.0.0.0:1"}
	private := []string{"http://10.1.2.3", "https://192.168.0.1", "http://[fd00::1]", "http://100.64.0.1"}
	random := rand.New(rand.NewPCG(33, 2))
	for i := range 60 {
		copying := i%2 == 1
		start, allowed, forbidden := images, []string{from, images}, slices.Concat(near, private)
		if copying { // a registry that a person names may lead to private places
			start, allowed, forbidden = from, []string{from}, append(slices.Clone(near), "http://"+images, "http://"+to)
		}
		chain, stops := []string{}, false
		for range random.IntN(4) {
			at := "http://" + allowed[random.IntN(len(allowed))]
			if random.IntN(3) == 0 {
				at, stops = forbidden[random.IntN(len(forbidden))], true
			}
			chain = append(chain, at)
		}
		w.mu.Lock()
		w.chain, w.start, w.sent = append(chain, "http://"+start), start, nil
		w.mu.Unlock()
		var mu sync.Mutex
		var dialed []string
		access := func(own ...string) *egress.Access {
			a := egress.New(own...)
			a.Connecting(func(address string) error {
				mu.Lock()
				defer mu.Unlock()
				dialed = append(dialed, address)
				return nil
			})
			return a
		}
		usual := oci.Options{Credential: auth.CredentialFunc(func(_ context.Context, _ string) (auth.Credential, error) {
			return auth.Credential{Username: "robot", Password: "pa55"}, nil
		})}
		named := func(host string) oci.Options {
			a := access("oci://" + host)
			a.AllowPrivate()
			o, err := a.Registries(usual)
			require.NoError(t, err)
			return o
		}
		mayDial := []string{from, to}
		if copying {
			_, err = copier.Environment(t.Context(), location, "prod", oci.Location{Host: to, Prefix: fmt.Sprintf("copy%d", i)}, copier.Options{From: named(from), To: named(to)})
		} else {
			mayDial = []string{from, images}
			artifacts := access("oci://" + from)
			artifacts.Allow(images)
			err = exported(t, export.Request{
				From: location, Environment: "prod", ImagePlatforms: []string{"linux/arm64"}, Now: now, Registry: named(from),
				Artifact: func(repository string) (oci.Target, error) { return artifacts.Repository(repository, usual) },
			})
		}
		require.Equal(t, stops, err != nil, "%v: %v", chain, err)
		if stops {
			require.ErrorAs(t, err, new(*egress.RefusedError), "%v", chain)
		}
		require.NotEmpty(t, dialed)
		for _, address := range dialed {
			require.Contains(t, mayDial, address, "%v", chain)
		}
		for _, asked := range w.sent {
			require.True(t, strings.HasPrefix(asked, from+"/") || copying && strings.HasPrefix(asked, to+"/v2/"), "%v: a login was sent to %s", chain, asked)
		}
	}
}

func exported(t *testing.T, r export.Request) error {
	plan, err := export.Choose(t.Context(), r)
	if err != nil {
		return err
	}
	_, err = plan.WriteFile(t.Context(), filepath.Join(t.TempDir(), "site.tar"), export.FileOptions{})
	return err
}

// pushImage pushes an image with a layer.
func pushImage(t *testing.T, host string) bundle.Artifact {
	repo, err := oci.Location{Host: host}.Repository("images/web", oci.Options{})
	require.NoError(t, err)
	push := func(b bundle.Blob) ocispec.Descriptor {
		require.NoError(t, repo.Push(t.Context(), b.Descriptor, strings.NewReader(string(b.Data))))
		return b.Descriptor
	}
	config, layer := push(bundle.NewBlob(ocispec.MediaTypeImageConfig, []byte("{}"))), push(bundle.NewBlob(ocispec.MediaTypeImageLayer, []byte("layer")))
	d := push(bundle.NewBlob(ocispec.MediaTypeImageManifest, fmt.Appendf(nil,
		`{"schemaVersion":2,"mediaType":%q,"config":{"mediaType":%q,"digest":%q,"size":%d},"layers":[{"mediaType":%q,"digest":%q,"size":%d}]}`,
		ocispec.MediaTypeImageManifest, config.MediaType, config.Digest, config.Size, layer.MediaType, layer.Digest, layer.Size)))
	reference := host + "/images/web"
	return bundle.Artifact{Type: bundle.ArtifactImage, Name: reference, Reference: reference + "@" + d.Digest.String(), Digest: d.Digest.String(), UsedBy: []string{"web-main"}}
}
