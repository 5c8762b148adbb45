package published

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// MaxListed is how many releases of a cluster type are listed, and looked through for a name.
const MaxListed = 1000

// Listed is a release with the moving tags that name it, sorted.
type Listed struct {
	*bundle.Verified
	Tags []string
}

// List returns the releases that moving tags name, and at most that many of the newest others, each once and newest first. Of the
// others it passes over those that are refused.
func (t Type) List(ctx context.Context, most int) ([]Listed, error) {
	tags, err := t.Tags(ctx)
	if err != nil {
		return nil, err
	}
	moving := slices.Sorted(maps.Keys(tags.Moving))
	found, err := t.ReadAll(ctx, append(slices.Clone(moving), tags.Newest(Own, min(most, MaxListed))...))
	if err != nil {
		return nil, err
	}
	var list []Listed
	for i, f := range found {
		isMoving := i < len(moving)
		switch {
		case f.Err != nil && isMoving && !errors.Is(f.Err, errdef.ErrNotFound):
			return nil, f.Err
		case f.Err != nil:
			continue
		}
		at := slices.IndexFunc(list, func(l Listed) bool { return l.Descriptor.Digest == f.Value.Descriptor.Digest })
		if at < 0 {
			at = len(list)
			list = append(list, Listed{Verified: f.Value})
		}
		if isMoving {
			list[at].Tags = append(list[at].Tags, f.Ref)
		}
	}
	slices.SortFunc(list, func(a, b Listed) int { return OrderOf(b.Verified).Compare(OrderOf(a.Verified)) })
	return list, nil
}

// OrderOf returns the place of a release among those of its stream.
func OrderOf(v *bundle.Verified) bundle.Order { return bundle.OrderOf(v.Release, v.Descriptor.Digest) }

// OrderOfRecord returns the place of a record among those of its environment.
func OrderOfRecord(v *bundle.VerifiedEnvironment) bundle.Order {
	return bundle.Order{Epoch: v.Record.Epoch, Sequence: v.Record.Sequence, IssuedAt: v.Record.IssuedAt, Digest: v.Descriptor.Digest}
}

// UnknownReleaseError means that no release of a repository has the requested name.
type UnknownReleaseError struct {
	// Reference is the requested reference, and Repository the same without the release.
	Reference, Repository oci.Reference
	err                   error
}

func (e *UnknownReleaseError) Error() string {
	return fmt.Sprintf("%s: no release there is called %s", e.Repository, e.Reference.Tag)
}

// Unwrap returns the error of looking for a tag of that name.
func (e *UnknownReleaseError) Unwrap() error { return e.err }

// Find looks for the release that people call by a name, see bundle.ParseReleaseQuery, whoever signed it. NotFound is the error of
// looking for a tag of that name. The error is an *UnknownReleaseError, or a *bundle.AmbiguousError, if no single release is
// called so.
func (t Type) Find(ctx context.Context, name string, notFound error) (ocispec.Descriptor, error) {
	query, err := bundle.ParseReleaseQuery(name)
	if err != nil {
		return ocispec.Descriptor{}, notFound
	}
	list, err := t.By(AsItLies()).List(ctx, MaxListed)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var ids []bundle.ReleaseID
	for _, l := range list {
		ids = append(ids, bundle.IDOf(l.Release, l.Descriptor.Digest))
	}
	i, err := query.Find(ids, time.Now())
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if i < 0 {
		at := oci.Reference{Location: t.place.Location, Repository: t.Name}
		asked := at
		asked.Tag = name
		return ocispec.Descriptor{}, &UnknownReleaseError{Reference: asked, Repository: at, err: notFound}
	}
	return list[i].Descriptor, nil
}

// Resolve returns the repository that a reference names, and the manifest there. Its tag may also be another name of a release; see
// [Type.Find]. A tag of that very name goes first.
func Resolve(ctx context.Context, ref oci.Reference, opts oci.Options, signers Signers) (Type, ocispec.Descriptor, error) {
	if own, ok := Split(ref); ok {
		ref = own
	}
	p, err := Open(ref.Location, opts, signers)
	if err != nil {
		return Type{}, ocispec.Descriptor{}, err
	}
	t, err := p.Named(ref.Repository)
	if err != nil {
		return t, ocispec.Descriptor{}, err
	}
	_, desc, err := ref.Resolve(ctx, opts)
	if errors.Is(err, errdef.ErrNotFound) && ref.Tag != "" {
		desc, err = t.Find(ctx, ref.Tag, err)
	}
	return t, desc, err
}
