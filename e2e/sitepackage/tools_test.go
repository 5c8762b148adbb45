//go:build e2e

package sitepackage

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/content/memory"
	"oras.land/oras-go/v2/content/oci"
	orasremote "oras.land/oras-go/v2/registry/remote"

	"github.com/wherry-dev/wherry/e2e/harness"
)

// programTime bounds one run of a program.
const programTime = 5 * time.Minute

// trip is a published environment whose release runs one image, in a folder of its own.
type trip struct {
	t   *testing.T
	dir string
	// home is the registry of the image, images its HOST:PORT, and index the image there.
	home   *httptest.Server
	images string
	index  v1.ImageIndex
	// bundle is the ref name of the newest release, and image that of the image.
	bundle, image string
}

// ran is what a program left behind.
type ran struct {
	code           int
	stdout, stderr string
}

// try runs a program in the trip's folder with an empty home.
func (s *trip) try(path string, args ...string) ran {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, &stdout, &stderr
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "WHERRY_") && !strings.HasPrefix(v, "HOME=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "COSIGN_PASSWORD=secret", "HOME="+filepath.Join(s.dir, "home"), "HTTPS_PROXY=http://127.0.0.1:1",
		"LD_LIBRARY_PATH="+filepath.Join(filepath.Dir(path), "lib"))
	err := cmd.Run()
	require.NotNil(s.t, cmd.ProcessState, "%v", err)
	r := ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	s.t.Logf("%s %s\nexit %d\n%s", filepath.Base(path), strings.Join(args, " "), r.code, r.stderr)
	return r
}

func (s *trip) wherry(args ...string) ran {
	s.t.Helper()
	return s.try(s.program("wherry"), args...)
}

// program is the path of wherry or wherry-agent.
func (s *trip) program(name string) string {
	s.t.Helper()
	programs := os.Getenv(harness.ProgramsEnv)
	require.NotEmpty(s.t, programs, `%s is not set: run "make e2e"`, harness.ProgramsEnv)
	return filepath.Join(programs, name)
}

// tool runs a program that has to succeed, and returns its standard output.
func (s *trip) tool(name string, args ...string) string {
	s.t.Helper()
	path, err := harness.Tool(name)
	if err != nil {
		path, err = exec.LookPath(name)
		require.NoError(s.t, err, `install %s, or run "make e2e-tools" on Debian`, name)
	}
	r := s.try(path, args...)
	require.Zero(s.t, r.code, r.stderr)
	return r.stdout
}

func (s *trip) path(elements ...string) string {
	return filepath.Join(append([]string{s.dir}, elements...)...)
}

// serveRegistry serves the registry of go-containerregistry.
func serveRegistry(t *testing.T) string {
	server := startRegistry(t)
	return server.Listener.Addr().String()
}

func startRegistry(t *testing.T) *httptest.Server {
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return server
}

// newTrip publishes a release that runs an image of two platforms, and exports it for these.
func newTrip(t *testing.T, platforms ...string) *trip {
	t.Helper()
	s := &trip{t: t, dir: t.TempDir(), home: startRegistry(t), index: twoPlatforms(t)}
	s.images = s.home.Listener.Addr().String()
	digest, err := s.index.Digest()
	require.NoError(t, err)
	ref, err := name.ParseReference(s.images + "/shop/app:1.0")
	require.NoError(t, err)
	require.NoError(t, remote.WriteIndex(ref, s.index))
	s.bundle, s.image = "bundles/dev/edge/latest", s.images+"/shop/app/1.0"

	require.NoError(t, os.Mkdir(s.path("home"), 0o755))
	require.NoError(t, os.Mkdir(s.path("platform"), 0o755))
	require.NoError(t, os.WriteFile(s.path("platform", "all.yaml"), fmt.Appendf(nil, platform, ref.Name()+"@"+digest.String()), 0o644))
	for _, args := range [][]string{
		{"keys", "generate", "-o", "cosign"},
		{"publish", "platform", "--environment", "dev", "--to", "oci-layout:out", "--key", "cosign.key"},
		append([]string{"airgap", "export", "--environment", "dev", "--from", "oci-layout:out", "-o", "site.tar", "--allow-private", "127.0.0.1"}, each("--image-platform", platforms)...),
	} {
		r := s.wherry(args...)
		require.Zero(t, r.code, r.stderr)
	}
	return s
}

