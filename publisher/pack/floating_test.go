package pack

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

// layer is a registry with one blob.
type layer []byte

func (layer) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errdef.ErrNotFound
}

func (l layer) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l)), nil
}

// TestWhatFloatsIsPublished packs assignments, and reads from the tree which of them are not pinned.
func TestWhatFloatsIsPublished(t *testing.T) {
	const (
		commit = "0123456789012345678901234567890123456789"
		follow = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: x}\nspec: {sourceRef: {kind: GitRepository, name: x}}\n"
		source = "---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: x}\nspec: {url: https://git.example/x, ref: "
		pod    = "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\nspec: {containers: [{image: "
		pinned = "ghcr.io/x@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	)
	assignment := func(name, file string) scheduler.Assignment {
		return scheduler.Assignment{Name: name, Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte(file)}}}
	}
	steady := []scheduler.Assignment{
		assignment("commit", follow+source+"{commit: "+commit+"}}\n"),
		assignment("digest", pod+pinned+"}]}\n"),
	}
	moving := func(assignments []scheduler.Assignment) (bundle.Moving, []byte) {
		packed, _, err := Tree(assignments, nil)
		require.NoError(t, err)
		at := ocispec.Descriptor{Digest: digest.FromBytes(packed.Gzip), Size: int64(len(packed.Gzip))}
		names, err := bundle.MovingOf(context.Background(), layer(packed.Gzip), at)
		require.NoError(t, err)
		files, err := bundle.TreeFiles(context.Background(), layer(packed.Gzip), at, bundle.AssignmentsPath)
		require.NoError(t, err)
		return names, files[bundle.AssignmentsPath]
	}
	found, lines := moving(steady)
	require.Empty(t, append(found.Floating, found.Unpinned...))
	require.NotContains(t, string(lines), "floating", "where nothing floats, the tree is as it was")

	byTag := assignment("pinned-tag", pod+"ghcr.io/y:1}]}\n")
	byTag.Pinned = []scheduler.Pinned{{Type: "image", Name: "ghcr.io/y", Reference: "ghcr.io/y:1", Digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}}
	found, lines = moving(append(steady,
		assignment("branch", follow+source+"{branch: main}}\n"),
		assignment("tag", pod+"ghcr.io/x:1}]}\n"),
		assignment("elsewhere", follow),
		byTag,
	))
	require.Equal(t, []string{"branch", "elsewhere"}, found.Floating)
	require.Equal(t, []string{"tag"}, found.Unpinned)
	require.Len(t, found.All, 6)
	require.Equal(t, 1, bytes.Count(lines, []byte(`"floating":true`)), "of the others the list of artifacts tells")
}
