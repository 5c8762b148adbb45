package export

import (
	"archive/tar"
	"bytes"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/airgap"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/registrytest"
)

// world is a registry with the bundles of an environment, below edge, and the artifacts that they need.
type world struct {
	t    *testing.T
	host string
	from oci.Location
	key  crypto.Signer
	now  time.Time
	cut  string // the digest of a blob whose transfer breaks
}

func newWorld(t *testing.T) *world {
	w := &world{t: t}
	registry := registrytest.New(t, "memory", "")
	server := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		if w.cut != "" && strings.HasSuffix(r.URL.Path, w.cut) && r.Method == http.MethodGet {
			answer.Header().Set("Content-Length", "20000")
			_, _ = answer.Write(make([]byte, 10_000))
			panic(http.ErrAbortHandler)
		}
		registry.ServeHTTP(answer, r)
	}))
	t.Cleanup(server.Close)
	w.host = strings.TrimPrefix(server.URL, "http://")
	w.from = oci.Location{Host: w.host, Prefix: "edge"}
	w.key = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	w.now = time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	return w
}

func (w *world) target(at oci.Location, name string) oci.Target {
	repo, err := at.Repository(name, oci.Options{})
	require.NoError(w.t, err)
	return repo
}

// noise returns bytes that depend on the name alone.
func noise(name string, size int) []byte {
	var seed [32]byte
	copy(seed[:], name)
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(data)
	return data
}

func (w *world) push(repo oci.Target, mediaType string, data []byte) ocispec.Descriptor {
	b := bundle.NewBlob(mediaType, data)
	if there, err := repo.Exists(w.t.Context(), b.Descriptor); err == nil && there {
		return b.Descriptor
	}
	require.NoError(w.t, repo.Push(w.t.Context(), b.Descriptor, bytes.NewReader(data)))
	return b.Descriptor
}

func (w *world) pushJSON(repo oci.Target, mediaType string, v any) ocispec.Descriptor {
	data, err := json.Marshal(v)
	require.NoError(w.t, err)
	return w.push(repo, mediaType, data)
}

// image pushes an index for linux/amd64, linux/arm64 and windows/amd64, each with the named layers, and returns the reference.
func (w *world) image(name, tag string, layers ...string) bundle.Artifact {
	repo := w.target(oci.Location{Host: w.host}, name)
	var manifests []ocispec.Descriptor
	for _, p := range []ocispec.Platform{{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"}, {OS: "windows", Architecture: "amd64"}} {
		m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest}
		m.Config = w.push(repo, ocispec.MediaTypeImageConfig, []byte(`{"of":"`+name+tag+p.OS+p.Architecture+`"}`))
		for _, layer := range layers {
			m.Layers = append(m.Layers, w.push(repo, ocispec.MediaTypeImageLayer, noise(layer+p.OS+p.Architecture, 20_000)))
		}
		d := w.pushJSON(repo, ocispec.MediaTypeImageManifest, m)
		d.Platform = &p
		manifests = append(manifests, d)
	}
	d := w.pushJSON(repo, ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: manifests})
	require.NoError(w.t, repo.Tag(w.t.Context(), d, tag))
	return bundle.Artifact{Type: bundle.ArtifactImage, Name: w.host + "/" + name, Reference: w.host + "/" + name + ":" + tag, Digest: d.Digest.String(), UsedBy: []string{"web-main"}}
}

// release publishes release n of a cluster type, which needs the artifacts.
func (w *world) release(ct string, n int64, artifacts ...bundle.Artifact) digest.Digest {
	return w.releaseAt(w.from, ct, n, func(*agenttest.Draft) {}, artifacts...)
}

func (w *world) releaseAt(at oci.Location, ct string, n int64, change func(*agenttest.Draft), artifacts ...bundle.Artifact) digest.Digest {
	stream := bundle.Stream{Platform: "plant", Environment: "prod", ClusterType: ct}
	files := map[string]string{"web-main/a.yaml": ct}
	list, sum, err := bundle.MarshalArtifacts(bundle.MergeArtifacts(artifacts))
	require.NoError(w.t, err)
	if len(artifacts) > 0 {
		files[bundle.ArtifactsPath] = string(list)
	}
	d := agenttest.New(stream, n, w.now.Add(-time.Hour), files, w.key)
	d.ChangeRelease = func(r *bundle.Release) { r.Artifacts = sum }
	change(&d)
	repo := w.target(at, stream.Repository())
	desc, err := d.Publish(w.t.Context(), repo)
	require.NoError(w.t, err)
	require.NoError(w.t, repo.Tag(w.t.Context(), desc, d.Release.Tag()))
	return desc.Digest
}

// record publishes the environment's record.
func (w *world) record(types map[string]digest.Digest) {
	repo := w.target(w.from, bundle.EnvironmentRepository("prod"))
	data, err := bundle.EnvironmentRecord{Schema: 1, Platform: "plant", Environment: "prod", Sequence: 1, IssuedAt: w.now, ClusterTypes: types}.Marshal()
	require.NoError(w.t, err)
	config := w.push(repo, bundle.MediaTypeEnvironment, data)
	d := w.pushJSON(repo, ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: bundle.MediaTypeEnvironment, Config: config,
	})
	require.NoError(w.t, agenttest.Sign(w.t.Context(), repo, d, w.key))
	require.NoError(w.t, repo.Tag(w.t.Context(), d, bundle.LatestTag))
}

func (w *world) request() Request {
	return Request{From: w.from, Environment: "prod", ImagePlatforms: []string{"linux/arm64"}, Now: w.now}
}

func (w *world) choose(r Request) *Plan {
	w.t.Helper()
	p, err := Choose(w.t.Context(), r)
	require.NoError(w.t, err)
	return p
}

func (w *world) bytes(p *Plan) []byte {
	w.t.Helper()
	var file bytes.Buffer
	require.NoError(w.t, p.Write(w.t.Context(), &file))
	require.EqualValues(w.t, p.Bytes, file.Len())
	return file.Bytes()
}

func reader(t *testing.T, data []byte) *airgap.Reader {
	t.Helper()
	p, err := airgap.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	return p
}

// digests returns the blobs of a package, in their order.
func digests(t *testing.T, data []byte) (all []digest.Digest) {
	t.Helper()
	p := reader(t, data)
	for {
		e, err := p.Next()
		if err != nil {
			return all
		}
		all = append(all, e.Digest)
	}
}

func names(p *airgap.Reader) (all []string) {
	for _, d := range p.Index().Manifests {
		all = append(all, d.Annotations[ocispec.AnnotationRefName])
	}
	return all
}

func layer(name string) digest.Digest { return digest.FromBytes(noise(name, 20_000)) }

func entries(t *testing.T, dir string) (all []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range list {
		all = append(all, e.Name())
	}
	return all
}

// unpack unpacks a package as tar does.
func unpack(t *testing.T, data []byte, dir string) {
	t.Helper()
	r := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := r.Next()
		if err != nil {
			return
		}
		path := filepath.Join(dir, h.Name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		content, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, content, 0o644))
	}
}