func each(flag string, values []string) (args []string) {
	for _, v := range values {
		args = append(args, flag, v)
	}
	return args
}

func twoPlatforms(t *testing.T) v1.ImageIndex {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for _, architecture := range []string{"arm64", "amd64"} {
		image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
		for range 3 {
			layer, err := random.Layer(64<<10, types.OCIUncompressedLayer)
			require.NoError(t, err)
			image, err = mutate.AppendLayers(image, layer)
			require.NoError(t, err)
		}
		config, err := image.ConfigFile()
		require.NoError(t, err)
		config = config.DeepCopy()
		config.OS, config.Architecture = "linux", architecture
		image, err = mutate.ConfigFile(image, config)
		require.NoError(t, err)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
		})
	}
	return index
}

const platform = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: edge}
spec: {reconciler: pod, namespaceService: namespace}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
spec: {deploymentTargetSelector: {labelSelector: {}}, clusterTypeSelector: {labelSelector: {}}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: namespace}
spec: {type: namespace, manifests: ["{apiVersion: v1, kind: Namespace, metadata: {name: {{ .Namespace }}}}\n"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: pod}
spec:
  type: reconciler
  manifests:
    - |
      apiVersion: v1
      kind: Pod
      metadata: {name: {{ .DeploymentTargetName }}, namespace: {{ .Namespace }}}
      spec:
        containers:
          - {name: c, image: "%s"}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: web}
spec:
  deploymentTargets:
    - {name: live, environment: dev, manifests: {ref: x}}
