//go:build e2e

package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// exampleModel is the model of the example, which no registry has.
const exampleModel = "sha256:0d3ef44401b0f31940003d11c4424f47e0e95b033fd2c7aa53ee41e0282f5247"

// modelSite is the example "host" with a host that follows it.
type modelSite struct {
	t           *testing.T
	dir, prefix string
	models      oci.Target
	workload    string // the file
}

func newModelSite(t *testing.T) *modelSite {
	t.Helper()
	s := &modelSite{t: t, dir: t.TempDir(), prefix: registry.Prefix + "/models-" + strings.ToLower(rand.Text()[:8])}
	require.NoError(t, os.CopyFS(s.dir, os.DirFS(filepath.Join("..", "examples", "host"))))
	require.NoError(t, os.Remove(filepath.Join(s.dir, "platform", "system.yaml"))) // its playbook
	s.workload = filepath.Join(s.dir, "workloads", "vision", "workload.yaml")
	s.edit("oci://registry.example/models/eye", "oci://"+s.prefix+"/eye")
	location, err := oci.Parse("oci://" + s.prefix)
	require.NoError(t, err)
	s.models, err = location.Repository("eye", oci.Options{})
	require.NoError(t, err)
	require.Zero(t, program(t, s.dir, "wherry", "keys", "generate").code)
	return s
}

func (s *modelSite) edit(from, to string) {
	s.t.Helper()
	data, err := os.ReadFile(s.workload)
	require.NoError(s.t, err)
	require.Contains(s.t, string(data), from)
	require.NoError(s.t, os.WriteFile(s.workload, []byte(strings.Replace(string(data), from, to, 1)), 0o600))
}

// push puts a model into the registry, as oras does.
func (s *modelSite) push(tag, model string) digest.Digest {
	s.t.Helper()
	put := func(mediaType, text string) ocispec.Descriptor {
		d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromString(text), Size: int64(len(text))}
		require.NoError(s.t, s.models.Push(s.t.Context(), d, bytes.NewReader([]byte(text))))
		return d
	}
	layer := put("application/octet-stream", model)
	layer.Annotations = map[string]string{ocispec.AnnotationTitle: "eye.onnx"}
	manifest, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest, ArtifactType: "application/vnd.example.model",
		Config: put(ocispec.MediaTypeEmptyJSON, "{}"), Layers: []ocispec.Descriptor{layer},
	})
	require.NoError(s.t, err)
	d := put(ocispec.MediaTypeImageManifest, string(manifest))
	require.NoError(s.t, s.models.Tag(s.t.Context(), d, tag))
	return d.Digest
}

func (s *modelSite) publish(code int, more ...string) ran {
	s.t.Helper()
	args := []string{"publish", "platform", "--environment", "dev", "--workload", "vision=workloads/vision", "--to", "oci://" + s.prefix, "--key", "cosign.key"}
	r := program(s.t, s.dir, "wherry", append(args, more...)...)
	require.Equal(s.t, code, r.code, r.stderr)
	return r
}

// once has the host's agent make one pass and returns how the assignment stands.
func (s *modelSite) once(code int) bundle.Item {
	s.t.Helper()
	r := program(s.t, s.dir, "wherry-agent", "once", "--registry", "oci://"+s.prefix, "--environment", "dev", "--cluster-type", "gate",
		"--key", "cosign.pub", "--state-dir", "agent", "--directory-root", "root", "--wait", "30s", "-o", "json")
	require.Equal(s.t, code, r.code, r.stderr)
	var status agent.Status
	require.NoError(s.t, json.Unmarshal([]byte(r.stdout), &status))
	if len(status.Items) == 0 {
		return bundle.Item{}
	}
	return status.Items[0]
}

func (s *modelSite) path(name string) string {
	return filepath.Join(s.dir, "root", "vision-gate", name)
}

