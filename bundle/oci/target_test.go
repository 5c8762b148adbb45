package oci_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/airgap/registry"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// locations gives an empty place of each kind.
func locations(t *testing.T) map[string]oci.Location {
	reg, err := registry.Open(t.TempDir(), registry.Options{})
	require.NoError(t, err)
	server := httptest.NewServer(reg.Handler())
	t.Cleanup(func() { server.Close(); require.NoError(t, reg.Close()) })
	return map[string]oci.Location{
		"registry": {Host: server.Listener.Addr().String(), Prefix: "line/a"},
		"layout":   {Dir: t.TempDir() + "/new"},
	}
}

// manifest returns a manifest that needs no blob but config, and config.
func manifest(t *testing.T, text string) (m, config bundle.Blob) {
	config = bundle.NewBlob("application/vnd.test.v1", []byte(text))
	data, err := json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config.Descriptor, Layers: []ocispec.Descriptor{config.Descriptor},
	})
	require.NoError(t, err)
	return bundle.NewBlob(ocispec.MediaTypeImageManifest, data), config
}

func pushAll(t *testing.T, repo oci.Target, blobs ...bundle.Blob) {
	t.Helper()
	for _, b := range blobs {
		err := repo.Push(t.Context(), b.Descriptor, bytes.NewReader(b.Data))
		if !errors.Is(err, errdef.ErrAlreadyExists) {
			require.NoError(t, err)
		}
	}
}

func TestBothKindsOfLocationBehaveTheSame(t *testing.T) {
	for kind, loc := range locations(t) {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			store, err := loc.Open(oci.Options{})
			require.NoError(t, err)
			repo, err := store.Repository("bundles/dev/drone")
			require.NoError(t, err)

			tags, err := repo.Tags(ctx)
			require.NoError(t, err, "a repository that is not there has no tags")
			require.Empty(t, tags)
			_, err = repo.Resolve(ctx, "latest")
			require.ErrorIs(t, err, errdef.ErrNotFound)
			require.ErrorContains(t, err, "bundles/dev/drone")

			m, config := manifest(t, "one")
			there, err := repo.Exists(ctx, m.Descriptor)
			require.NoError(t, err)
			require.False(t, there)
			require.ErrorIs(t, repo.Tag(ctx, m.Descriptor, "latest"), errdef.ErrNotFound, "a tag needs its manifest")
			require.ErrorIs(t, repo.Tag(ctx, m.WithData(), "latest"), errdef.ErrNotFound, "and what that names")

			pushAll(t, repo, config, m)
			there, err = repo.Exists(ctx, config.Descriptor)
			require.NoError(t, err)
			require.True(t, there)
			tags, err = repo.Tags(ctx)
			require.NoError(t, err)
			require.Empty(t, tags, "what is pushed is not visible before it is tagged")

			require.NoError(t, repo.Tag(ctx, m.Descriptor, "s0-1"))
			require.NoError(t, repo.Tag(ctx, m.Descriptor, "latest"))
			newer, config := manifest(t, "two")
			pushAll(t, repo, config)
			other := m.WithData()
			other.Digest = newer.Descriptor.Digest
			require.ErrorIs(t, repo.Tag(ctx, other, "latest"), content.ErrMismatchedDigest)
			require.NoError(t, repo.Tag(ctx, newer.WithData(), "latest"), "data is pushed with the tag")

			tags, err = repo.Tags(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"latest", "s0-1"}, tags)
			for ref, want := range map[string]bundle.Blob{"latest": newer, "s0-1": m, m.Descriptor.Digest.String(): m} {
				got, err := repo.Resolve(ctx, ref)
				require.NoError(t, err)
				require.Equal(t, want.Descriptor, got)
				data, err := bundle.ReadBlob(ctx, repo, got, 1<<20)
				require.NoError(t, err)
				require.Equal(t, want.Data, data)
			}

			require.NoError(t, repo.Tag(ctx, m.Descriptor, "s0-0"))
			require.NoError(t, repo.Untag(ctx, "s0-0"))
			require.ErrorIs(t, repo.Untag(ctx, "s0-0"), errdef.ErrNotFound)
			_, err = repo.Resolve(ctx, "s0-1")
			require.NoError(t, err, "what it named stays")
			require.NoError(t, repo.Delete(ctx, m.Descriptor))
			_, err = repo.Resolve(ctx, "s0-1")
			require.ErrorIs(t, err, errdef.ErrNotFound)
			_, err = repo.Resolve(ctx, "latest")
			require.NoError(t, err)

			large, err := store.Repository("bundles/dev/large")
			require.NoError(t, err)
			tags, err = large.Tags(ctx)
			require.NoError(t, err)
			require.Empty(t, tags, "repositories do not share tags")
			pushAll(t, large, config, newer)
			require.NoError(t, large.Tag(ctx, newer.Descriptor, "latest"))
			names, err := store.Repositories(ctx)
			require.NoError(t, err)
			require.Equal(t, []string{"bundles/dev/drone", "bundles/dev/large"}, names)
		})
	}
}

