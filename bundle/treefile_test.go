package bundle_test

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
)

// oneBlob is a source with one blob, and counts the bytes that are read of it.
type oneBlob struct {
	data []byte
	read int
}

func (o *oneBlob) Resolve(context.Context, string) (ocispec.Descriptor, error) {
	return ocispec.Descriptor{}, errdef.ErrNotFound
}

func (o *oneBlob) Fetch(context.Context, ocispec.Descriptor) (io.ReadCloser, error) {
	return io.NopCloser(readerFunc(bytes.NewReader(o.data), &o.read)), nil
}

type countingReader struct {
	r io.Reader
	n *int
}

func readerFunc(r io.Reader, n *int) io.Reader { return countingReader{r, n} }

func (c countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += n
	return n, err
}

func TestTheListOfArtifactsIsReadFromTheBeginningOfATree(t *testing.T) {
	list := []bundle.Artifact{{Type: bundle.ArtifactImage, Name: "ghcr.io/app/web", Reference: "ghcr.io/app/web:1", UsedBy: []string{"web"}}}
	data, sum, err := bundle.MarshalArtifacts(list)
	require.NoError(t, err)
	noise := make([]byte, 1<<20)
	for i := range noise {
		noise[i] = byte(i * i >> 3)
	}
	packed, err := bundle.Pack([]bundle.File{
		{Path: bundle.ArtifactsPath, Data: data},
		{Path: bundle.AssignmentsPath, Data: []byte("{}\n")},
		{Path: "web/noise", Data: noise},
	})
	require.NoError(t, err)
	tree := ocispec.Descriptor{MediaType: bundle.MediaTypeTree, Digest: digest.FromBytes(packed.Gzip), Size: int64(len(packed.Gzip))}
	r := bundle.Release{Content: packed.Content, Artifacts: sum}

	src := &oneBlob{data: packed.Gzip}
	got, err := bundle.ReadArtifacts(t.Context(), src, tree, r)
	require.NoError(t, err)
	require.Equal(t, list, got)

	files, err := bundle.TreeFiles(t.Context(), src, tree, bundle.AssignmentsPath, bundle.ArtifactsPath, "absent")
	require.NoError(t, err)
	require.Equal(t, map[string][]byte{bundle.ArtifactsPath: data, bundle.AssignmentsPath: []byte("{}\n")}, files)

	got, err = bundle.ReadArtifacts(t.Context(), &oneBlob{}, tree, bundle.Release{})
	require.NoError(t, err)
	require.Empty(t, got, "a release without artifacts needs no tree")

	other := r
	other.Artifacts.Digest = digest.FromString("other")
	for name, c := range map[string]struct {
		data []byte
		r    bundle.Release
	}{
		"another list":     {packed.Gzip, other},
		"no gzip":          {[]byte("none"), r},
		"cut short at all": {packed.Gzip[:20], r},
	} {
		_, err := bundle.ReadArtifacts(t.Context(), &oneBlob{data: c.data}, tree, c.r)
		require.ErrorAs(t, err, new(*bundle.Refusal), name)
	}
	for name, data := range map[string][]byte{
		"a changed end": append(bytes.Clone(packed.Gzip[:len(packed.Gzip)-1]), 1),
		"cut short":     packed.Gzip[:len(packed.Gzip)-1],
		"too long":      append(bytes.Clone(packed.Gzip), 0),
	} {
		_, err := bundle.TreeFiles(t.Context(), &oneBlob{data: data}, tree, bundle.ArtifactsPath)
		require.ErrorAs(t, err, new(*bundle.Refusal), name)
	}
}

