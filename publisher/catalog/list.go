package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// Listed is a release of a cluster type, as it lies there. Its JSON form is an interface.
type Listed struct {
	Environment string    `json:"environment"`
	ClusterType string    `json:"clusterType"`
	Platform    string    `json:"platform"`
	Number      int64     `json:"number,omitempty"`
	Sequence    int64     `json:"sequence"`
	Epoch       int64     `json:"epoch"`
	IssuedAt    time.Time `json:"issuedAt"`
	ExpiresAt   time.Time `json:"expiresAt"`
	BaseCommit  string    `json:"baseCommit,omitempty"`
	// EnvironmentCommit and Message are as the publisher gave them; see bundle.CheckMessage.
	EnvironmentCommit string `json:"environmentCommit,omitempty"`
	Message           string `json:"message,omitempty"`
	Files             int    `json:"files"`
	// Held counts the assignments whose content is that of an earlier release.
	Held   int           `json:"held,omitempty"`
	Digest digest.Digest `json:"digest"`
	// Content is the digest of the release's tree: releases with the same one bring the same to clusters.
	Content digest.Digest `json:"content,omitempty"`
	// Rings are those that the release is for. Empty means all.
	Rings []string `json:"rings,omitempty"`
	// Tags lists the moving tags that name the release, sorted: latest, and ring-NAME for each ring that has it.
	Tags []string `json:"tags,omitempty"`
	// Expired and ExpiresSoon are as of the time of listing; see bundle.Expiry.
	Expired     bool `json:"expired,omitempty"`
	ExpiresSoon bool `json:"expiresSoon,omitempty"`
}

// Name is the release's short name, such as "12 (68846e7d)".
func (l Listed) Name() string { return bundle.ReleaseName(l.Number, l.Digest) }

// Expiry returns the expiry of the release, seen from now.
func (l Listed) Expiry(now time.Time) bundle.Expiry {
	return bundle.ExpiryOf(l.IssuedAt, l.ExpiresAt, now)
}

func (l Listed) id() bundle.ReleaseID {
	return bundle.ReleaseID{Number: l.Number, Epoch: l.Epoch, Sequence: l.Sequence, IssuedAt: l.IssuedAt, Digest: l.Digest}
}

// List lists the releases that agents follow: those that latest and the rings' tags name, of each cluster type, or
// of those of one environment where it is named. It does not ask who signed them. Where the registry does not list
// repositories it follows the environment's record, for which the environment must be named; else the error wraps
// errors.ErrUnsupported. It is a *NoEnvironmentError where other environments alone are there.
func List(ctx context.Context, loc oci.Location, environment string, now time.Time, opts oci.Options) ([]Listed, error) {
	store, err := loc.Open(opts)
	if err != nil {
		return nil, err
	}
	repositories, err := store.Repositories(ctx)
	if errors.Is(err, errors.ErrUnsupported) && environment != "" {
		repositories, err = repositoriesOfRecord(ctx, store, environment)
	} else if err == nil && environment != "" {
		err = CheckEnvironment(environment, loc, repositories)
	}
	if err != nil {
		return nil, err
	}
	list := []Listed{}
	for _, name := range repositories {
		part := strings.Split(name, "/")
		if len(part) != 3 || part[0] != "bundles" || environment != "" && part[1] != environment {
			continue
		}
		repo, err := store.Repository(name)
		if err != nil {
			return nil, err
		}
		t, err := releases.ReadTags(ctx, repo)
		if err == nil {
			var all []Listed
			all, err = readList(ctx, repo, t, nil, now)
			list = append(list, all...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	slices.SortStableFunc(list, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Environment, b.Environment), cmp.Compare(a.ClusterType, b.ClusterType))
	})
	return list, nil
}

// ListReleases lists the releases of the cluster type whose repository ref names, the newest first, without verifying
// their signatures. It skips everything in the repository that is no release.
func ListReleases(ctx context.Context, ref oci.Reference, now time.Time, opts oci.Options) ([]Listed, error) {
	store, err := ref.Location.Open(opts)
	if err != nil {
		return nil, err
	}
	repo, err := store.Repository(ref.Repository)
	if err != nil {
		return nil, err
	}
	return listReleases(ctx, repo, now)
}

// ListNewest is ListReleases for at most that many of the newest releases, beside those that agents follow.
func ListNewest(ctx context.Context, ref oci.Reference, most int, now time.Time, opts oci.Options) ([]Listed, error) {
	store, err := ref.Location.Open(opts)
	if err != nil {
		return nil, err
	}
	repo, err := store.Repository(ref.Repository)
	if err != nil {
		return nil, err
	}
	t, err := releases.ReadTags(ctx, repo)
	if err != nil {
		return nil, err
	}
	return readList(ctx, repo, t, t.Newest(releases.ReleaseFormat, min(most, maxListed)), now)
}

func listReleases(ctx context.Context, repo oci.Target, now time.Time) ([]Listed, error) {
	t, err := releases.ReadTags(ctx, repo)
	if err != nil {
		return nil, err
	}
	return readList(ctx, repo, t, t.Newest(releases.ReleaseFormat, maxListed), now)
}