// A manifest that is read comes with the answer to what a tag names. Whoever reads it verifies it.
func TestAManifestOfARegistryTakesOneRequest(t *testing.T) {
	m, config := manifest(t, "one")
	said := m.Descriptor.Digest
	requests := 0
	loc, opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		w.Header().Set("Content-Type", m.Descriptor.MediaType)
		w.Header().Set("Docker-Content-Digest", said.String())
		_, _ = w.Write(m.Data)
	})
	repo, err := loc.Repository("bundles/dev/drone", opts)
	require.NoError(t, err)
	desc, err := bundle.ResolveManifest(t.Context(), repo, "latest")
	require.NoError(t, err)
	require.Equal(t, m.WithData(), desc)
	data, err := bundle.ReadBlob(t.Context(), repo, desc, bundle.MaxManifestBytes)
	require.NoError(t, err)
	require.Equal(t, m.Data, data)
	require.Equal(t, 1, requests)

	said = config.Descriptor.Digest
	desc, err = bundle.ResolveManifest(t.Context(), repo, "latest")
	require.NoError(t, err)
	_, err = bundle.ReadBlob(t.Context(), repo, desc, bundle.MaxManifestBytes)
	var refusal *bundle.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.DigestMismatch, refusal.Reason)
}

func TestATagIsForWhatIsThereInFull(t *testing.T) {
	for kind, loc := range locations(t) {
		t.Run(kind, func(t *testing.T) {
			repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
			require.NoError(t, err)
			m, config := manifest(t, "one")
			err = repo.Push(t.Context(), m.Descriptor, bytes.NewReader(m.Data))
			if err == nil {
				err = repo.Tag(t.Context(), m.Descriptor, "latest")
			}
			require.Error(t, err)
			tags, err := repo.Tags(t.Context())
			require.NoError(t, err)
			require.Empty(t, tags)
			pushAll(t, repo, config, m)
			require.NoError(t, repo.Tag(t.Context(), m.Descriptor, "latest"))
		})
	}
}

func TestContentThatIsNotWhatItsDescriptorSaysIsNotStored(t *testing.T) {
	for kind, loc := range locations(t) {
		t.Run(kind, func(t *testing.T) {
			repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
			require.NoError(t, err)
			blob := bundle.NewBlob("application/octet-stream", []byte("what was announced"))
			for name, data := range map[string]string{"other": "what was exchanged", "long": "what was announced, and more", "short": "what was"} {
				require.Error(t, repo.Push(t.Context(), blob.Descriptor, bytes.NewReader([]byte(data))), name)
				there, err := repo.Exists(t.Context(), blob.Descriptor)
				require.NoError(t, err)
				require.False(t, there, name)
			}
		})
	}
}

func TestNamesAndTagsAreChecked(t *testing.T) {
	for kind, loc := range locations(t) {
		t.Run(kind, func(t *testing.T) {
			for _, name := range []string{"", "a/../b", "/a", "A", "a:b", "a b"} {
				_, err := loc.Repository(name, oci.Options{})
				require.ErrorContains(t, err, "is not a repository name", "%q", name)
			}
			repo, err := loc.Repository("a", oci.Options{})
			require.NoError(t, err)
			m, config := manifest(t, "one")
			pushAll(t, repo, config, m)
			for _, tag := range []string{"", "a/b", "-a", "a b"} {
				require.ErrorContains(t, repo.Tag(t.Context(), m.Descriptor, tag), "is not a tag", "%q", tag)
			}
		})
	}
}

func TestReferenceResolve(t *testing.T) {
	for kind, loc := range locations(t) {
		t.Run(kind, func(t *testing.T) {
			repo, err := loc.Repository("bundles/dev/drone", oci.Options{})
			require.NoError(t, err)
			m, config := manifest(t, "one")
			pushAll(t, repo, config, m)
			require.NoError(t, repo.Tag(t.Context(), m.Descriptor, "s0-1"))
			require.NoError(t, repo.Tag(t.Context(), m.Descriptor, "latest"))
			base := loc.String() + "/bundles/dev/drone"
			for _, s := range []string{base, base + ":latest", base + ":s0-1", base + "@" + m.Descriptor.Digest.String()} {
				requireResolves(t, s, m.Descriptor)
			}
			if loc.Dir != "" {
				requireResolves(t, "oci-layout:"+loc.Dir+":bundles/dev/drone/s0-1", m.Descriptor)
			}
			ref, err := oci.ParseReference(base + ":s0-2")
			require.NoError(t, err)
			_, _, err = ref.Resolve(t.Context(), oci.Options{})
			require.ErrorIs(t, err, errdef.ErrNotFound)
		})
	}
}

func requireResolves(t *testing.T, s string, want ocispec.Descriptor) {
	t.Helper()
	ref, err := oci.ParseReference(s)
	require.NoError(t, err)
	_, got, err := ref.Resolve(t.Context(), oci.Options{})
	require.NoError(t, err, s)
	require.Equal(t, want, got, s)
}