// holds fails unless the host's folder is there with that model, and nothing is left beside it.
func (s *modelSite) holds(model string) {
	s.t.Helper()
	data, err := os.ReadFile(s.path("eye.onnx"))
	require.NoError(s.t, err)
	require.Equal(s.t, digest.FromString(model), digest.FromBytes(data))
	config, err := os.ReadFile(s.path("platform-config.sh"))
	require.NoError(s.t, err)
	require.Contains(s.t, string(config), "THRESHOLD=")
	require.FileExists(s.t, s.path("reconciler.yaml"))
	require.Len(s.t, s.entries(), 2)
	left, err := os.ReadDir(filepath.Join(s.dir, "root", ".wherry"))
	require.NoError(s.t, err)
	require.Len(s.t, left, 1)
	require.Equal(s.t, "vision-gate.owned", left[0].Name())
}

func TestAModelReachesAHost(t *testing.T) {
	t.Parallel()
	s := newModelSite(t)
	one, two := strings.Repeat("model one\n", 1<<20), strings.Repeat("model two\n", 1<<20)
	first, second := s.push("1", one), s.push("2", two)

	s.publish(0)
	require.Equal(t, "ArtifactNotFound", s.once(1).Reason)
	s.edit(exampleModel, first.String())
	s.publish(0)
	item := s.once(0)
	require.Equal(t, bundle.Compliant, item.State)
	require.Equal(t, "directory", item.Adapter)
	s.holds(one)

	// Another digest, and no rendered file differs.
	folder, err := os.Stat(s.path("."))
	require.NoError(t, err)
	s.edit(first.String(), second.String())
	require.Contains(t, s.publish(0).stdout, "published")
	next := s.once(0)
	require.Equal(t, item.Content, next.Content)
	require.NotEqual(t, item.Revision, next.Revision)
	s.holds(two)
	replaced, err := os.Stat(s.path("."))
	require.NoError(t, err)
	require.False(t, os.SameFile(folder, replaced), "the folder is replaced as a whole")

	// Another configuration fetches and copies nothing.
	model, err := os.Stat(s.path("eye.onnx"))
	require.NoError(t, err)
	s.edit("environment: dev", "environment: dev\n      labels: {purpose: gate}")
	s.publish(0)
	require.Equal(t, bundle.Compliant, s.once(0).State)
	same, err := os.Stat(s.path("eye.onnx"))
	require.NoError(t, err)
	require.True(t, os.SameFile(model, same))

	require.NoError(t, os.WriteFile(s.path("eye.onnx"), []byte("tampered"), 0o600))
	require.Equal(t, bundle.Compliant, s.once(0).State)
	s.holds(two)

	require.NoError(t, os.WriteFile(s.workload, nil, 0o600))
	s.publish(0, "--allow-empty")
	s.once(0)
	require.Empty(t, s.entries())
}

func (s *modelSite) entries() []os.DirEntry {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "root"))
	require.NoError(s.t, err)
	return entries
}

func TestATagIsNoModelButAPinFindsOne(t *testing.T) {
	t.Parallel()
	s := newModelSite(t)
	s.push("1", "model one")
	s.edit("digest: "+exampleModel, "tag: \"1\"")
	r := s.publish(1)
	require.Contains(t, r.stderr, "workloads/vision/workload.yaml:8: target \"gate\"")
	require.Contains(t, r.stderr, "only by digest (add digest: sha256:…, or wherry.dev/pin: commit to the ClusterType)")

	platform := filepath.Join(s.dir, "platform", "platform.yaml")
	data, err := os.ReadFile(platform)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(platform, bytes.Replace(data, []byte("wherry.dev/site-values: gate"), []byte("wherry.dev/pin: commit\n    wherry.dev/site-values: gate"), 1), 0o600))
	s.publish(0)
	require.Equal(t, bundle.Compliant, s.once(0).State)
	s.holds("model one")

	s.push("1", "model two") // by whoever may write to the registry
	require.Equal(t, bundle.Compliant, s.once(0).State)
	s.holds("model one")
	s.publish(0)
	s.once(0)
	s.holds("model two")
}
