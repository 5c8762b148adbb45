package bundle

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ReadArtifacts returns the artifacts of release r, whose tree is the layer tree of src. It reads the tree only as far as
// the list of artifacts, which is at its beginning, and compares that with the digest in r. The error is a *Refusal if the
// tree has another list, or none.
func ReadArtifacts(ctx context.Context, src Source, tree ocispec.Descriptor, r Release) ([]Artifact, error) {
	if r.Artifacts.Count == 0 {
		return nil, nil
	}
	body, err := src.Fetch(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", tree.Digest, err)
	}
	defer body.Close()
	files, err := readTreeFiles(io.LimitReader(body, tree.Size), ArtifactsPath)
	if err != nil {
		return nil, err
	}
	data, ok := files[ArtifactsPath]
	switch {
	case !ok:
		return nil, Refuse(BadContent, "tree %s has no %s, but the release lists %d artifacts", tree.Digest, ArtifactsPath, r.Artifacts.Count)
	case digest.FromBytes(data) != r.Artifacts.Digest:
		return nil, Refuse(DigestMismatch, "%s of tree %s is not the one that the release names", ArtifactsPath, tree.Digest)
	}
	return ParseArtifacts(data)
}

// TreeFiles returns the files with these paths of a tree, the layer tree of src, by their paths; those that the tree lacks
// are left out. Each has at most MaxListBytes. All of the layer is read and compared with its digest; only the part before the
// last of the files is decompressed. The error is a *Refusal if the content is not what tree describes.
func TreeFiles(ctx context.Context, src Source, tree ocispec.Descriptor, paths ...string) (map[string][]byte, error) {
	if err := tree.Digest.Validate(); err != nil {
		return nil, Refuse(BadContent, "tree %q: %v", tree.Digest, err)
	}
	body, err := src.Fetch(ctx, tree)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", tree.Digest, err)
	}
	defer body.Close()
	verifier := tree.Digest.Verifier()
	checked := &counted{r: io.TeeReader(io.LimitReader(body, tree.Size+1), verifier)}
	files, err := readTreeFiles(checked, paths...)
	if _, rest := io.Copy(io.Discard, checked); rest != nil {
		return nil, fmt.Errorf("fetch %s: %w", tree.Digest, rest)
	}
	if checked.n != tree.Size || !verifier.Verified() {
		return nil, Refuse(DigestMismatch, "layer %s has other content than its digest says", tree.Digest)
	}
	return files, err
}

// Moving are the assignments of a tree, and the names of those whose content is not pinned, sorted. See [Floating] and [Unpinned].
type Moving struct {
	All                []Assignment
	Floating, Unpinned []string
}

// MovingOf returns the assignments of a tree, the layer tree of src. The tree is that of a release that
// was verified; errors are those of [TreeFiles].
func MovingOf(ctx context.Context, src Source, tree ocispec.Descriptor) (Moving, error) {
	files, err := TreeFiles(ctx, src, tree, AssignmentsPath, ArtifactsPath)
	if err != nil {
		return Moving{}, err
	}
	if files[AssignmentsPath] == nil {
		return Moving{}, Refuse(BadContent, "tree %s has no %s", tree.Digest, AssignmentsPath)
	}
	assignments, err := ParseAssignments(files[AssignmentsPath])
	if err != nil {
		return Moving{}, err
	}
	artifacts, err := ParseArtifacts(files[ArtifactsPath])
	if err != nil {
		return Moving{}, err
	}
	return Moving{All: assignments, Floating: Floating(assignments, artifacts), Unpinned: Unpinned(assignments, artifacts)}, nil
}

// counted counts the bytes that are read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readTreeFiles reads r, a gzip of a tar, until it has all files with these paths.
func readTreeFiles(r io.Reader, paths ...string) (map[string][]byte, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, unreadable(err, "layer is not gzip")
	}
	wanted, found := map[string]bool{}, map[string][]byte{}
	for _, p := range paths {
		wanted[p] = true
	}
	tree := io.LimitReader(zip, MaxTreeBytes+1)
	for entries, n := tar.NewReader(tree), 0; len(wanted) > 0; n++ {
		h, err := entries.Next()
		switch {
		case errors.Is(err, io.EOF):
			return found, nil
		case err != nil:
			return nil, unreadable(err, "layer is not a tar")
		case n > 2*MaxFiles: // folders count as well
			return nil, Refuse(TooLarge, "tree has more than %d entries", 2*MaxFiles)
		case h.Typeflag != tar.TypeReg || !wanted[h.Name]:
			continue
		case h.Size > MaxListBytes:
			return nil, Refuse(TooLarge, "%s has %d bytes, at most %d are allowed", h.Name, h.Size, MaxListBytes)
		}
		data, err := io.ReadAll(entries)
		if err != nil {
			return nil, unreadable(err, "read "+h.Name)
		}
		found[h.Name] = data
		delete(wanted, h.Name)
	}
	return found, nil
}
