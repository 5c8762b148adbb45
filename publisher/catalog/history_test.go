package catalog_test

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher"
	"github.com/wherry-dev/wherry/publisher/catalog"
	"github.com/wherry-dev/wherry/publisher/impact"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/scheduler"
)

// stream is a stream of releases in a layout.
type stream struct {
	t   *testing.T
	ref oci.Reference
	key *keys.Key
	now time.Time
}

func newStream(t *testing.T) *stream {
	loc := oci.Location{Dir: t.TempDir()}
	return &stream{
		t: t, key: keytest.New(t), now: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		ref: oci.Reference{Location: loc, Repository: "bundles/dev/drone"},
	}
}

// publish publishes one assignment, and returns the digest of the release.
func (s *stream) publish(text, message string) digest.Digest {
	s.t.Helper()
	result := &scheduler.Result{Environment: "dev", Platform: "edge", ClusterTypes: []scheduler.ClusterTypeResult{{
		Name: "drone", Assignments: []scheduler.Assignment{{
			Name: "web-live", ClusterType: "drone", Workload: "web", Target: "live", Adapter: "directory",
			Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte("text: " + text + "\n")}},
		}},
	}}}
	s.now = s.now.Add(time.Hour)
	done, err := publisher.Publish(s.t.Context(), result, s.ref.Location, []*keys.Key{s.key}, publisher.PublishOptions{
		Message: message, Now: func() time.Time { return s.now },
	})
	require.NoError(s.t, err)
	return done.ClusterTypes[0].Digest
}

func (s *stream) list(signers published.Signers, fleet impact.Fleet) []catalog.Release {
	s.t.Helper()
	list, err := catalog.Releases(s.t.Context(), s.ref, 10, signers, fleet, s.now, oci.Options{})
	require.NoError(s.t, err)
	return list
}

func TestReleasesSayWhatTheyWereForAndWhoRunsThem(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	first := s.publish("one", "First")
	s.publish("two", "Second")
	s.publish("one", "Back to the first")
	list := s.list(published.AsItLies(), impact.Fleet{From: impact.FromHub, Clusters: []impact.Cluster{
		{ClusterType: "drone", Release: first}, {ClusterType: "drone", Release: first}, {ClusterType: "drone"}, {ClusterType: "large", Release: first},
	}})
	var messages []string
	var clusters []int
	for _, r := range list {
		require.Nil(t, r.Signed, "nobody asked")
		messages, clusters = append(messages, r.Message), append(clusters, *r.Clusters)
	}
	require.Equal(t, []string{"Back to the first", "Second", "First"}, messages)
	require.Equal(t, []int{0, 0, 2}, clusters)
	require.Equal(t, int64(1), list[0].SameAs)
	require.Zero(t, list[1].SameAs)

	list = s.list(published.AsItLies(), impact.Fleet{From: impact.FromRoster, Clusters: []impact.Cluster{{ClusterType: "drone"}, {ClusterType: "drone", Ring: "canary"}}})
	require.Equal(t, 1, *list[0].Clusters, "no release is under the tag of the other's ring")
	require.Nil(t, s.list(published.AsItLies(), impact.Fleet{})[0].Clusters)
}

func TestReleasesOfAnotherKeyAreMarked(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	s.publish("one", "Mine")
	mine := s.key
	s.key = keytest.New(t)
	theirs := s.publish("two", "Theirs")
	list := s.list(trust.PinnedBy([]*keys.Key{mine}), impact.Fleet{})
	require.Equal(t, "Theirs", list[0].Message)
	require.False(t, *list[0].Signed)
	require.Equal(t, "UntrustedKey", list[0].Refused)
	require.True(t, *list[1].Signed)

	ref := s.ref
	ref.Digest = theirs
	_, err := catalog.OpenReleased(t.Context(), ref, trust.PinnedBy([]*keys.Key{mine}), oci.Options{})
	require.ErrorContains(t, err, "key")
	r, err := catalog.OpenReleased(t.Context(), ref, published.AsItLies(), oci.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Close())
}

func TestTwoReleasesAreCompared(t *testing.T) {
	t.Parallel()
	s := newStream(t)
	open := func(d digest.Digest) catalog.Side {
		ref := s.ref
		ref.Digest = d
		old, err := catalog.OpenReleased(t.Context(), ref, trust.PinnedBy([]*keys.Key{s.key}), oci.Options{})
		require.NoError(t, err)
		newest, err := catalog.Newest(t.Context(), s.ref, s.now, oci.Options{})
		require.NoError(t, err)
		now, err := catalog.OpenReleased(t.Context(), newest, published.AsItLies(), oci.Options{})
		require.NoError(t, err)
		difference, err := catalog.Between(old, now, true)
		require.NoError(t, err)
		require.Len(t, difference.Changes, 1)
		require.Equal(t, "@@ -1 +1 @@\n-text: one\n+text: two\n", difference.Changes[0].Files[0].Patch)
		require.NoError(t, old.Close())
		require.NoError(t, now.Close())
		return difference.Old
	}
	first := s.publish("one", "First")
	s.publish("two", "Second")
	side := open(first)
	require.Equal(t, "First", side.Message)
	require.Len(t, side.Keys, 1)
}
