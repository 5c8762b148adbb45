package publisher

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/sweeptest"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/garbage"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestWhatShouldNotBeSignedIsRefused(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*bundle.Release, *bundle.EnvironmentRecord)
		want   bundle.Reason
	}{
		"a release of another platform":       {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.Platform = "test" }, bundle.WrongPlatform},
		"a release of another environment":    {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.Environment = "prod" }, bundle.WrongEnvironment},
		"a release of another cluster type":   {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.ClusterType = "large" }, bundle.WrongClusterType},
		"a release of another epoch":          {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.Epoch = 2 }, bundle.OldEpoch},
		"a release that has expired":          {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.ExpiresAt = r.IssuedAt }, bundle.Expired},
		"a release older than what stands":    {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.Sequence = 1 }, bundle.OlderRelease},
		"a release that uses up sequences":    {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.Sequence = math.MaxInt64 }, bundle.BadContent},
		"a release of tomorrow":               {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.IssuedAt = r.IssuedAt.Add(24 * time.Hour) }, bundle.BadContent},
		"content that is not what it says":    {func(r *bundle.Release, _ *bundle.EnvironmentRecord) { r.Content.Files++ }, bundle.BadContent},
		"a record of another platform":        {func(_ *bundle.Release, e *bundle.EnvironmentRecord) { e.Platform = "test" }, bundle.WrongPlatform},
		"a record of another environment":     {func(_ *bundle.Release, e *bundle.EnvironmentRecord) { e.Environment = "prod" }, bundle.WrongEnvironment},
		"a record of another epoch":           {func(_ *bundle.Release, e *bundle.EnvironmentRecord) { e.Epoch = 2 }, bundle.OldEpoch},
		"a record that uses up sequences":     {func(_ *bundle.Release, e *bundle.EnvironmentRecord) { e.Sequence = math.MaxInt64 }, bundle.BadContent},
		"a record with a type's strange name": {func(_ *bundle.Release, e *bundle.EnvironmentRecord) { e.ClusterTypes["../x"] = e.ClusterTypes["drone"] }, bundle.BadContent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQuorum(newWorld(t, "layout"), 2)
			q.small("v1")
			q.result.ClusterTypes = q.result.ClusterTypes[:1]
			q.outcomes(q.anna, q.bob)
			q.now = q.now.Add(time.Hour)
			// The thief of one key can push anything.
			thief := q.maker(q.carol)
			repo, records := q.repository("bundles/dev/drone"), q.repository("environments/dev")
			tree, _, err := pack.Tree([]scheduler.Assignment{assignment("drone", "web-live", "theirs")}, nil)
			require.NoError(t, err)
			r := q.released("drone").Release
			r.Sequence, r.IssuedAt, r.ExpiresAt, r.Content = q.now.Unix(), q.now, q.now.Add(time.Hour), tree.Content
			record := bundle.EnvironmentRecord{Schema: 1, Platform: "edge", Environment: "dev", Epoch: 1, Sequence: q.now.Unix(), IssuedAt: q.now}
			record.ClusterTypes = map[string]digest.Digest{"drone": ""}
			tc.change(&r, &record)
			a, err := thief.bundle(t.Context(), planOf(repo, tree), r, nil)
			require.NoError(t, err)
			require.NoError(t, a.Push(t.Context(), repo))
			for name := range record.ClusterTypes {
				record.ClusterTypes[name] = a.Manifest.Descriptor.Digest
			}
			b, err := thief.record(record, &ledger.Ledger{Schema: ledger.Schema})
			require.NoError(t, err)
			require.NoError(t, b.Push(t.Context(), records))
			tag := published.PendingTag(record.Epoch, record.Sequence)
			require.NoError(t, records.Tag(t.Context(), b.Manifest.Descriptor, tag))

			_, err = openPending(t.Context(), q.reader(), tag)
			var refusal *bundle.Refusal
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tc.want, refusal.Reason, refusal.Message)
			// Nor does it keep others from publishing.
			q.small("v2")
			q.result.ClusterTypes = q.result.ClusterTypes[:1]
			q.outcomes(q.anna)
			e := q.sign(q.bob)
			require.True(t, e.Complete())
			require.Less(t, q.released("drone").Release.Sequence, q.now.Unix()+10)
		})
	}
}

func TestTwoWhoSignAtOnceBothHaveSigned(t *testing.T) {
	t.Parallel()
	for k, ended := 0, false; !ended; k += sweeptest.Every(2) {
		q := newQuorum(newWorld(t, "layout"), 3)
		q.small("v1")
		q.result.ClusterTypes = q.result.ClusterTypes[:1]
		q.outcomes(q.anna)
		carol, err := q.open()
		require.NoError(t, err)
		bob := q.reader()
		writes, acted := 0, false
		bob.Store = raceStore{bob.Store, func(string) {
			if writes++; writes == k+1 {
				acted = true
				require.NoError(t, carol.Sign(t.Context(), []*keys.Key{q.carol}))
			}
		}}
		e, err := openPending(t.Context(), bob, "")
		require.NoError(t, err)
		require.NoError(t, e.Sign(t.Context(), []*keys.Key{q.bob}))
		if ended = !acted; ended {
			require.NoError(t, carol.Sign(t.Context(), []*keys.Key{q.carol}))
		}
		require.True(t, e.Complete() || carol.Complete(), "at write %d", k)
		require.Len(t, q.released("drone").KeyIDs, 3)
		require.Less(t, k, 50)
	}
}