func TestFloating(t *testing.T) {
	t.Parallel()
	const floating, unpinned, pinned = "floating", "unpinned", "pinned"
	for _, c := range []struct {
		artifact bundle.Artifact
		want     string
	}{
		{bundle.Artifact{Type: bundle.ArtifactGit, Reference: "https://git/x#main"}, floating},
		{bundle.Artifact{Type: bundle.ArtifactGit, Reference: "https://git/x#v1.2.3"}, floating},
		{bundle.Artifact{Type: bundle.ArtifactGit, Reference: "https://git/x#main", Digest: "sha1:0123"}, pinned},
		{bundle.Artifact{Type: bundle.ArtifactOCI, Reference: "oci://registry/x:1.2.3"}, floating},
		{bundle.Artifact{Type: bundle.ArtifactChart, Reference: "https://charts/x:1.2.3"}, unpinned},
		{bundle.Artifact{Type: bundle.ArtifactChart, Reference: "oci://registry:5000/x:v1.2.3-rc.1"}, unpinned},
		{bundle.Artifact{Type: bundle.ArtifactChart, Reference: "https://charts/x:1.2.x"}, floating},
		{bundle.Artifact{Type: bundle.ArtifactChart, Reference: "https://charts/x:*"}, floating},
		{bundle.Artifact{Type: bundle.ArtifactChart, Reference: "https://charts/x:*", Digest: "sha256:1"}, pinned},
		{bundle.Artifact{Type: bundle.ArtifactChart, Reference: "https://charts/x"}, floating},
		{bundle.Artifact{Type: bundle.ArtifactImage, Reference: "docker.io/x:latest"}, unpinned},
		{bundle.Artifact{Type: bundle.ArtifactImage, Reference: "docker.io/x:latest", Digest: "sha256:1"}, pinned},
		{bundle.Artifact{Type: bundle.ArtifactZarf, Reference: "oci://registry/x:1"}, unpinned},
		{bundle.Artifact{Type: "newer", Reference: "x"}, floating}, // nobody here knows whether an engine follows it
	} {
		c.artifact.UsedBy, c.artifact.Unresolved = []string{"web"}, c.artifact.Digest == ""
		assignments, artifacts := []bundle.Assignment{{Name: "db"}, {Name: "web"}}, []bundle.Artifact{c.artifact}
		got := pinned
		if len(bundle.Floating(assignments, artifacts)) > 0 {
			got = floating
		} else if len(bundle.Unpinned(assignments, artifacts)) > 0 {
			got = unpinned
		}
		require.Equal(t, c.want, got, c.artifact.Reference)
	}

	assignments := []bundle.Assignment{{Name: "web"}, {Name: "bucket", Floating: true}, {Name: "api"}, {Name: "db"}}
	artifacts := []bundle.Artifact{
		{Type: bundle.ArtifactGit, Reference: "https://git/x#main", Unresolved: true, UsedBy: []string{"web"}},
		{Type: bundle.ArtifactImage, Reference: "docker.io/x:1", Unresolved: true, UsedBy: []string{"api", "bucket", "web"}},
	}
	require.Equal(t, []string{"bucket", "web"}, bundle.Floating(assignments, artifacts))
	require.Equal(t, []string{"api"}, bundle.Unpinned(assignments, artifacts), "what floats is listed once")
}

// TestMovingOf reads the lists of a packed tree.
func TestMovingOf(t *testing.T) {
	lines, err := bundle.MarshalAssignments([]bundle.Assignment{{Name: "web", Content: digest.FromString("")}, {Name: "db", Content: digest.FromString("")}})
	require.NoError(t, err)
	list, _, err := bundle.MarshalArtifacts([]bundle.Artifact{{Type: bundle.ArtifactGit, Name: "x", Reference: "https://git/x#main", Unresolved: true, UsedBy: []string{"web"}}, {Type: bundle.ArtifactImage, Name: "y", Reference: "docker.io/y:1", Unresolved: true, UsedBy: []string{"db"}}})
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		files []bundle.File
		want  bundle.Moving
		err   string
	}{
		{
			"a source without a commit, an image without a digest",
			[]bundle.File{{Path: bundle.AssignmentsPath, Data: lines}, {Path: bundle.ArtifactsPath, Data: list}},
			bundle.Moving{Floating: []string{"web"}, Unpinned: []string{"db"}},
			"",
		},
		{"no artifacts", []bundle.File{{Path: bundle.AssignmentsPath, Data: lines}}, bundle.Moving{}, ""},
		{"no list of assignments", []bundle.File{{Path: "a/b", Data: lines}}, bundle.Moving{}, "has no .wherry/assignments.ndjson"},
	} {
		t.Run(c.name, func(t *testing.T) {
			packed, err := bundle.Pack(c.files)
			require.NoError(t, err)
			layer := ocispec.Descriptor{MediaType: bundle.MediaTypeTree, Digest: digest.FromBytes(packed.Gzip), Size: int64(len(packed.Gzip))}
			got, err := bundle.MovingOf(context.Background(), &oneBlob{data: packed.Gzip}, layer)
			got.All = nil // of ParseAssignments
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			_, err = bundle.MovingOf(context.Background(), &oneBlob{data: packed.Gzip[1:]}, layer)
			require.Error(t, err, "a tree of other content")
		})
	}
}
