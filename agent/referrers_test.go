package agent

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/airgap/packagetest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/referrertest"
)

// signs gives an image a signature under cosign's tag and an SBOM that names it.
func (s *imageSite) signs(name string, image ocispec.Descriptor, text string) (sig, sbom ocispec.Descriptor) {
	s.t.Helper()
	repo, err := oci.Location{Host: s.host}.Repository(name, oci.Options{})
	require.NoError(s.t, err)
	sig, err = referrertest.Tag(s.t.Context(), repo, image, ".sig", "signature of "+text)
	require.NoError(s.t, err)
	sbom, err = referrertest.Refer(s.t.Context(), repo, image, "application/spdx+json", "sbom of "+text)
	require.NoError(s.t, err)
	return sig, sbom
}

// requireSigned reads, from what the agent serves, the referrers of an image as an admission check of the site does.
func (s *imageSite) requireSigned(name string, image, sig, sbom ocispec.Descriptor) {
	s.t.Helper()
	loc, err := oci.Parse(s.served())
	require.NoError(s.t, err)
	host := strings.Replace(s.host, ":", "_", 1)
	repo, err := oci.Location{Host: loc.Host, Prefix: host}.Repository(name, oci.Options{})
	require.NoError(s.t, err)
	found, err := oci.Referrers(s.t.Context(), repo, image)
	require.NoError(s.t, err)
	require.Equal(s.t, []oci.Referrer{{Descriptor: sbom}, {Tag: bundle.SignatureTag(image.Digest), Descriptor: sig}}, found)
	for _, r := range found {
		var m ocispec.Manifest
		data, err := bundle.ReadBlob(s.t.Context(), repo, r.Descriptor, 1<<20)
		require.NoError(s.t, err)
		require.NoError(s.t, json.Unmarshal(data, &m))
		_, err = bundle.ReadBlob(s.t.Context(), repo, m.Layers[0], 1<<20)
		require.NoError(s.t, err)
	}
}

func TestACarriedImageIsServedWithItsSignatures(t *testing.T) {
	s := newImageSite(t)
	s.serves()
	app := s.image("app", "linux/amd64", "base", "one")
	sig, sbom := s.signs("app", app, "app")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	require.Equal(t, bundle.Compliant, s.once().Status.State)
	s.requireSigned("app", app, sig, sbom)
}

func TestAnImageFromAMediumIsServedWithItsSignatures(t *testing.T) {
	s := newImageSite(t)
	s.serves()
	app := s.image("app", "linux/amd64", "base", "one")
	sig, sbom := s.signs("app", app, "app")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	images := map[string]ocispec.Descriptor{"app:1": app}
	bare := s.packed(nil, bundleRefs(s), s.imageRefs(images))
	p := s.packed(nil, bundleRefs(s), slices.Concat(s.imageRefs(images), s.referrerRefs("app", app, sig, sbom)))
	s.registry.away.Store(true)
	s.images.away.Store(true)

	r := s.takes(bare)
	require.Equal(t, []string{"dev/drone taken"}, outcomes(r))
	require.Equal(t, 1, r.Status.Streams[0].Artifacts)
	require.Len(t, s.refs(), 2)

	r = s.takes(p) // the same release: the package adds what is about its image
	require.Equal(t, []string{"dev/drone taken"}, outcomes(r))
	require.Equal(t, 1, r.Status.Streams[0].Artifacts, "signatures are no artifacts of the release")
	s.requireSigned("app", app, sig, sbom)

	require.Equal(t, []string{"dev/drone here"}, outcomes(s.takes(p)))
	require.Equal(t, []string{"dev/drone here"}, outcomes(s.takes(bare)), "what is here of it stays")
	s.requireSigned("app", app, sig, sbom)

	s = newImageSite(t)
	s.opts.Carry.WithoutReferrers = true
	app = s.image("app", "linux/amd64", "base", "one")
	sig, sbom = s.signs("app", app, "app")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	p = s.packed(nil, bundleRefs(s), slices.Concat(s.imageRefs(map[string]ocispec.Descriptor{"app:1": app}), s.referrerRefs("app", app, sig, sbom)))
	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(p)))
	require.Equal(t, []string{"app/1", "app@" + app.Digest.String()}, s.refs())
	require.NotContains(t, s.blobsHere(), digest.FromString("signature of app").Encoded())
}

// referrerRefs names referrers as an exporter does.
func (s *imageSite) referrerRefs(name string, image, sig, sbom ocispec.Descriptor) []packagetest.Ref {
	s.t.Helper()
	from, err := oci.Location{Host: s.host}.Repository(name, oci.Options{})
	require.NoError(s.t, err)
	at := s.host + "/" + name
	return []packagetest.Ref{
		{Name: at + "@" + sbom.Digest.String(), From: from, Root: sbom},
		{Name: at + "/" + bundle.SignatureTag(image.Digest), From: from, Root: sig},
		{Name: at + "@" + sig.Digest.String(), From: from, Root: sig},
	}
}

// Two clusters of a site have one image, and its signature was made again between their packages: the later one counts.
func TestTheLaterSignatureOfAnImageCounts(t *testing.T) {
	s := newImageSite(t)
	s.serves()
	s.opts.Intake.Others = true
	app := s.image("app", "linux/amd64", "base", "one")
	images := map[string]ocispec.Descriptor{"app:1": app}
	first, sbom := s.signs("app", app, "first")
	s.release(1, map[string]string{"web-x/f": "1"}, needs{"web-x": {"app:1": app}}, nil)
	one := s.packed(nil, bundleRefs(s), slices.Concat(s.imageRefs(images), s.referrerRefs("app", app, first, sbom)))
	repo, err := oci.Location{Host: s.host}.Repository("app", oci.Options{})
	require.NoError(t, err)
	second, err := referrertest.Tag(t.Context(), repo, app, ".sig", "second signature")
	require.NoError(t, err)
	office := s.of("office")
	office.release(1, map[string]string{"desk-x/f": "7"}, needs{"desk-x": {"app:1": app}}, nil)
	two := s.packed(nil, bundleRefs(office), slices.Concat(s.imageRefs(images), s.referrerRefs("app", app, second, sbom)))

	require.Equal(t, []string{"dev/drone taken"}, outcomes(s.takes(one)))
	s.requireSigned("app", app, first, sbom)
	s.now = s.now.Add(time.Hour)
	require.Equal(t, []string{"dev/office taken"}, outcomes(s.takes(two)))
	s.requireSigned("app", app, second, sbom)
}
