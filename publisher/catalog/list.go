package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
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

// List lists the releases that agents follow: those that latest and the rings' tags name, of each cluster type, or
// of those of one environment where it is named. It does not ask who signed them. Where the registry does not list
// repositories it follows the environment's record, for which the environment must be named; else the error wraps
// errors.ErrUnsupported. It is a *NoEnvironmentError where other environments alone are there.
func List(ctx context.Context, loc oci.Location, environment string, now time.Time, opts oci.Options) ([]Listed, error) {
	at, err := published.Open(loc, opts, published.AsItLies())
	if err != nil {
		return nil, err
	}
	streams, err := streamsAt(ctx, at, environment)
	if err != nil {
		return nil, err
	}
	list := []Listed{}
	for _, s := range streams {
		t, err := at.Type(s)
		if err != nil {
			return nil, err
		}
		all, err := listType(ctx, t, 0, now)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		list = append(list, all...)
	}
	slices.SortStableFunc(list, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Environment, b.Environment), cmp.Compare(a.ClusterType, b.ClusterType))
	})
	return list, nil
}

// streamsAt returns the streams of an environment, or of all if that is empty.
func streamsAt(ctx context.Context, at *published.Place, environment string) (all []bundle.Stream, err error) {
	repositories, err := at.Store.Repositories(ctx)
	if !errors.Is(err, errors.ErrUnsupported) || environment == "" {
		if err == nil && environment != "" {
			err = published.CheckEnvironment(environment, at.Location, repositories)
		}
		return published.StreamsOf(repositories, environment), err
	}
	e, err := at.Environment(environment)
	if err != nil {
		return nil, err
	}
	record, _, err := e.Read(ctx, bundle.LatestTag)
	if err != nil {
		return nil, err
	}
	for ct := range record.Record.ClusterTypes {
		all = append(all, bundle.Stream{Environment: environment, ClusterType: ct})
	}
	return all, nil
}

// ListReleases lists at most that many of the newest releases of the cluster type whose repository ref names, and those that agents
// follow, the newest first, without verifying their signatures. It skips everything in the repository that is no release.
func ListReleases(ctx context.Context, ref oci.Reference, most int, now time.Time, opts oci.Options) ([]Listed, error) {
	at, err := published.Open(ref.Location, opts, published.AsItLies())
	if err != nil {
		return nil, err
	}
	t, err := at.Named(ref.Repository)
	if err != nil {
		return nil, err
	}
	return listType(ctx, t, most, now)
}

func listType(ctx context.Context, t published.Type, most int, now time.Time) ([]Listed, error) {
	found, err := t.List(ctx, most)
	var list []Listed
	for _, f := range found {
		r, e := f.Release, f.Release.Expiry(now)
		list = append(list, Listed{
			Environment: r.Environment, ClusterType: r.ClusterType, Platform: r.Platform, Number: r.Number, Sequence: r.Sequence, Epoch: r.Epoch,
			IssuedAt: r.IssuedAt, ExpiresAt: r.ExpiresAt, BaseCommit: r.BaseCommit, Files: r.Content.Files, Held: heldCount(&f.Manifest), Digest: f.Descriptor.Digest, Content: r.Content.DiffID,
			Rings: r.Rings, EnvironmentCommit: r.EnvironmentCommit, Message: bundle.MessageOf(f.Manifest), Tags: f.Tags, Expired: e.Expired, ExpiresSoon: e.Soon,
		})
	}
	return list, err
}

func heldCount(m *ocispec.Manifest) int {
	n, _ := strconv.Atoi(m.Annotations[releases.AnnotationHeld])
	return n
}
