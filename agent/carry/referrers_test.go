package carry

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/referrertest"
)

// signed gives an image a signature and an SBOM.
func (s *source) signed(image ocispec.Descriptor) (sig, sbom ocispec.Descriptor) {
	s.t.Helper()
	repo, err := oci.Location{Host: s.host()}.Repository("app", oci.Options{})
	require.NoError(s.t, err)
	sig, err = referrertest.Tag(s.t.Context(), repo, image, ".sig", "signature")
	require.NoError(s.t, err)
	sbom, err = referrertest.Refer(s.t.Context(), repo, image, "application/spdx+json", "the sbom")
	require.NoError(s.t, err)
	return sig, sbom
}

func TestAnImageIsCarriedWithItsSignature(t *testing.T) {
	s := newSource(t)
	image := s.image(500, "a")
	sig, _ := s.signed(image)
	k := newCarrier(t, options(nil, 0))
	require.NoError(t, bring(k, s.wants(image.Digest)))
	require.Empty(t, k.wait().Message)
	tags := []string{"", "", "1", bundle.SignatureTag(image.Digest)}
	named := k.named(t)
	slices.Sort(named)
	require.Equal(t, tags, named)
	there, err := k.blobs.Exists(t.Context(), ocispec.Descriptor{Digest: digest.FromString("signature"), Size: int64(len("signature"))})
	require.NoError(t, err)
	require.True(t, there)
	stored := k.Status().StoredBytes
	require.Greater(t, stored, sig.Size+500, "the budget counts them")

	// All of it is known after a restart, and nothing is asked for again.
	asked := s.asked.Load()
	again := New(k.db, options(nil, 0))
	defer again.Close()
	require.NoError(t, bring(again, s.wants(image.Digest)))
	named = again.named(t)
	slices.Sort(named)
	require.Equal(t, tags, named)
	require.Equal(t, asked, s.asked.Load())
	require.Equal(t, stored, again.Status().StoredBytes)

	// Without the image nobody needs them.
	_, err = again.Look(nil, 0)
	require.NoError(t, err)
	require.Empty(t, again.named(t))
	require.Empty(t, again.referrers)

	bare := options(nil, 0)
	bare.WithoutReferrers = true
	k = newCarrier(t, bare)
	require.NoError(t, bring(k, s.wants(image.Digest)))
	require.Equal(t, []string{"", "1"}, k.named(t))
}

// Nobody vouches for what is about an image, so the image does not wait for what cannot be had of it.
func TestAnImageDoesNotWaitForWhatIsAboutIt(t *testing.T) {
	for _, c := range []struct {
		name string
		hook func(w http.ResponseWriter, req *http.Request, sig ocispec.Descriptor) bool
	}{
		{"its list is forbidden", func(w http.ResponseWriter, req *http.Request, _ ocispec.Descriptor) bool {
			return fails(w, http.StatusForbidden, strings.Contains(req.URL.Path, "/referrers/"))
		}},
		{"its manifest is gone", func(w http.ResponseWriter, req *http.Request, sig ocispec.Descriptor) bool {
			return fails(w, http.StatusNotFound, strings.Contains(req.URL.Path, "/referrers/") || strings.HasSuffix(req.URL.Path, sig.Digest.String()))
		}},
		{"its blob is gone", func(w http.ResponseWriter, req *http.Request, _ ocispec.Descriptor) bool {
			return fails(w, http.StatusNotFound, strings.HasSuffix(req.URL.Path, digest.FromString("signature").String()) || strings.HasSuffix(req.URL.Path, digest.FromString("the sbom").String()))
		}},
		{"its blob has other bytes", func(w http.ResponseWriter, req *http.Request, _ ocispec.Descriptor) bool {
			if strings.HasSuffix(req.URL.Path, digest.FromString("signature").String()) || strings.HasSuffix(req.URL.Path, digest.FromString("the sbom").String()) {
				_, _ = w.Write([]byte("signed by nobody"[:len("signature")]))
				return true
			}
			return false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSource(t)
			image := s.image(500, "a")
			sig, _ := s.signed(image)
			hook := func(w http.ResponseWriter, req *http.Request) bool { return c.hook(w, req, sig) }
			s.hook.Store(&hook)
			k := newCarrier(t, options(nil, 0))
			require.NoError(t, bring(k, s.wants(image.Digest)))
			require.Empty(t, k.wait().Message)
			require.Subset(t, k.named(t), []string{"", "1"})
			require.NotContains(t, k.named(t), bundle.SignatureTag(image.Digest))
		})
	}
}

func fails(w http.ResponseWriter, code int, is bool) bool {
	if is {
		w.WriteHeader(code)
	}
	return is
}

// A place that does not answer has said nothing about signatures.
func TestAnAbsentRegistryIsNoAbsentSignature(t *testing.T) {
	s := newSource(t)
	image := s.image(500, "a")
	s.signed(image)
	away := func(w http.ResponseWriter, req *http.Request) bool {
		return fails(w, http.StatusServiceUnavailable, strings.Contains(req.URL.Path, "/referrers/"))
	}
	s.hook.Store(&away)
	o := options(nil, 0)
	k := newCarrier(t, o)
	require.NoError(t, bring(k, s.wants(image.Digest)))
	require.Equal(t, ReasonArtifactUnreachable, k.wait().Reason)
	s.hook.Store(nil)
	k.Forgive()
	require.NoError(t, bring(k, s.wants(image.Digest)))
	require.Contains(t, k.named(t), bundle.SignatureTag(image.Digest))
}
