package zarf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/graph"
)

// errIncomplete is the error of an artifact that is not, or not as a whole, in the store.
var errIncomplete = errors.New("not in the content store")

// storedArtifact is an artifact in an OCI layout, with all its parts for some platforms.
type storedArtifact struct {
	dir       string
	graph     graph.Graph
	manifests map[digest.Digest][]byte
}

// openStored reads the artifact with a manifest or index of this digest in the OCI layout at dir. Manifests are compared with their
// digests. The error wraps errIncomplete if one of them is missing or damaged.
func openStored(dir string, root digest.Digest, platforms graph.Platforms) (*storedArtifact, error) {
	if err := root.Validate(); err != nil || root.Algorithm() != digest.SHA256 {
		return nil, fmt.Errorf("%q is not the digest of an artifact", root)
	}
	a := &storedArtifact{dir: dir, manifests: map[digest.Digest][]byte{}}
	var err error
	a.graph, err = graph.Walk(ocispec.Descriptor{Digest: root}, platforms, func(d ocispec.Descriptor) ([]byte, error) {
		data, err := a.readManifest(d.Digest)
		a.manifests[d.Digest] = data
		return data, err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Whole returns an error wrapping errIncomplete if a blob is missing. It goes by their sizes: the reader compares them with
// their digests.
func (a *storedArtifact) Whole() error {
	for _, d := range a.graph.Blobs {
		info, err := os.Stat(a.path(d.Digest))
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("%s: %w", d.Digest, errIncomplete)
		case err != nil:
			return err
		case !info.Mode().IsRegular() || info.Size() != d.Size:
			return fmt.Errorf("%s has %d bytes, not %d: %w", d.Digest, info.Size(), d.Size, errIncomplete)
		}
	}
	return nil
}

func (a *storedArtifact) readManifest(d digest.Digest) ([]byte, error) {
	f, err := os.Open(a.path(d))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", d, errIncomplete)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, graph.MaxManifestBytes+1))
	if err != nil {
		return nil, err
	}
	if digest.FromBytes(data) != d {
		return nil, fmt.Errorf("%s is damaged: %w", d, errIncomplete)
	}
	return data, nil
}

func (a *storedArtifact) path(d digest.Digest) string { return blobPath(a.dir, d) }

func blobPath(layout string, d digest.Digest) string {
	return filepath.Join(layout, "blobs", d.Algorithm().String(), d.Encoded())
}

// Link makes the artifact's manifests and blobs part of another OCI layout, by hard links, so that they take no room of their
// own. An error means that the layout has only some of them.
func (a *storedArtifact) Link(layout string) error {
	for _, d := range a.graph.All() {
		if err := a.link(layout, d.Digest); err != nil {
			return err
		}
	}
	return nil
}

func (a *storedArtifact) link(layout string, d digest.Digest) error {
	to := blobPath(layout, d)
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	err := os.Link(a.path(d), to)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

// Keep copies the manifests to another OCI layout, and of the blobs those whose title, the name of a file, is one of these.
// They are on the disk when it returns.
func (a *storedArtifact) Keep(layout string, titles ...string) error {
	keep := map[digest.Digest]bool{}
	for d, data := range a.manifests {
		keep[d] = true
		var m ocispec.Manifest
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		for _, layer := range m.Layers {
			if slices.Contains(titles, layer.Annotations[ocispec.AnnotationTitle]) {
				keep[layer.Digest] = true
			}
		}
	}
	for d := range keep {
		if err := os.MkdirAll(filepath.Dir(blobPath(layout, d)), 0o700); err != nil {
			return err
		}
		if err := a.copy(layout, d); err != nil {
			return err
		}
	}
	return nil
}

// maxKept bounds a file that is kept.
const maxKept = 16 << 20

func (a *storedArtifact) copy(layout string, d digest.Digest) error {
	f, err := os.Open(a.path(d))
	if err != nil {
		return err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxKept+1))
	if err != nil {
		return err
	}
	if digest.FromBytes(data) != d {
		return fmt.Errorf("%s is damaged, or has more than %d bytes", d, maxKept)
	}
	return diskfile.WriteFile(blobPath(layout, d), data)
}
