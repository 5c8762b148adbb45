package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/hub/store"
)

// published returns the store's releases and environment records.
func (f *fixture) published() store.Published {
	f.t.Helper()
	p, ok := f.Store.(store.Published)
	require.True(f.t, ok, "%T keeps no releases", f.Store)
	return p
}

// Release returns a verified release of type drone in the environment dev.
func Release(sequence int64) store.PublishedRelease {
	return store.PublishedRelease{
		Digest: digest.FromString(fmt.Sprint("release ", sequence)),
		Release: bundle.Release{
			Schema: bundle.ReleaseSchema, Platform: "shop", Environment: "dev", ClusterType: "drone", Sequence: sequence, Number: sequence,
			IssuedAt: Epoch.Add(time.Duration(sequence) * time.Minute), ExpiresAt: Epoch.Add(90 * 24 * time.Hour), BaseCommit: fmt.Sprintf("%040d", sequence),
			Content: bundle.Content{DiffID: digest.FromString(fmt.Sprint("content ", sequence)), Size: 10, Files: 1},
		},
		Message: "a drone flies", KeyIDs: []string{"k1", "k2"}, SeenAt: Epoch,
		Assignments: []bundle.Assignment{{Name: "drone-main", Workspace: "shop", Workload: "drone", Target: "main", Version: "1.0.0", Adapter: "directory"}},
		Artifacts:   []bundle.Artifact{{Type: "image", Name: "registry/drone", Reference: "registry/drone:1.0.0", Digest: string(digest.FromString("image")), UsedBy: []string{"drone-main"}}},
	}
}

// Record returns a verified environment record of dev, in which the release of type drone is the newest.
func Record(sequence int64, release digest.Digest) store.PublishedRecord {
	return store.PublishedRecord{
		Digest: digest.FromString(fmt.Sprint("record ", sequence)),
		EnvironmentRecord: bundle.EnvironmentRecord{
			Schema: bundle.EnvironmentSchema, Platform: "shop", Environment: "dev", Sequence: sequence, IssuedAt: Epoch.Add(time.Duration(sequence) * time.Minute),
			BaseCommit: fmt.Sprintf("%040d", sequence), ClusterTypes: map[string]digest.Digest{"drone": release}, Incomplete: []string{"large"},
		},
		KeyIDs: []string{"k1"}, SeenAt: Epoch,
	}
}

func (f *fixture) releases() (all []store.PublishedRelease) {
	f.t.Helper()
	require.NoError(f.t, f.published().Releases(f.t.Context(), func(r store.PublishedRelease) error {
		all = append(all, r)
		return nil
	}))
	return all
}

func (f *fixture) records() (all []store.PublishedRecord) {
	f.t.Helper()
	require.NoError(f.t, f.published().Records(f.t.Context(), func(r store.PublishedRecord) error {
		all = append(all, r)
		return nil
	}))
	return all
}

func publishedTests() []test {
	return []test{
		{"a release is kept with all that it has", func(t *testing.T, f *fixture) {
			want := Release(7)
			added, err := f.published().AddReleases(t.Context(), []store.PublishedRelease{want})
			require.NoError(t, err)
			require.Equal(t, 1, added)
			for _, f := range []*fixture{f, f.again()} {
				got, err := f.published().Release(t.Context(), want.Digest)
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
			_, err = f.published().Release(t.Context(), digest.FromString("other"))
			require.ErrorIs(t, err, store.ErrUnknownRelease)
		}},
		{"releases that are there already change nothing", func(t *testing.T, f *fixture) {
			first, second := Release(1), Release(2)
			added, err := f.published().AddReleases(t.Context(), []store.PublishedRelease{first})
			require.NoError(t, err)
			require.Equal(t, 1, added)
			again := first
			again.Message, again.SeenAt = "another", Epoch.Add(time.Hour)
			added, err = f.again().published().AddReleases(t.Context(), []store.PublishedRelease{again, second, second})
			require.NoError(t, err)
			require.Equal(t, 1, added)
			got, err := f.published().Release(t.Context(), first.Digest)
			require.NoError(t, err)
			require.Equal(t, first, got)
			added, err = f.published().AddReleases(t.Context(), nil)
			require.NoError(t, err)
			require.Zero(t, added)
		}},
		{"releases come by stream and order, without what is large", func(t *testing.T, f *fixture) {
			var all []store.PublishedRelease
			for _, v := range []struct {
				environment, clusterType string
				epoch, sequence          int64
			}{{"dev", "drone", 0, 2}, {"dev", "drone", 1, 1}, {"dev", "large", 0, 1}, {"prod", "drone", 0, 1}} {
				r := Release(v.sequence)
				r.Environment, r.ClusterType, r.Epoch = v.environment, v.clusterType, v.epoch
				r.Digest = digest.FromString(fmt.Sprint(v))
				all = append(all, r)
			}
			_, err := f.published().AddReleases(t.Context(), []store.PublishedRelease{all[3], all[1], all[2], all[0]})
			require.NoError(t, err)
			for i := range all {
				all[i].Assignments, all[i].Artifacts = nil, nil
			}
			require.Equal(t, all, f.releases())
			stop := errors.New("enough")
			require.ErrorIs(t, f.published().Releases(t.Context(), func(store.PublishedRelease) error { return stop }), stop)
		}},
		{"records come by environment and order, whatever order they arrived in", func(t *testing.T, f *fixture) {
			release := Release(1)
			_, err := f.published().AddReleases(t.Context(), []store.PublishedRelease{release})
			require.NoError(t, err)
			first, second, prod := Record(1, release.Digest), Record(2, release.Digest), Record(3, release.Digest)
			prod.Environment = "prod"
			for _, r := range []store.PublishedRecord{prod, second, first} {
				added, err := f.published().AddRecord(t.Context(), r)
				require.NoError(t, err)
				require.True(t, added)
			}
			added, err := f.again().published().AddRecord(t.Context(), second)
			require.NoError(t, err)
			require.False(t, added)
			require.Equal(t, []store.PublishedRecord{first, second, prod}, f.records())
			stop := errors.New("enough")
			require.ErrorIs(t, f.published().Records(t.Context(), func(store.PublishedRecord) error { return stop }), stop)
		}},
	}
}
