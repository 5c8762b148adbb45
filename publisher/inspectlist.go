package publisher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/errdef"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
)

// Listed is the newest release of a cluster type, as it lies there. Its JSON form is an interface.
type Listed struct {
	Environment string    `json:"environment"`
	ClusterType string    `json:"clusterType"`
	Platform    string    `json:"platform"`
	Sequence    int64     `json:"sequence"`
	Epoch       int64     `json:"epoch"`
	IssuedAt    time.Time `json:"issuedAt"`
	ExpiresAt   time.Time `json:"expiresAt"`
	BaseCommit  string    `json:"baseCommit,omitempty"`
	Files       int       `json:"files"`
	// Held counts the assignments whose content is that of an earlier release.
	Held   int           `json:"held,omitempty"`
	Digest digest.Digest `json:"digest"`
}

// List lists the newest release of each cluster type, of one environment where it is named, without
// asking who signed them. Where the registry does not list repositories it follows the environment's
// record, for which the environment must be named; else the error wraps errors.ErrUnsupported. It is a
// *NoEnvironmentError where other environments alone are there.
func List(ctx context.Context, loc oci.Location, environment string, opts oci.Options) ([]Listed, error) {
	store, err := loc.Open(opts)
	if err != nil {
		return nil, err
	}
	repositories, err := store.Repositories(ctx)
	if errors.Is(err, errors.ErrUnsupported) && environment != "" {
		repositories, err = repositoriesOfRecord(ctx, store, environment)
	} else if err == nil && environment != "" {
		err = lackOf(environment, loc, repositories)
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
		l, err := newest(ctx, store, name)
		if errors.Is(err, errdef.ErrNotFound) {
			continue // no release for all rings yet
		}
		if err != nil {
			return nil, err
		}
		list = append(list, *l)
	}
	slices.SortFunc(list, func(a, b Listed) int {
		return cmp.Or(cmp.Compare(a.Environment, b.Environment), cmp.Compare(a.ClusterType, b.ClusterType))
	})
	return list, nil
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
	record, err := readRecord(ctx, repo, desc)
	if err != nil {
		return nil, err
	}
	var names []string
	for ct := range record.ClusterTypes {
		names = append(names, bundle.Stream{Environment: environment, ClusterType: ct}.Repository())
	}
	return names, nil
}

func newest(ctx context.Context, store oci.Store, repository string) (*Listed, error) {
	repo, err := store.Repository(repository)
	if err != nil {
		return nil, err
	}
	desc, err := repo.Resolve(ctx, bundle.LatestTag)
	if err != nil {
		return nil, err
	}
	m, r, err := readRelease(ctx, repo, desc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", repository, err)
	}
	return &Listed{
		Environment: r.Environment, ClusterType: r.ClusterType, Platform: r.Platform, Sequence: r.Sequence, Epoch: r.Epoch,
		IssuedAt: r.IssuedAt, ExpiresAt: r.ExpiresAt, BaseCommit: r.BaseCommit, Files: r.Content.Files, Held: heldCount(m), Digest: desc.Digest,
	}, nil
}
