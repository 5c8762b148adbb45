package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/impact"
)

// Release is a release of the past or the present. Its JSON form is an interface.
type Release struct {
	Listed
	// SameAs is the number of an older release with the same content, where it is known; 0 if there is none.
	SameAs int64 `json:"sameAs,omitempty"`
	// Clusters counts the clusters that run it, as a hub knows them, or those whose ring follows it, as a roster lists them.
	// Nil means that nobody knows.
	Clusters *int `json:"clusters,omitempty"`
	// ClustersFrom is impact.FromHub or impact.FromRoster.
	ClustersFrom string `json:"clustersFrom,omitempty"`
	// Signed is nil if nobody asked who signed it. Refused is the reason why it is not trusted.
	Signed  *bool  `json:"signed,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// Releases returns at most that many of the newest releases of the cluster type whose repository ref names, and those that
// agents follow, the newest first.
func Releases(ctx context.Context, ref oci.Reference, most int, signers published.Signers, fleet impact.Fleet, now time.Time, opts oci.Options) ([]Release, error) {
	list, err := ListReleases(ctx, ref, most, now, opts)
	if err != nil {
		return nil, err
	}
	return complete(ctx, list, func(Listed) oci.Reference { return ref }, signers, fleet, opts)
}

// Followed returns the releases that agents follow at a location, of one environment.
func Followed(ctx context.Context, loc oci.Location, environment string, signers published.Signers, fleet impact.Fleet, now time.Time, opts oci.Options) ([]Release, error) {
	list, err := List(ctx, loc, environment, now, opts)
	if err != nil {
		return nil, err
	}
	of := func(l Listed) oci.Reference {
		return oci.Reference{Location: loc, Repository: bundle.Stream{Environment: l.Environment, ClusterType: l.ClusterType}.Repository()}
	}
	return complete(ctx, list, of, signers, fleet, opts)
}

// complete adds what a list of releases does not say.
func complete(ctx context.Context, list []Listed, of func(Listed) oci.Reference, signers published.Signers, fleet impact.Fleet, opts oci.Options) ([]Release, error) {
	all := []Release{}
	for i, l := range list {
		r := Release{Listed: l, SameAs: sameAs(l, list[i+1:])}
		if fleet.From != "" {
			n := clustersOf(l, fleet)
			r.Clusters, r.ClustersFrom = &n, fleet.From
		}
		if signers.Verify() {
			ref := of(l)
			repo, err := ref.Location.Repository(ref.Repository, opts)
			if err == nil {
				err = r.verify(ctx, repo, signers)
			}
			if err != nil {
				return nil, err
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// sameAs returns the number of the newest of older releases that has the content of l.
func sameAs(l Listed, older []Listed) int64 {
	for _, o := range older {
		if o.ClusterType == l.ClusterType && o.Environment == l.Environment && o.Content == l.Content {
			return o.Number
		}
	}
	return 0
}

// clustersOf counts the clusters that run a release, or follow it.
func clustersOf(l Listed, fleet impact.Fleet) int {
	n := 0
	for _, c := range fleet.Of(l.ClusterType) {
		if fleet.From == impact.FromHub && c.Release == l.Digest || fleet.From != impact.FromHub && slices.Contains(l.Tags, bundle.MovingTag(c.Ring)) {
			n++
		}
	}
	return n
}

// verify asks who signed a release. Only an error of the registry is one.
func (r *Release) verify(ctx context.Context, repo oci.Target, signers published.Signers) error {
	_, _, err := signers.SignersOf(ctx, repo, r.Digest)
	var refusal *bundle.Refusal
	signed := err == nil
	r.Signed = &signed
	if errors.As(err, &refusal) {
		r.Refused, err = string(refusal.Reason), nil
	}
	return err
}

// Newest returns ref with the tag of the newest release of its cluster type, whatever ring that is for.
func Newest(ctx context.Context, ref oci.Reference, now time.Time, opts oci.Options) (oci.Reference, error) {
	list, err := ListReleases(ctx, ref, 1, now, opts)
	if err != nil {
		return ref, err
	}
	if len(list) == 0 {
		return ref, fmt.Errorf("no releases at %s (%w)", ref, errdef.ErrNotFound)
	}
	ref.Digest = list[0].Digest
	return ref, nil
}
