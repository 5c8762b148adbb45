//go:build e2e

package e2e

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	ggcrname "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// pushRandom pushes an image of linux/amd64, and returns its reference by digest.
func (s *site) pushRandom(name string) string {
	s.t.Helper()
	layer, err := random.Layer(1000, types.OCILayer)
	require.NoError(s.t, err)
	image, err := mutate.AppendLayers(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer)
	require.NoError(s.t, err)
	config, err := image.ConfigFile()
	require.NoError(s.t, err)
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(s.t, err)
	ref, err := ggcrname.ParseReference(s.prefix+"/"+name+":1", ggcrname.Insecure)
	require.NoError(s.t, err)
	require.NoError(s.t, remote.Write(ref, image, remote.WithContext(s.t.Context())))
	hash, err := image.Digest()
	require.NoError(s.t, err)
	return s.prefix + "/" + name + "@" + hash.String()
}

// signedImages pushes the two images that the platform runs. cosign has signed one in its own format, with an attestation and an SBOM, and
// one in a Sigstore bundle: where there is a bundle, it looks at nothing else.
func (s *site) signedImages() (own, bundled string) {
	s.t.Helper()
	own, bundled = s.pushRandom("web"), s.pushRandom("batch")
	s.generateKey("supplier")
	require.NoError(s.t, os.WriteFile(s.path("sbom.json"), []byte(`{"spdxVersion":"SPDX-2.3"}`), 0o600))
	trusted, err := os.ReadFile("../publisher/verify/trusted_root.json") // which cosign wants for a bundle, and does not use for a key
	require.NoError(s.t, err)
	require.NoError(s.t, os.WriteFile(s.path("root.json"), trusted, 0o600))
	sign := []string{"--yes", "--tlog-upload=false", "--key", "supplier.key", "--allow-http-registry"}
	for _, args := range [][]string{
		append([]string{"sign"}, append(sign, own)...),
		append([]string{"attest", "--predicate", "sbom.json", "--type", "spdxjson"}, append(sign, own)...),
		{"attach", "sbom", "--sbom", "sbom.json", "--allow-http-registry", own},
		append([]string{"sign", "--new-bundle-format"}, append(sign, bundled)...),
	} {
		r := s.cosign(args...)
		require.Zero(s.t, r.code, "cosign %s: %s", args[0], r.stderr)
	}
	s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/web:1", own)
	s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/batch:1", bundled)
	s.edit("platform/cluster-types.yaml", "  name: edge\n", "  name: edge\n  annotations: {wherry.dev/carry: images, wherry.dev/platforms: linux/amd64}\n")
	return own, bundled
}

// requireAdmitted asks cosign, as an admission check does, whether the images in a place are signed, attested and have an SBOM.
func (s *site) requireAdmitted(own, bundled string) {
	s.t.Helper()
	verify := []string{"--key", "supplier.pub", "--insecure-ignore-tlog=true", "--allow-http-registry"}
	for _, args := range [][]string{
		append([]string{"verify"}, append(verify, own)...),
		append([]string{"verify-attestation", "--type", "spdxjson"}, append(verify, own)...),
		{"download", "sbom", "--allow-http-registry", own},
		append([]string{"verify", "--trusted-root", "root.json"}, append(verify, bundled)...),
	} {
		r := s.cosign(args...)
		require.Zero(s.t, r.code, "cosign %s: %s", args[0], r.stderr)
	}
	require.NotZero(s.t, s.cosignVerify("cosign.pub", own).code, "another key")
}

// A site checks the signatures of the images that it runs. They come to it with the images, by each of the ways that images come.
func TestSignaturesOfImagesReachTheSite(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	own, bundled := s.signedImages()
	s.requireAdmitted(own, bundled)
	s.publish()
	// at returns the images where they are copied to.
	at := func(prefix string) (string, string) {
		return prefix + "/" + strings.Replace(own, ":", "_", 1), prefix + "/" + strings.Replace(bundled, ":", "_", 1)
	}

	export := []string{"airgap", "export", "--environment", s.environment, "--from", "oci://" + s.prefix, "--allow-private", "127.0.0.1", "--cluster-type", clusterType}
	r := s.wherry(append(export, "-o", "site.tar", "--format", "json")...)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stderr, "with 4 referrers (")
	var contents struct {
		Artifacts []struct{ Referrers, ReferrerBytes int }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &contents))
	require.Len(t, contents.Artifacts, 2)
	require.Equal(t, 1, contents.Artifacts[0].Referrers, "the Sigstore bundle of batch")
	require.Equal(t, 3, contents.Artifacts[1].Referrers)
	require.Positive(t, contents.Artifacts[0].ReferrerBytes)
	again := s.wherry(append(export, "-o", "again.tar")...)
	require.Zero(t, again.code, again.stderr)
	first, err := os.ReadFile(s.path("site.tar"))
	require.NoError(t, err)
	second, err := os.ReadFile(s.path("again.tar"))
	require.NoError(t, err)
	require.True(t, string(first) == string(second), "the same input, the same bytes")

	// A registry of the site.
	r = s.wherry("bundle", "copy", "oci-archive:site.tar", "oci://"+s.prefix+"-site", "--environment", s.environment, "--key", "cosign.pub")
	require.Zero(t, r.code, r.stderr)
	s.requireAdmitted(at(s.prefix + "-site"))
	r = s.wherry("bundle", "copy", "oci-archive:site.tar", "oci://"+s.prefix+"-bare", "--environment", s.environment, "--key", "cosign.pub", "--no-referrers")
	require.Zero(t, r.code, r.stderr)
	bare, _ := at(s.prefix + "-bare")
	refused := s.cosignVerify("supplier.pub", bare)
	require.NotZero(t, refused.code)
	require.Contains(t, refused.stderr, "no signatures found")

	// An agent that imports the package, and one that carries the image over a link, each serve its site.
	for _, way := range []string{"imports", "carries"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		address := l.Addr().String()
		require.NoError(t, l.Close())
		more := []string{"--environment", s.environment, "--serve", address, "--serve-plain-http", "--carry-budget", "1GiB", "--adapter", "directory", "--directory-root", s.path(way + "-host")}
		registry := "oci://" + s.prefix
		if way == "imports" {
			registry = "oci-layout:" + s.path("nowhere")
		}
		f := follow(t, place{registry: registry, clusterType: clusterType, key: s.path("cosign.pub"), state: s.path(way), more: more})
		if way == "imports" {
			r := s.program("wherry-agent", "import", "site.tar", "--state-dir", s.path(way))
			require.Zero(t, r.code, r.stderr)
		} else {
			f.syncUntilDone()
		}
		s.requireAdmitted(at(address))
	}
}

// A release that is signed in cosign 3's form alone is known to wherry verify, which says that agents refuse it.
func TestWherryVerifiesASigstoreBundle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	offered := s.offerUnsigned()
	signed := s.cosign("sign", "--yes", "--tlog-upload=false", "--new-bundle-format", "--key", "cosign.key", "--allow-http-registry", s.bundle(offered))
	require.Zero(t, signed.code, signed.stderr)
	r := s.wherry("verify", "oci://"+s.bundle(offered), "--key", "cosign.pub")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "Sigstore bundle, which agents refuse")
	s.generateKey("mallory")
	require.Equal(t, 4, s.wherry("verify", "oci://"+s.bundle(offered), "--key", "mallory.pub").code)
	require.Contains(t, s.once(4).stderr, string(bundle.Unsigned))
}
