package desired

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// place is where published content is read: a registry, a folder, or an archive that a publisher has sent.
type place interface {
	repository(name string) (repository, error)
}

// repository is the part of a repository that a follower needs.
type repository interface {
	bundle.Source
	// Tags lists the tags, sorted.
	Tags(ctx context.Context) ([]string, error)
}

// inStore is a registry or a folder.
type inStore struct{ oci.Store }

func (s inStore) repository(name string) (repository, error) { return s.Repository(name) }

// inArchive is an archive.
type inArchive struct {
	layout *archive.Layout
	named  map[string]ocispec.Descriptor // by repository and tag, joined by a slash
}

func openArchive(from io.ReaderAt, size int64) (inArchive, error) {
	layout, err := archive.Open(from, size)
	if err != nil {
		return inArchive{}, err
	}
	a := inArchive{layout, map[string]ocispec.Descriptor{}}
	for _, d := range layout.Index().Manifests {
		a.named[d.Annotations[ocispec.AnnotationRefName]] = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
	}
	return a, nil
}

func (a inArchive) repository(name string) (repository, error) {
	return archived{a, name + "/"}, oci.CheckName(name)
}

// environments names those whose records are in the archive, sorted.
func (a inArchive) environments() (names []string) {
	for ref := range a.named {
		if name, ok := strings.CutPrefix(ref, bundle.EnvironmentRepository("")); ok {
			if name, ok = strings.CutSuffix(name, "/"+bundle.LatestTag); ok {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

type archived struct {
	inArchive
	prefix string
}

func (r archived) Resolve(_ context.Context, reference string) (ocispec.Descriptor, error) {
	if d, ok := r.named[r.prefix+reference]; ok {
		return d, nil
	}
	d := digest.Digest(reference)
	if size, ok := r.layout.Size(d); ok {
		return ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: d, Size: size}, nil
	}
	return ocispec.Descriptor{}, fmt.Errorf("%s%.100s: %w", r.prefix, reference, errdef.ErrNotFound)
}

func (r archived) Fetch(ctx context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	return r.layout.Fetch(ctx, d)
}

func (r archived) Tags(context.Context) (tags []string, err error) {
	for ref := range r.named {
		if tag, ok := strings.CutPrefix(ref, r.prefix); ok && oci.CheckTag(tag) == nil {
			tags = append(tags, tag)
		}
	}
	slices.Sort(tags)
	return tags, nil
}
