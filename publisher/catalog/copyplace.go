package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// CopyError is an error of one of the two places of a copy.
type CopyError struct {
	At  oci.Location
	Err error
}

func (e *CopyError) Error() string { return e.Err.Error() }
func (e *CopyError) Unwrap() error { return e.Err }

// bundleRepository finds where a location's prefix ends.
var bundleRepository = regexp.MustCompile(`^(?:(.+)/)?(bundles/[^/]+/[^/]+)$`)

// BundleReference returns ref with the location's prefix told from the repository, which must be a bundle's.
func BundleReference(ref oci.Reference) (oci.Reference, error) {
	name := ref.Repository
	if dir, tag, ok := cutLast(name); ok && ref.Location.Dir != "" && ref.Tag == "" && ref.Digest == "" && strings.Count(name, "/") == 3 {
		name, ref.Tag = dir, tag // DIR/bundles/dev/drone/latest, as a layout's index has it
	}
	m := bundleRepository.FindStringSubmatch(name)
	if m == nil || m[1] != "" && ref.Location.Dir != "" {
		return ref, fmt.Errorf("%s names no bundle, which is LOCATION/bundles/ENVIRONMENT/TYPE", ref)
	}
	if ref.Repository = m[2]; m[1] != "" {
		ref.Location.Prefix = m[1]
	}
	return ref, nil
}

func cutLast(name string) (before, after string, found bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}

// place is one of the two ends of a copy.
type place struct {
	at    oci.Location
	store oci.Store
}

func openPlace(at oci.Location, opts oci.Options) (place, error) {
	store, err := at.Open(opts)
	if err != nil {
		return place{}, &CopyError{at, err}
	}
	return place{at, store}, nil
}

func (p place) repository(name string) (placedRepository, error) {
	repo, err := p.store.Repository(name)
	return placedRepository{repo, p, name}, err
}

// blame adds the place to err, unless err has one: a push also fails when the source of its content does, and then the
// source is to blame.
func (p place) blame(err error) error {
	if err == nil || errors.As(err, new(*CopyError)) {
		return err
	}
	return &CopyError{p.at, err}
}

// placedRepository is a repository whose errors name its place, and whose content is checked against its descriptor.
type placedRepository struct {
	oci.Target
	place place
	name  string
}

func (r placedRepository) fullName() string { return r.place.at.Name(r.name) }

func (r placedRepository) Resolve(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := r.Target.Resolve(ctx, reference)
	return desc, r.place.blame(err)
}

func (r placedRepository) Tags(ctx context.Context) ([]string, error) {
	tags, err := r.Target.Tags(ctx)
	return tags, r.place.blame(err)
}

func (r placedRepository) Exists(ctx context.Context, target ocispec.Descriptor) (bool, error) {
	there, err := r.Target.Exists(ctx, target)
	return there, r.place.blame(err)
}

func (r placedRepository) Push(ctx context.Context, expected ocispec.Descriptor, from io.Reader) error {
	return r.place.blame(r.Target.Push(ctx, expected, from))
}

func (r placedRepository) Tag(ctx context.Context, desc ocispec.Descriptor, tag string) error {
	return r.place.blame(r.Target.Tag(ctx, desc, tag))
}

func (r placedRepository) Fetch(ctx context.Context, target ocispec.Descriptor) (io.ReadCloser, error) {
	body, err := r.Target.Fetch(ctx, target)
	if err != nil {
		return nil, r.place.blame(err)
	}
	return &placedBody{content.NewVerifyReader(body, target), body, r, target, target.Size}, nil
}

type placedBody struct {
	checked *content.VerifyReader
	io.Closer
	repo   placedRepository
	target ocispec.Descriptor
	left   int64
}

// Read returns an error with the last byte of the content unless the content matches its descriptor.
func (b *placedBody) Read(p []byte) (int, error) {
	n, err := b.checked.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		return n, b.repo.place.blame(err)
	}
	if b.left -= int64(n); b.left == 0 {
		if bad := b.checked.Verify(); bad != nil {
			return n, copyRefusal(bundle.DigestMismatch, "blob %s of %s is not what its digest says: %v", b.target.Digest, b.repo.fullName(), bad)
		}
	}
	return n, err
}
