package desired

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/bundle/oci/archive"
	"github.com/wherry-dev/wherry/hub/store"
	"github.com/wherry-dev/wherry/published"
)

// ErrNoTrust means that a follower trusts nobody.
var ErrNoTrust = errors.New("this hub trusts no signatures on releases")

// Receive learns from an OCI layout in a tar, of this size in bytes, what a publisher has sent: an environment record, the
// releases that it names, trust documents and all their signatures, under the names that they have below a location. May is
// asked before anything is stored, and its error is returned. If content of releases is missing, the result names it and
// the record is not stored; who sends everything again together with that succeeds.
//
// The error wraps store.ErrInvalid if the archive is not of that kind, ErrNoTrust, or is a *bundle.Refusal.
func (f *Follower) Receive(ctx context.Context, from io.ReaderAt, size int64, may func(platform, environment string) error) (Learned, error) {
	if !f.known.trusts() {
		return Learned{}, ErrNoTrust
	}
	layout, err := archive.Open(from, size)
	if errors.Is(err, archive.ErrFormat) {
		return Learned{}, fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	if err != nil {
		return Learned{}, err
	}
	var names []string
	var record ocispec.Descriptor
	for _, d := range layout.Index().Manifests {
		repository, ok := strings.CutSuffix(d.Annotations[ocispec.AnnotationRefName], "/"+bundle.LatestTag)
		if name, is := published.EnvironmentOf(repository); ok && is {
			names, record = append(names, name), ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		}
	}
	if len(names) != 1 {
		return Learned{}, fmt.Errorf("%w: the archive has %d environment records, expected one", store.ErrInvalid, len(names))
	}
	loc := oci.Location{Archive: "what was sent"}
	done, err := f.learn(ctx, published.At(loc, oci.ArchiveOf(loc.Archive, layout), published.AsItLies()), names[0], record, may)
	if errors.Is(err, archive.ErrFormat) {
		err = fmt.Errorf("%w: %w", store.ErrInvalid, err)
	}
	return done, err
}