const (
	// maxListed is how many releases of a cluster type are listed, and looked through for a name.
	maxListed = 1000
	// readsAtOnce is how many of them are read at the same time.
	readsAtOnce = 8
)

// readList reads the releases that the moving tags of repo name, and those under the tags own, and returns each once,
// the newest first. Of those under own, what cannot be read as a release is passed over.
func readList(ctx context.Context, repo oci.Target, t releases.Tags, own []string, now time.Time) ([]Listed, error) {
	var moving []string
	for tag, d := range t.Moving {
		if d != "" {
			moving = append(moving, tag)
		}
	}
	slices.Sort(moving)
	found := make([]*Listed, len(moving)+len(own))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(readsAtOnce)
	for i, tag := range append(moving, own...) {
		group.Go(func() error {
			l, err := readListed(ctx, repo, tag)
			if i >= len(moving) || errors.Is(err, errdef.ErrNotFound) {
				err = releases.UnlessRefused(err)
			}
			found[i] = l
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var list []Listed
	for i, l := range found {
		if l == nil {
			continue
		}
		at := slices.IndexFunc(list, func(o Listed) bool { return o.Digest == l.Digest })
		if at < 0 {
			at = len(list)
			e := l.Expiry(now)
			l.Expired, l.ExpiresSoon = e.Expired, e.Soon
			list = append(list, *l)
		}
		if i < len(moving) {
			list[at].Tags = append(list[at].Tags, moving[i])
		}
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return listedOrder(b).Compare(listedOrder(a))
	})
	return list, nil
}

func listedOrder(l Listed) bundle.Order {
	return bundle.Order{Epoch: l.Epoch, Sequence: l.Sequence, IssuedAt: l.IssuedAt, Digest: l.Digest}
}

func readListed(ctx context.Context, repo oci.Target, tag string) (*Listed, error) {
	desc, err := repo.Resolve(ctx, tag)
	if err != nil {
		return nil, err
	}
	m, r, err := releases.ReadRelease(ctx, repo, desc)
	if err != nil {
		return nil, err
	}
	return &Listed{
		Environment: r.Environment, ClusterType: r.ClusterType, Platform: r.Platform, Number: r.Number, Sequence: r.Sequence, Epoch: r.Epoch,
		IssuedAt: r.IssuedAt, ExpiresAt: r.ExpiresAt, BaseCommit: r.BaseCommit, Files: r.Content.Files, Held: heldCount(m), Digest: desc.Digest, Content: r.Content.DiffID,
		Rings: r.Rings, EnvironmentCommit: r.EnvironmentCommit, Message: bundle.MessageOf(*m),
	}, nil
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

// Resolve is ref.Resolve, but the tag may also be another name of a release; see bundle.ParseReleaseQuery. A tag of
// that very name goes first. The error is an *UnknownReleaseError, or a *bundle.AmbiguousError, where no single
// release is called so.
func Resolve(ctx context.Context, ref oci.Reference, opts oci.Options) (oci.Target, ocispec.Descriptor, error) {
	repo, desc, err := ref.Resolve(ctx, opts)
	if !errors.Is(err, errdef.ErrNotFound) {
		return repo, desc, err
	}
	if ref.Tag == "" && ref.Location.Local() { // DIR/bundles/dev/drone/12
		if b, noBundle := BundleReference(ref); noBundle == nil && b.Tag != "" {
			return Resolve(ctx, b, opts)
		}
	}
	if ref.Tag != "" {
		desc, err = FindRelease(ctx, repo, ref, err)
	}
	return repo, desc, err
}

// FindRelease looks for the release of repo that ref's tag is a name of; notFound is the error of looking for the tag.
func FindRelease(ctx context.Context, repo oci.Target, ref oci.Reference, notFound error) (ocispec.Descriptor, error) {
	query, err := bundle.ParseReleaseQuery(ref.Tag)
	if err != nil {
		return ocispec.Descriptor{}, notFound
	}
	now := time.Now()
	list, err := listReleases(ctx, repo, now)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var ids []bundle.ReleaseID
	for _, l := range list {
		ids = append(ids, l.id())
	}
	i, err := query.Find(ids, now)
	switch {
	case err != nil:
		return ocispec.Descriptor{}, err
	case i < 0:
		unknown := &UnknownReleaseError{Reference: ref, Repository: ref, err: notFound}
		unknown.Repository.Tag = ""
		return ocispec.Descriptor{}, unknown
	}
	return repo.Resolve(ctx, ids[i].Digest.String())
}

func repositoriesOfRecord(ctx context.Context, store oci.Store, environment string) ([]string, error) {
	repo, err := store.Repository(bundle.EnvironmentRepository(environment))
	if err != nil {
		return nil, err
	}
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	if err != nil {
		return nil, err
	}
	record, err := releases.ReadRecord(ctx, repo, desc)
	if err != nil {
		return nil, err
	}
	var names []string
	for ct := range record.ClusterTypes {
		names = append(names, bundle.Stream{Environment: environment, ClusterType: ct}.Repository())
	}
	return names, nil
}
