package oci_test

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// order is a repository that records the order of pushes.
type order struct {
	oci.Target
	pushed []digest.Digest
}

func (o *order) Push(ctx context.Context, d ocispec.Descriptor, from io.Reader) error {
	o.pushed = append(o.pushed, d.Digest)
	return o.Target.Push(ctx, d, from)
}

func TestACopyHasAllPartsBeforeWhatNamesThem(t *testing.T) {
	for kind, loc := range locations(t) {
		t.Run(kind, func(t *testing.T) {
			ctx := t.Context()
			from, err := oci.NewLayout(t.TempDir()).Repository("a")
			require.NoError(t, err)
			store, err := loc.Open(oci.Options{})
			require.NoError(t, err)
			repo, err := store.Repository("b")
			require.NoError(t, err)
			to := &order{Target: repo}

			one, config := manifest(t, "one")
			two, config2 := manifest(t, "two")
			data, err := json.Marshal(ocispec.Index{
				Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
				Manifests: []ocispec.Descriptor{one.Descriptor, two.Descriptor, one.Descriptor},
			})
			require.NoError(t, err)
			index := bundle.NewBlob(ocispec.MediaTypeImageIndex, data)
			pushAll(t, from, config, one, config2, two, index)

			all := []bundle.Blob{config, one, config2, two, index}
			var size int64
			var want []digest.Digest
			for _, b := range all {
				size += b.Descriptor.Size
				want = append(want, b.Descriptor.Digest)
			}
			sent, err := oci.Copy(ctx, from, to, index.Descriptor)
			require.NoError(t, err)
			require.Equal(t, size, sent)
			require.Equal(t, want, to.pushed)
			require.NoError(t, to.Tag(ctx, index.Descriptor, "latest"))

			to.pushed = nil
			sent, err = oci.Copy(ctx, from, to, index.Descriptor)
			require.NoError(t, err)
			require.Zero(t, sent)
			require.Empty(t, to.pushed, "what is there is not sent again")
		})
	}
}

func TestACopyMendsWhatAStandingManifestLacks(t *testing.T) {
	from, err := oci.NewLayout(t.TempDir()).Repository("a")
	require.NoError(t, err)
	to, err := oci.NewLayout(t.TempDir()).Repository("a")
	require.NoError(t, err)
	one, config := manifest(t, "one")
	pushAll(t, from, config, one)
	pushAll(t, to, one)
	sent, err := oci.Copy(t.Context(), from, to, one.Descriptor)
	require.NoError(t, err)
	require.Equal(t, config.Descriptor.Size, sent)
}

func TestACopyOfWhatCannotBeCopiedWritesNoManifest(t *testing.T) {
	one, config := manifest(t, "one")
	cut := one.Descriptor
	cut.Data = one.Data[1:]
	huge := one.Descriptor
	huge.Size = 64 << 20
	nameless := ocispec.Descriptor{MediaType: "text/plain", Digest: "sha256:../../etc/passwd", Size: 1}
	for name, c := range map[string]struct {
		root ocispec.Descriptor
		have []bundle.Blob
		err  error
		text string
	}{
		"a part is missing":         {root: one.Descriptor, have: []bundle.Blob{one}, err: errdef.ErrNotFound},
		"the manifest is missing":   {root: one.Descriptor, have: []bundle.Blob{config}, err: errdef.ErrNotFound},
		"the data are others":       {root: cut, have: []bundle.Blob{config, one}, err: content.ErrMismatchedDigest},
		"the manifest is too large": {root: huge, text: "at most 4194304 are allowed"},
		"the digest is none":        {root: nameless, text: "invalid checksum digest"},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := oci.NewLayout(t.TempDir()).Repository("a")
			require.NoError(t, err)
			to, err := oci.NewLayout(t.TempDir()).Repository("a")
			require.NoError(t, err)
			pushAll(t, from, c.have...)
			_, err = oci.Copy(t.Context(), from, to, c.root)
			require.Error(t, err)
			if c.err != nil {
				require.ErrorIs(t, err, c.err)
			}
			require.ErrorContains(t, err, c.text)
			there, _ := to.Exists(t.Context(), one.Descriptor)
			require.False(t, there)
		})
	}
}

func TestABlobThatCarriesItsContentIsChecked(t *testing.T) {
	to, err := oci.NewLayout(t.TempDir()).Repository("a")
	require.NoError(t, err)
	blob := bundle.NewBlob("text/plain", []byte("content"))
	d := blob.Descriptor
	d.Data = slices.Clone(blob.Data)
	sent, err := oci.CopyBlob(t.Context(), nil, to, d)
	require.NoError(t, err)
	require.Equal(t, d.Size, sent)
	_, err = oci.CopyBlob(t.Context(), nil, to, bundle.NewBlob("text/plain", nil).WithData())
	require.NoError(t, err, "an empty one")
	d.Data[0] ^= 1
	d.Digest = digest.FromString("another")
	_, err = oci.CopyBlob(t.Context(), nil, to, d)
	require.ErrorIs(t, err, content.ErrMismatchedDigest)
}
