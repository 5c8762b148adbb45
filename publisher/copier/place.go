package copier

import (
	"context"
	"errors"
	"io"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/delta"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
)

// Error is an error of one of the two places of a copy.
type Error struct {
	At  oci.Location
	Err error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// place is one of the two ends of a copy. It is a store whose errors are blamed on it.
type place struct {
	at    oci.Location
	store oci.Store
}

func openPlace(at oci.Location, opts oci.Options) (place, error) {
	store, err := at.Open(opts)
	if err != nil {
		return place{}, &Error{at, err}
	}
	return place{at, store}, nil
}

func (p place) repository(name string) (placedRepository, error) {
	repo, err := p.store.Repository(name)
	return placedRepository{repo, p, name}, err
}

func (p place) Repository(name string) (oci.Target, error) { return p.repository(name) }

func (p place) Repositories(ctx context.Context) ([]string, error) {
	names, err := p.store.Repositories(ctx)
	return names, p.blame(err)
}

// published reads what lies there, whoever signed it.
func (p place) published() *published.Place { return published.At(p.at, p, published.AsItLies()) }

// blame adds the place to err, unless err has one: a push also fails when the source of its content does, and then the
// source is to blame.
func (p place) blame(err error) error {
	if err == nil || errors.As(err, new(*Error)) {
		return err
	}
	return &Error{p.at, err}
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

// ResolveManifest is that of bundle.ResolveManifest.
func (r placedRepository) ResolveManifest(ctx context.Context, reference string) (ocispec.Descriptor, error) {
	desc, err := bundle.ResolveManifest(ctx, r.Target, reference)
	return desc, r.place.blame(err)
}

func (r placedRepository) Tags(ctx context.Context) ([]string, error) {
	tags, err := r.Target.Tags(ctx)
	return tags, r.place.blame(err)
}

func (r placedRepository) Referrers(ctx context.Context, subject ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	all, err := r.Target.Referrers(ctx, subject)
	return all, r.place.blame(err)
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
		return nil, r.place.blame(delta.Missing(target, err))
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
			return n, refusal(bundle.DigestMismatch, "blob %s of %s is not what its digest says: %v", b.target.Digest, b.repo.fullName(), bad)
		}
	}
	return n, err
}
