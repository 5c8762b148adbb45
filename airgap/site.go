package airgap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/diskfile"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
)

// ErrFormat is wrapped by errors about files that hold no OCI layout in a tar, or not the wanted kind.
var ErrFormat = archive.ErrFormat

// file is a layout in an open file.
type file struct {
	*archive.Layout
	opened *os.File
}

func openFile(path string) (*file, error) {
	f, err := diskfile.Open(path)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	var l *archive.Layout
	if err == nil {
		l, err = archive.Open(f, info.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, errors.Join(err, f.Close()))
	}
	return &file{l, f}, nil
}

func (f *file) Close() error { return f.opened.Close() }

// Site is an opened site package. It may be used by several goroutines. The caller closes it.
type Site struct{ layout *file }

// Open opens the file at path. Its error wraps ErrFormat if the file is no OCI layout in a tar. The
// caller closes the Site.
func Open(path string) (*Site, error) {
	l, err := openFile(path)
	if err != nil {
		return nil, err
	}
	return &Site{l}, nil
}

// Close closes the file.
func (s *Site) Close() error { return s.layout.Close() }

// Bundles lists the streams of the file's bundles, sorted by repository. Their Platform is empty, since it
// is not known before the bundle is verified.
func (s *Site) Bundles() []bundle.Stream {
	var streams []bundle.Stream
	for _, d := range s.layout.Index().Manifests {
		repository, tag := path.Split(d.Annotations[ocispec.AnnotationRefName])
		parts := strings.Split(strings.TrimSuffix(repository, "/"), "/")
		if tag == bundle.LatestTag && len(parts) == 3 && parts[0] == "bundles" {
			streams = append(streams, bundle.Stream{Environment: parts[1], ClusterType: parts[2]})
		}
	}
	slices.SortFunc(streams, func(a, b bundle.Stream) int { return strings.Compare(a.Repository(), b.Repository()) })
	return streams
}

// Repository returns the stream's tags and content.
func (s *Site) Repository(stream bundle.Stream) bundle.Source {
	return siteRepository{s.layout, stream.Repository()}
}

// Trust returns the repository of trust documents. It is empty if the file has none.
func (s *Site) Trust() bundle.Source { return siteRepository{s.layout, bundle.TrustRepository} }

type siteRepository struct {
	*file
	name string
}

func (r siteRepository) Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error) {
	return r.file.Resolve(ctx, r.name+"/"+tag)
}