`

// platformOf returns the image of one platform of an index.
func platformOf(t *testing.T, index v1.ImageIndex, architecture string) v1.Image {
	t.Helper()
	m, err := index.IndexManifest()
	require.NoError(t, err)
	i := slices.IndexFunc(m.Manifests, func(d v1.Descriptor) bool { return d.Platform.Architecture == architecture })
	image, err := index.Image(m.Manifests[i].Digest)
	require.NoError(t, err)
	return image
}

// readAll compares all blobs of an image with their digests.
func readAll(t *testing.T, image v1.Image) {
	t.Helper()
	layers, err := image.Layers()
	require.NoError(t, err)
	for _, l := range layers {
		body, err := l.Compressed()
		require.NoError(t, err)
		got, _, err := v1.SHA256(body)
		require.NoError(t, err)
		require.NoError(t, body.Close())
		want, err := l.Digest()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	config, err := image.RawConfigFile()
	require.NoError(t, err)
	got, _, err := v1.SHA256(bytes.NewReader(config))
	require.NoError(t, err)
	want, err := image.ConfigName()
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// requireSame compares all of an image with the one that was pushed.
func (s *trip) requireSame(image v1.Image) {
	s.t.Helper()
	readAll(s.t, image)
	want, err := platformOf(s.t, s.index, "arm64").Digest()
	require.NoError(s.t, err)
	got, err := image.Digest()
	require.NoError(s.t, err)
	require.Equal(s.t, want, got)
}

// unpack unpacks the package as a person does.
func (s *trip) unpack() string {
	s.t.Helper()
	require.NoError(s.t, os.Mkdir(s.path("unpacked"), 0o755))
	s.tool("tar", "-C", "unpacked", "-xf", "site.tar")
	return s.path("unpacked")
}

func TestOrasReadsASitePackage(t *testing.T) {
	s := newTrip(t, "linux/arm64")
	fromTar, err := oci.NewFromTar(t.Context(), s.path("site.tar"))
	require.NoError(t, err)
	fromFolder, err := oci.NewFromFS(t.Context(), os.DirFS(s.unpack()))
	require.NoError(t, err)
	for name, store := range map[string]*oci.ReadOnlyStore{"the file": fromTar, "the folder": fromFolder} {
		t.Run(name, func(t *testing.T) {
			var tags []string
			require.NoError(t, store.Tags(t.Context(), "", func(page []string) error { tags = append(tags, page...); return nil }))
			require.Subset(t, tags, []string{"site", s.bundle, s.image})
			to := memory.New()
			for _, tag := range tags {
				if strings.HasPrefix(tag, s.images) {
					continue // an index without all of its manifests
				}
				_, err := oras.Copy(t.Context(), store, tag, to, tag, oras.CopyOptions{})
				require.NoError(t, err, tag)
			}
			_, list, err := oras.FetchBytes(t.Context(), to, "site", oras.FetchBytesOptions{})
			require.NoError(t, err)
			var manifest ocispec.Manifest
			require.NoError(t, json.Unmarshal(list, &manifest))
			contents, err := content.FetchAll(t.Context(), to, manifest.Layers[0])
			require.NoError(t, err)
			require.Contains(t, string(contents), `"clusterType":"edge"`)

			// Of the image, the platform that travels.
			resolve := oras.ResolveOptions{TargetPlatform: &ocispec.Platform{OS: "linux", Architecture: "arm64"}}
			image, err := oras.Resolve(t.Context(), store, s.image, resolve)
			require.NoError(t, err)
			require.NoError(t, oras.CopyGraph(t.Context(), store, to, image, oras.CopyGraphOptions{}))
		})
	}
}

func TestGoContainerRegistryReadsASitePackage(t *testing.T) {
	s := newTrip(t, "linux/arm64")
	index, err := layout.ImageIndexFromPath(s.unpack())
	require.NoError(t, err)
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.NotEmpty(t, manifest.Manifests)
	found := false
	for _, d := range manifest.Manifests {
		if d.Annotations["io.containerd.image.name"] == s.images+"/shop/app:1.0" {
			found = true
			image, err := index.ImageIndex(d.Digest)
			require.NoError(t, err)
			s.requireSame(platformOf(t, image, "arm64"))
		} else if d.MediaType.IsImage() {
			artifact, err := index.Image(d.Digest)
			require.NoError(t, err)
			readAll(t, artifact)
		}
	}
	require.True(t, found, "the image has the name by which containerd imports it")
}

func TestSkopeoAndCraneReadASitePackage(t *testing.T) {
	s := newTrip(t, "linux/arm64")
	skopeo := func(args ...string) string {
		return s.tool("skopeo", append([]string{"--insecure-policy", "--override-os", "linux", "--override-arch", "arm64"}, args...)...)
	}
	raw := skopeo("inspect", "--raw", "oci-archive:site.tar:"+s.bundle)
	require.Contains(t, raw, `"artifactType"`)
	skopeo("copy", "oci-archive:site.tar:"+s.bundle, "dir:bundle")
	require.NoError(t, compareFile(s.path("bundle", "manifest.json"), raw))
	skopeo("copy", "--preserve-digests", "oci-archive:site.tar:"+s.image, "oci:image:1.0")
	image, err := layout.ImageIndexFromPath(s.path("image"))
	require.NoError(t, err)
	s.requireSame(platformOf(t, withPlatform(t, image), "arm64"))

	// To a registry, from where crane takes it.
	to := serveRegistry(t)
	skopeo("copy", "--preserve-digests", "--dest-tls-verify=false", "oci-archive:site.tar:"+s.image, "docker://"+to+"/shop/app:1.0")
	s.tool("crane", "validate", "--remote", to+"/shop/app:1.0")
	want, err := platformOf(t, s.index, "arm64").Digest()
	require.NoError(t, err)
	require.Equal(t, want.String(), strings.TrimSpace(s.tool("crane", "digest", to+"/shop/app:1.0")))
}

// TestCranePushesASitePackage pushes all of a package that has all platforms of its images.
func TestCranePushesASitePackage(t *testing.T) {
	s := newTrip(t, "linux/arm64", "linux/amd64")
	to := serveRegistry(t)
	s.unpack()
	s.tool("crane", "push", "--index", "unpacked", to+"/site:latest")
	var index ocispec.Index
	require.NoError(t, json.Unmarshal([]byte(s.tool("crane", "manifest", to+"/site:latest")), &index))
	i := slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.Annotations[ocispec.AnnotationRefName] == s.image })
	require.GreaterOrEqual(t, i, 0)
	s.tool("crane", "validate", "--remote", to+"/site@"+index.Manifests[i].Digest.String())
}

func compareFile(path, want string) error {
	data, err := os.ReadFile(path)
	if err == nil && string(data) != want {
		err = fmt.Errorf("%s is %q instead of %q", path, data, want)
	}
	return err
}

// withPlatform gives the one image of an index, as skopeo has written it, the platform of its config.
func withPlatform(t *testing.T, index v1.ImageIndex) v1.ImageIndex {
	t.Helper()
	m, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, m.Manifests, 1)
	image, err := index.Image(m.Manifests[0].Digest)
	require.NoError(t, err)
	config, err := image.ConfigFile()
	require.NoError(t, err)
	return mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: config.Platform()}})
}

// TestCosignVerifiesASitePackage copies a bundle with its signature to registries, by tools that know nothing of wherry.
func TestCosignVerifiesASitePackage(t *testing.T) {
	s := newTrip(t, "linux/arm64")
	store, err := oci.NewFromTar(t.Context(), s.path("site.tar"))
	require.NoError(t, err)
	bundle, err := store.Resolve(t.Context(), s.bundle)
	require.NoError(t, err)
	signature := "sha256-" + bundle.Digest.Encoded() + ".sig"
	signed := "bundles/dev/edge/" + signature
	s.wherry("keys", "generate", "-o", "mallory")
	for name, copyTo := range map[string]func(repository string){
		"oras": func(repository string) {
			repo, err := orasremote.NewRepository(repository)
			require.NoError(t, err)
			repo.PlainHTTP = true
			for from, to := range map[string]string{s.bundle: "latest", signed: signature} {
				_, err = oras.Copy(t.Context(), store, from, repo, to, oras.CopyOptions{})
				require.NoError(t, err)
			}
		},
		"skopeo": func(repository string) {
			for from, to := range map[string]string{s.bundle: "latest", signed: signature} {
				s.tool("skopeo", "--insecure-policy", "copy", "--dest-tls-verify=false", "oci-archive:site.tar:"+from, "docker://"+repository+":"+to)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			repository := serveRegistry(t) + "/edge"
			copyTo(repository)
			cosign, err := harness.Tool("cosign")
			require.NoError(t, err)
			verify := func(key string) ran {
				return s.try(cosign, "verify", "--key", key, "--insecure-ignore-tlog=true", "--allow-http-registry", repository+":latest")
			}
			verified := verify("cosign.pub")
			require.Zero(t, verified.code, verified.stderr)
			require.Contains(t, verified.stdout, bundle.Digest.String())
			require.NotZero(t, verify("mallory.pub").code)
		})
	}
}

// TestASitePackageGoesToARegistry copies a package of one platform to registries of others.
func TestASitePackageGoesToARegistry(t *testing.T) {
	s := newTrip(t, "linux/arm64")
	app := strings.ReplaceAll(s.images, ":", "_") + "/shop/app"
	copyTo := func(host string) ran {
		return s.wherry("bundle", "copy", "oci-archive:site.tar", "oci://"+host+"/edge", "--environment", "dev", "--key", "cosign.pub")
	}
	start := func(t *testing.T) string {
		r, err := harness.StartDistribution(t.Context(), "")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Stop()) })
		return r.Prefix
	}
	t.Run("distribution that takes indexes without all of their manifests", func(t *testing.T) {
		t.Setenv("REGISTRY_VALIDATION_MANIFESTS_INDEXES_PLATFORMS", "none")
		host := start(t)
		copied := copyTo(host)
		require.Zero(t, copied.code, copied.stderr)
		require.Contains(t, copied.stdout, app)
		s.tool("crane", "pull", "--platform", "linux/arm64", "--format", "oci", host+"/edge/"+app+":1.0", "pulled")
		pulled, err := layout.ImageIndexFromPath(s.path("pulled"))
		require.NoError(t, err)
		s.requireSame(platformOf(t, withPlatform(t, pulled), "arm64"))
		verified := s.wherry("verify", "oci://"+host+"/edge/bundles/dev/edge", "--key", "cosign.pub")
		require.Zero(t, verified.code, verified.stderr)
		again := copyTo(host)
		require.Contains(t, again.stderr, "0 copied, 0 updated, 3 unchanged")
	})
	for name, start := range map[string]func(*testing.T) string{"distribution": start, "go-containerregistry": serveRegistry} {
		t.Run(name, func(t *testing.T) {
			host := start(t)
			refused := copyTo(host)
			require.Equal(t, 3, refused.code)
			require.Contains(t, refused.stderr, "the registry refuses the index of")
			require.Contains(t, refused.stderr, "validation.manifests.indexes.platforms: none")
			require.NotZero(t, s.wherry("verify", "oci://"+host+"/edge/bundles/dev/edge", "--key", "cosign.pub").code, "no release has its tags")
			bare := s.wherry("bundle", "copy", "oci-archive:site.tar", "oci://"+host+"/edge", "--environment", "dev", "--without-artifacts")
			require.Zero(t, bare.code, bare.stderr)
		})
	}
}
