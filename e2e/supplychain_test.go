//go:build e2e

package e2e

import (
	"encoding/json"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
)

// signedImage pushes an image, which cosign signs in both of its forms, attests and gives an SBOM. The platform runs it. It returns
// HOST/REPOSITORY and the digest.
func (s *site) signedImage() (repository, digest string) {
	s.t.Helper()
	image, err := random.Image(1000, 2)
	require.NoError(s.t, err)
	config, err := image.ConfigFile()
	require.NoError(s.t, err)
	config.OS, config.Architecture = "linux", "amd64"
	image, err = mutate.ConfigFile(image, config)
	require.NoError(s.t, err)
	repository = s.prefix + "/app"
	ref, err := name.ParseReference(repository+":1", name.Insecure)
	require.NoError(s.t, err)
	require.NoError(s.t, remote.Write(ref, image, remote.WithContext(s.t.Context())))
	hash, err := image.Digest()
	require.NoError(s.t, err)
	at := repository + "@" + hash.String()

	s.generateKey("supplier")
	require.NoError(s.t, os.WriteFile(s.path("sbom.json"), []byte(`{"spdxVersion":"SPDX-2.3"}`), 0o600))
	sign := []string{"--yes", "--tlog-upload=false", "--key", "supplier.key", "--allow-http-registry"}
	for _, args := range [][]string{
		append([]string{"sign"}, append(sign, at)...),
		append([]string{"sign", "--new-bundle-format"}, append(sign, at)...),
		append([]string{"attest", "--predicate", "sbom.json", "--type", "spdxjson"}, append(sign, at)...),
		{"attach", "sbom", "--sbom", "sbom.json", "--allow-http-registry", at},
	} {
		r := s.cosign(args...)
		require.Zero(s.t, r.code, "cosign %s: %s", args[0], r.stderr)
	}
	s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/web:1", at)
	s.edit("workloads/shop/workload.yaml", "registry.invalid/shop/batch:1", at)
	s.edit("platform/cluster-types.yaml", "  name: edge\n", "  name: edge\n  annotations: {wherry.dev/carry: images, wherry.dev/platforms: linux/amd64}\n")
	return repository, hash.String()
}

// requireAdmitted asks cosign, as an admission check does, whether an image at this place is signed, attested and has an SBOM.
func (s *site) requireAdmitted(at string) {
	s.t.Helper()
	verify := []string{"--key", "supplier.pub", "--insecure-ignore-tlog=true", "--allow-http-registry"}
	for _, args := range [][]string{
		append([]string{"verify"}, append(verify, at)...),
		append([]string{"verify-attestation", "--type", "spdxjson"}, append(verify, at)...),
		append([]string{"verify-attestation", "--new-bundle-format", "--type", "https://sigstore.dev/cosign/sign/v1"}, append(verify, at)...),
		{"download", "sbom", "--allow-http-registry", at},
	} {
		r := s.cosign(args...)
		require.Zero(s.t, r.code, "cosign %s %s: %s", args[0], at, r.stderr)
	}
	refused := s.cosign("verify", "--key", "cosign.pub", "--insecure-ignore-tlog=true", "--allow-http-registry", at)
	require.NotZero(s.t, refused.code, "another key")
}

// A site checks the signatures of the images that it runs. They come to it with the images, by each of the ways that images come.
func TestSignaturesOfImagesReachTheSite(t *testing.T) {
	s := newSite(t)
	repository, digest := s.signedImage()
	s.requireAdmitted(repository + "@" + digest)
	s.publish()

	export := []string{"airgap", "export", "--environment", s.environment, "--from", "oci://" + s.prefix, "--allow-private", "127.0.0.1", "--cluster-type", clusterType}
	r := s.wherry(append(export, "-o", "site.tar", "--format", "json")...)
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stderr, "with 4 referrers (")
	var contents struct {
		Artifacts []struct{ Referrers, ReferrerBytes int }
	}
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &contents))
	require.Equal(t, 4, contents.Artifacts[0].Referrers)
	require.Positive(t, contents.Artifacts[0].ReferrerBytes)
	again := s.wherry(append(export, "-o", "again.tar")...)
	require.Zero(t, again.code, again.stderr)
	first, err := os.ReadFile(s.path("site.tar"))
	require.NoError(t, err)
	second, err := os.ReadFile(s.path("again.tar"))
	require.NoError(t, err)
	require.True(t, string(first) == string(second), "the same input, the same bytes")

	// A registry of the site.
	own := s.prefix + "-site"
	r = s.wherry("bundle", "copy", "oci-archive:site.tar", "oci://"+own, "--environment", s.environment, "--key", "cosign.pub")
	require.Zero(t, r.code, r.stderr)
	copied := own + "/" + strings.Replace(repository, ":", "_", 1) + "@" + digest
	s.requireAdmitted(copied)
	bare := s.prefix + "-bare"
	r = s.wherry("bundle", "copy", "oci-archive:site.tar", "oci://"+bare, "--environment", s.environment, "--key", "cosign.pub", "--no-referrers")
	require.Zero(t, r.code, r.stderr)
	refused := s.cosignVerify("supplier.pub", bare+"/"+strings.Replace(repository, ":", "_", 1)+"@"+digest)
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
			r := program(t, s.dir, "wherry-agent", "import", "site.tar", "--state-dir", s.path(way))
			require.Zero(t, r.code, r.stderr)
		} else {
			f.syncUntilDone()
		}
		s.requireAdmitted(address + "/" + strings.Replace(repository, ":", "_", 1) + "@" + digest)
	}
}

// A release that is signed in cosign 3's form alone is known to wherry verify, which says that agents refuse it.
func TestWherryVerifiesASigstoreBundle(t *testing.T) {
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