func TestASignatureThatAnotherOverwroteComesBack(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 3)
	q.small("v1")
	q.result.ClusterTypes = q.result.ClusterTypes[:1]
	p, err := q.publish(q.anna)
	require.NoError(t, err)
	repo, d := q.repository("bundles/dev/drone"), row(t, p, "drone").Digest
	old, err := repo.Resolve(t.Context(), bundle.SignatureTag(d))
	require.NoError(t, err)
	q.sign(q.bob)
	require.NoError(t, repo.Tag(t.Context(), old, bundle.SignatureTag(d)), "somebody who had read before Bob wrote")
	require.True(t, q.sign(q.carol).Complete())
	require.Len(t, q.released("drone").KeyIDs, 3)
}

func TestASignerKilledAtAnyWriteGoesOnWhereTheyWere(t *testing.T) {
	t.Parallel()
	for k, ended := 0, false; !ended; k += sweeptest.Every(2) {
		q := newQuorum(newWorld(t, "layout"), 2)
		q.small("v1")
		q.result.ClusterTypes = q.result.ClusterTypes[:1]
		q.outcomes(q.anna)
		left := k
		bob := q.reader()
		bob.Store = cutStore{bob.Store, &left}
		e, err := openPending(t.Context(), bob, "")
		require.NoError(t, err)
		err = e.Sign(t.Context(), []*keys.Key{q.bob})
		if ended = left >= 0; !ended {
			require.ErrorIs(t, err, errKilled)
			for _, tag := range q.visible("bundles/dev/drone") {
				require.Len(t, q.tagged("drone", tag).KeyIDs, 2, "killed after %d writes: %s", k, tag)
			}
			if e, err = q.open(); !errors.Is(err, ErrNothingPending) {
				require.NoError(t, err)
				require.NoError(t, e.Sign(t.Context(), []*keys.Key{q.bob}))
			}
		}
		require.Equal(t, []string{"latest", q.released("drone").Release.Tag()}, q.visible("bundles/dev/drone"), "killed after %d writes", k)
		require.Len(t, q.visible("environments/dev"), 2)
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomeUnchanged, "record": releases.OutcomeUnchanged}, q.outcomes(q.carol))
		require.Less(t, k, 50)
	}
}

func TestAPublisherOfWhatWaitsKilledAtAnyWriteGoesOn(t *testing.T) {
	t.Parallel()
	for k, ended := 0, false; !ended; k += sweeptest.Every(2) {
		q := newQuorum(newWorld(t, "layout"), 2)
		q.small("v1")
		q.result.ClusterTypes = q.result.ClusterTypes[:1]
		left := k
		trust := published.Of(q.chain)
		p, err := newPublication(q.result, q.loc, []*keys.Key{q.anna}, trust, PublishOptions{Now: func() time.Time { return q.now }})
		require.NoError(t, err)
		p.Store = cutStore{p.Store, &left}
		_, err = p.run(t.Context(), q.result, newProgress())
		if ended = left >= 0; !ended {
			require.ErrorIs(t, err, errKilled)
		}
		require.Empty(t, q.visible("bundles/dev/drone"), "killed after %d writes", k)
		q.now = q.now.Add(time.Second)
		require.Equal(t, map[string]releases.Outcome{"drone": releases.OutcomePending, "record": releases.OutcomePending}, q.outcomes(q.anna))
		require.True(t, q.sign(q.bob).Complete())
		require.Less(t, k, 50)
	}
}

func TestWhatTheSignersOfOldReleasesLeftIsCollected(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "embedded"), 2)
	for _, text := range []string{"v1", "v2"} {
		q.small(text)
		q.result.ClusterTypes = q.result.ClusterTypes[:1]
		q.outcomes(q.anna)
		require.True(t, q.sign(q.bob).Complete())
		q.now = q.now.Add(2 * time.Hour)
	}
	for range 2 { // the second takes the signatures of what the first has taken
		require.NoError(t, q.collect(garbage.Options{}).Delete(t.Context()))
	}
	last := q.released("drone")
	tags, err := q.repository("bundles/dev/drone").Tags(t.Context())
	require.NoError(t, err)
	sig := bundle.SignatureTag(last.Descriptor.Digest)
	bob := releases.TagOf(last.Descriptor.Digest, keytest.Named(t, "", q.bob).ID)
	require.Equal(t, []string{"latest", last.Release.Tag(), sig, bob}, tags)
	require.Empty(t, q.collect(garbage.Options{}).Repositories[0].Foreign)
}
