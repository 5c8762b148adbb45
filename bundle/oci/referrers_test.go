package oci_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/referrertest"
)

// Signatures are found wherever they may lie: in registries with the referrers API and without, and in folders.
func TestReferrersAreFoundInEveryPlace(t *testing.T) {
	places := locations(t) // its registry has no referrers API
	server := httptest.NewServer(ggcr.New(ggcr.Logger(log.New(io.Discard, "", 0)), ggcr.WithReferrersSupport(true)))
	t.Cleanup(server.Close)
	places["registry with the API"] = oci.Location{Host: strings.TrimPrefix(server.URL, "http://")}
	for kind, loc := range places {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			repo, err := loc.Repository("app", oci.Options{})
			require.NoError(t, err)
			_, err = oci.Referrers(ctx, repo, bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte("{}")).Descriptor)
			require.ErrorIs(t, err, errdef.ErrNotFound, "the repository is not there")

			m, config := manifest(t, "image")
			other, config2 := manifest(t, "other")
			pushAll(t, repo, config, config2, m, other)
			require.NoError(t, repo.Tag(ctx, m.Descriptor, "1"))
			none, err := oci.Referrers(ctx, repo, m.Descriptor)
			require.NoError(t, err)
			require.Empty(t, none)
			sig, err := referrertest.Tag(ctx, repo, m.Descriptor, ".sig", "signature")
			require.NoError(t, err)
			sbom, err := referrertest.Refer(ctx, repo, m.Descriptor, "application/spdx+json", "sbom")
			require.NoError(t, err)
			proof, err := referrertest.Refer(ctx, repo, m.Descriptor, "application/vnd.in-toto+json", "proof")
			require.NoError(t, err)
			_, err = referrertest.Refer(ctx, repo, other.Descriptor, "application/spdx+json", "of another")
			require.NoError(t, err)

			found, err := oci.Referrers(ctx, repo, m.Descriptor)
			require.NoError(t, err)
			want := []oci.Referrer{{Descriptor: sbom}, {Descriptor: proof}}
			slices.SortFunc(want, func(a, b oci.Referrer) int { return strings.Compare(a.Digest.String(), b.Digest.String()) })
			require.Equal(t, append(want, oci.Referrer{Tag: bundle.SignatureTag(m.Descriptor.Digest), Descriptor: sig}), found)
		})
	}
}

// Registries, and proxies before them, refuse a list of referrers in many ways, and each of them means that there is none.
func TestARefusedListOfReferrersIsEmpty(t *testing.T) {
	for _, code := range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.Contains(r.URL.Path, "/referrers/"):
				w.WriteHeader(code)
			case strings.Contains(r.URL.Path, "/manifests/sha256:"):
				w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
				w.Header().Set("Docker-Content-Digest", bundle.NewBlob("", []byte("{}")).Descriptor.Digest.String())
				w.Header().Set("Content-Length", "2")
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		defer server.Close()
		repo, err := oci.Location{Host: strings.TrimPrefix(server.URL, "http://")}.Repository("app", oci.Options{})
		require.NoError(t, err)
		found, err := oci.Referrers(t.Context(), repo, bundle.NewBlob(ocispec.MediaTypeImageManifest, []byte("{}")).Descriptor)
		require.NoError(t, err, code)
		require.Empty(t, found)
	}
}

func TestSubjectOfTag(t *testing.T) {
	d := bundle.NewBlob("x", nil).Descriptor.Digest
	for tag, want := range map[string]bool{
		bundle.SignatureTag(d): true, "sha256-" + d.Encoded() + ".att": true, "sha256-" + d.Encoded() + ".sbom": true,
		"sha256-" + d.Encoded(): false, "sha256-" + d.Encoded() + ".sig.x": false, "sha256-12.sig": false, "latest": false,
		"sha512-" + d.Encoded() + ".sig": false,
	} {
		if got := oci.SubjectOfTag(tag); want {
			require.Equal(t, d, got, tag)
		} else {
			require.Empty(t, got, tag)
		}
	}
}
