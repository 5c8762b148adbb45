package publisher

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/ledger"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/pack"
	"github.com/wherry-dev/wherry/publisher/platform"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/state"
	"github.com/wherry-dev/wherry/publisher/trust"
	"github.com/wherry-dev/wherry/publisher/usage"
	"github.com/wherry-dev/wherry/scheduler"
)

// quorum is a world in which several people have to sign.
type quorum struct {
	*world
	anna, bob, carol *keys.Key
	chain            bundle.TrustChain
}

func newQuorum(w *world, threshold int) *quorum {
	t := w.t
	q := &quorum{world: w, anna: keytest.New(t), bob: keytest.New(t), carol: keytest.New(t)}
	keys := []bundle.TrustKey{keytest.Named(t, "anna", q.anna), keytest.Named(t, "bob", q.bob), keytest.Named(t, "carol", q.carol)}
	envelope, err := trust.New("edge", bundle.Role{Threshold: 1, Keys: keys[:1]}, bundle.Role{Threshold: threshold, Keys: keys}, 1000*24*time.Hour, w.now)
	require.NoError(t, err)
	q.chain, err = trust.Begin(signedTrust(t, envelope, nil, q.anna))
	require.NoError(t, err)
	return q
}

// rotate makes the next version of the trust document.
func (q *quorum) rotate(changes ...trust.Change) {
	before := q.chain[len(q.chain)-1].Envelope
	next, err := trust.Edit(before, q.now, changes...)
	require.NoError(q.t, err)
	q.chain, err = q.chain.Append(signedTrust(q.t, next, before, q.anna))
	require.NoError(q.t, err)
}

func (q *quorum) publish(keys ...*keys.Key) (*Published, error) {
	opts := q.opts
	opts.Trust, opts.Now = published.Of(q.chain), func() time.Time { return q.now }
	return Publish(q.t.Context(), q.result, q.loc, keys, opts)
}

// outcomes publishes and returns what became of each cluster type and the record.
func (q *quorum) outcomes(keys ...*keys.Key) map[string]releases.Outcome {
	q.t.Helper()
	p, err := q.publish(keys...)
	require.NoError(q.t, err)
	return outcomesOf(p)
}

func everywhere(o releases.Outcome) map[string]releases.Outcome {
	return map[string]releases.Outcome{"drone": o, "large": o, "small": o, "record": o}
}

func (q *quorum) reader() state.Reader {
	at, err := pendingReader(q.loc, "dev", published.Of(q.chain), PendingOptions{OCI: q.opts.OCI, Now: func() time.Time { return q.now }}, new(warnings).add)
	require.NoError(q.t, err)
	return at
}

// maker makes what nobody asked for.
func (q *quorum) maker(keys ...*keys.Key) maker {
	at := q.reader()
	ps := &pusher{Reader: &at, signer: releases.Signer{Keys: keys, Location: q.loc}}
	return ps.maker()
}

func planOf(repo oci.Target, tree *bundle.Packed) *plan {
	return &plan{found: found{Type: state.Type{Type: published.Type{Reader: published.Reader[bundle.Verified]{Repository: published.Repository{Repo: repo}}}}}, content: content{tree: tree}}
}

func (q *quorum) open() (*Pending, error) { return openPending(q.t.Context(), q.reader(), "") }

func (q *quorum) sign(keys ...*keys.Key) *Pending {
	q.t.Helper()
	e, err := q.open()
	require.NoError(q.t, err)
	require.NoError(q.t, e.Sign(q.t.Context(), keys))
	return e
}

// released returns dev's newest release of a cluster type, as an agent would take it.
func (q *quorum) released(clusterType string) *bundle.Verified {
	q.t.Helper()
	return q.tagged(clusterType, "latest")
}

func (q *quorum) tagged(clusterType, tag string) *bundle.Verified {
	q.t.Helper()
	repo := q.repository("bundles/dev/" + clusterType)
	desc, err := repo.Resolve(q.t.Context(), tag)
	require.NoError(q.t, err)
	v, err := bundle.Verify(q.t.Context(), repo, desc, q.chain.Current().Trust())
	require.NoError(q.t, err)
	return v
}

// visible lists the tags that agents and people follow.
func (q *quorum) visible(repository string) []string {
	q.t.Helper()
	tags, err := q.repository(repository).Tags(q.t.Context())
	require.NoError(q.t, err)
	return slices.DeleteFunc(tags, func(tag string) bool { return strings.HasPrefix(tag, "sha256-") || strings.HasPrefix(tag, "pending-") })
}

func TestWhatTooFewHaveSignedIsPendingUntilTheOthersSign(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		q := newQuorum(w, 2)
		p, err := q.publish(q.anna)
		require.NoError(t, err)
		require.Equal(t, everywhere(releases.OutcomePending), outcomesOf(p))
		require.Equal(t, &SignatureCount{1, 2}, row(t, p, "drone").Signatures)
		require.Empty(t, q.visible("bundles/dev/drone"))
		require.Empty(t, q.visible("environments/dev"))

		q.now = q.now.Add(time.Hour)
		before := q.state()
		again, err := q.publish(q.anna)
		require.NoError(t, err)
		require.Equal(t, p.ClusterTypes, again.ClusterTypes, "the same content finds what waits")
		require.Equal(t, p.Record, again.Record)
		e := q.sign(q.anna)
		require.False(t, e.Added, "the same key twice is no progress")
		require.False(t, e.Complete())
		require.Equal(t, before, q.state())

		e = q.sign(q.bob)
		require.True(t, e.Added)
		require.True(t, e.Complete())
		require.Len(t, q.released("drone").KeyIDs, 2)
		require.Equal(t, row(t, p, "drone").Digest, q.released("drone").Descriptor.Digest)
		require.Equal(t, []string{"latest", q.released("drone").Release.Tag()}, q.visible("bundles/dev/drone"))
		require.EqualValues(t, 1, q.released("drone").Release.Epoch)
		_, err = q.open()
		require.ErrorIs(t, err, ErrNothingPending)
		require.Equal(t, everywhere(releases.OutcomeUnchanged), q.outcomes(q.carol))
	})
}

func TestThePlanThatASignerSeesIsAgainstWhatStands(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	require.Equal(t, everywhere(releases.OutcomePublished), q.outcomes(q.anna, q.bob))
	first := q.released("drone").Release.Sequence
	q.result.ClusterTypes = q.result.ClusterTypes[:2] // small leaves
	q.result.ClusterTypes[0].Assignments = []scheduler.Assignment{assignment("drone", "web-live", "v2"), assignment("drone", "new-live", "v1")}
	q.now = q.now.Add(time.Minute)
	want := map[string]releases.Outcome{"drone": releases.OutcomePending, "large": releases.OutcomeUnchanged, "small": releases.OutcomeUnchanged, "record": releases.OutcomePending}
	require.Equal(t, want, q.outcomes(q.bob))
	e, err := q.open()
	require.NoError(t, err)
	require.Len(t, e.ClusterTypes, 2)
	drone := e.ClusterTypes[0]
	require.Equal(t, first, drone.Previous)
	require.Equal(t, []string{"new-live"}, drone.Added)
	require.Equal(t, []string{"web-live"}, drone.Changed)
	require.Equal(t, []string{"db-live"}, drone.Removed)
	require.Equal(t, []trust.KeyName{{ID: keytest.Named(t, "", q.bob).ID, Name: "bob"}}, drone.SignedBy)
	require.Equal(t, releases.OutcomeUnchanged, e.ClusterTypes[1].Result)
	require.NoError(t, e.Sign(t.Context(), []*keys.Key{q.carol}))
	require.True(t, e.Complete())
	require.Equal(t, releases.OutcomePublished, e.ClusterTypes[0].Result)
	require.Equal(t, drone.Digest, q.released("drone").Descriptor.Digest)
}

func TestAClusterTypeThatLeavesIsEmptiedByTheSameSignatures(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	q.outcomes(q.anna, q.bob)
	q.result.ClusterTypes = q.result.ClusterTypes[1:]
	q.opts.AllowEmpty = true
	q.now = q.now.Add(time.Minute)
	require.Equal(t, releases.OutcomePending, q.outcomes(q.anna)["drone"])
	e := q.sign(q.bob)
	require.True(t, e.Complete())
	require.Equal(t, "drone", e.ClusterTypes[0].ClusterType)
	require.Equal(t, []string{"db-live", "web-live"}, e.ClusterTypes[0].Removed)
	require.Equal(t, releases.OutcomeUnchanged, q.outcomes(q.anna)["record"])
}

func TestAnotherPublisherOfTheSameContentSignsWhatWaits(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	first, err := q.publish(q.anna)
	require.NoError(t, err)
	q.now = q.now.Add(time.Minute)
	second, err := q.publish(q.bob)
	require.NoError(t, err)
	require.Equal(t, everywhere(releases.OutcomePublished), outcomesOf(second))
	require.Equal(t, row(t, first, "drone").Digest, row(t, second, "drone").Digest)

	q.small("v2")
	q.now = q.now.Add(time.Minute)
	q.outcomes(q.anna)
	q.opts.ValidFor = time.Hour
	require.Equal(t, releases.OutcomePending, q.outcomes(q.bob)["drone"], "what they sign unseen is what they would publish")
	q.now = q.now.Add(time.Minute)
	q.result.BaseCommit = "another commit with the same files"
	require.Equal(t, releases.OutcomePending, q.outcomes(q.anna)["drone"], "and of the commit that they have rendered")
}

func TestTheFirstReleaseAfterAPinnedKeyThatTheDocumentDoesNotName(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		q := newQuorum(w, 2)
		q.now = q.now.Add(time.Hour)
		p, err := q.publish(q.anna)
		require.NoError(t, err)
		require.Equal(t, everywhere(releases.OutcomePending), outcomesOf(p), "small never had an assignment")
		require.Len(t, p.Warnings, 4, "one for each repository")
		require.Contains(t, p.Warnings[0], "is not a record signed as the trust document asks")
		q.sign(q.bob)
		require.EqualValues(t, 1, q.released("small").Release.Epoch)
		require.Equal(t, everywhere(releases.OutcomeUnchanged), q.outcomes(q.anna))
	})
}

func TestWhatWaitsIsReplacedByWhatIsPublishedAfterIt(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	_, err := q.open()
	require.ErrorIs(t, err, ErrNothingPending)
	require.ErrorContains(t, err, "nothing was ever published there", "in any environment: it is the first time")
	q.small("v1")
	q.outcomes(q.anna, q.bob)
	q.small("wrong")
	wrong, err := q.publish(q.anna)
	require.NoError(t, err)
	q.small("v1")
	back, err := q.publish(q.anna)
	require.NoError(t, err)
	require.Contains(t, row(t, back, "drone").Renewed, "it takes the place of pending-1-")
	require.Greater(t, row(t, back, "drone").Sequence, row(t, wrong, "drone").Sequence, "also within the same second")
	require.Greater(t, back.Record.Sequence, wrong.Record.Sequence)
	e := q.sign(q.bob)
	require.Equal(t, row(t, back, "drone").Digest, e.ClusterTypes[0].Digest)
	require.Empty(t, e.ClusterTypes[0].Changed)
	_, err = q.open()
	require.ErrorIs(t, err, ErrNothingPending, "what was replaced is not offered again")
	_, err = openPending(t.Context(), q.reader(), published.PendingTag(1, wrong.Record.Sequence))
	require.ErrorContains(t, err, "a newer one stands already")
	_, err = pendingReader(q.loc, "dev", published.Of(q.chain), PendingOptions{Tag: "latest"}, new(warnings).add)
	require.ErrorAs(t, err, new(*usage.Error))
	require.ErrorContains(t, err, `"latest" is not a tag of what waits`)
	_, err = OpenPending(t.Context(), q.loc, "mistyped", published.Of(q.chain), PendingOptions{Now: func() time.Time { return q.now }})
	require.ErrorAs(t, err, new(*published.NoEnvironmentError))
	require.ErrorContains(t, err, "nothing was ever published in environment mistyped at "+q.loc.String()+": it has dev")
}

func TestWhoMaySignIsSaidByTheTrustDocument(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	option := new(*usage.Error)
	_, err := q.publish(keytest.New(t), q.anna)
	require.ErrorAs(t, err, option)
	require.ErrorContains(t, err, "no release key in version 1 of the trust document")
	_, err = q.publish(q.anna, q.anna)
	require.ErrorContains(t, err, "each signs once")
	_, err = q.publish()
	require.ErrorAs(t, err, option)

	_, err = trust.Publish(t.Context(), q.chain[0].Envelope, q.loc, q.opts.OCI)
	require.NoError(t, err)
	before := q.state()
	_, err = q.world.publish()
	require.ErrorAs(t, err, option)
	require.ErrorContains(t, err, "there is a trust document")

	var refusal *bundle.Refusal
	q.result.Platform = "other"
	_, err = q.publish(q.anna)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.WrongPlatform, refusal.Reason)
	q.result.Platform = "edge"
	now := q.now
	q.now = q.now.AddDate(3, 0, 0)
	_, err = q.publish(q.anna)
	require.ErrorIs(t, err, bundle.ErrTrustExpired)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.Expired, refusal.Reason)
	q.now = now
	require.Equal(t, before, q.state())

	p, err := q.publish(q.anna)
	require.NoError(t, err)
	require.Empty(t, p.Warnings)
	q.now = q.chain.Current().ExpiresAt.Add(-time.Hour)
	p, err = q.publish(q.anna)
	require.NoError(t, err)
	require.Len(t, p.Warnings, 1)
	require.Contains(t, p.Warnings[0], "have the roots sign the next one")
}

func TestRotatingKeysLosesNothingAndRenewsWhatTheyHaveToSign(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	q.outcomes(q.bob, q.carol)
	first := q.released("drone").Release
	dave := keytest.New(t)
	q.rotate(trust.AddKey(trust.RoleRelease, keytest.Named(t, "dave", dave)), trust.RemoveKey(trust.RoleRelease, keytest.Named(t, "", q.bob).ID),
		trust.RemoveKey(trust.RoleRelease, keytest.Named(t, "", q.carol).ID))
	q.now = q.now.Add(time.Minute)
	// What fails keeps the content of a release that nobody who signs now has signed.
	q.result.ClusterTypes[0].Assignments = q.result.ClusterTypes[0].Assignments[:1]
	q.result.ClusterTypes[0].Failures = []scheduler.Failure{{Name: "db-live", Err: errors.New("broken")}}
	p, err := q.publish(q.anna, dave)
	require.NoError(t, err)
	require.Equal(t, everywhere(releases.OutcomePublished), outcomesOf(p))
	require.Equal(t, "version 2 of the trust document asks for other signatures", row(t, p, "large").Renewed)
	require.Equal(t, first.Sequence, row(t, p, "drone").Failures[0].HeldFrom.Sequence)
	require.Greater(t, row(t, p, "drone").Sequence, first.Sequence)
	require.Empty(t, p.Warnings)
}

func TestAnEpochIsTheWayBackFromKeysThatWereStolen(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 2)
	q.small("v1")
	q.outcomes(q.anna, q.bob)
	// Bob and Carol lose their keys to somebody who uses up all sequences.
	thief := q.maker(q.bob, q.carol)
	v, repo := q.released("drone"), q.repository("bundles/dev/drone")
	r := v.Release
	r.Sequence = math.MaxInt64
	tree, _, err := pack.Tree(q.result.ClusterTypes[0].Assignments, nil)
	require.NoError(t, err)
	a, err := thief.bundle(t.Context(), planOf(repo, tree), r, nil)
	require.NoError(t, err)
	require.NoError(t, a.Push(t.Context(), repo))
	require.NoError(t, repo.Tag(t.Context(), a.Manifest.Descriptor, r.Tag()))
	q.small("v2")
	_, err = q.publish(q.anna, q.bob)
	require.ErrorContains(t, err, "a new epoch is needed")

	dave, eve := keytest.New(t), keytest.New(t)
	q.rotate(trust.RaiseEpoch, trust.AddKey(trust.RoleRelease, keytest.Named(t, "dave", dave)), trust.AddKey(trust.RoleRelease, keytest.Named(t, "eve", eve)),
		trust.RemoveKey(trust.RoleRelease, keytest.Named(t, "", q.bob).ID), trust.RemoveKey(trust.RoleRelease, keytest.Named(t, "", q.carol).ID))
	q.now = q.now.Add(time.Minute)
	p, err := q.publish(dave, eve)
	require.NoError(t, err)
	now := q.released("drone").Release
	require.EqualValues(t, 2, now.Epoch)
	require.Equal(t, q.now.Unix(), now.Sequence, "sequences begin again")
	require.Len(t, p.Warnings, 2, "what the old keys signed is history no more, said once for each repository: %v", p.Warnings)
	q.rotate(trust.RaiseEpoch)
	p, err = q.publish(dave, eve)
	require.NoError(t, err)
	require.Equal(t, "epoch 3 has begun", row(t, p, "drone").Renewed)
}

// A record of a new epoch says what somebody has let in. One that signed what there was once more would have all of it count.
func TestANewEpochHasNoRecordOfWhatNobodyLetIn(t *testing.T) {
	t.Parallel()
	q := newQuorum(newWorld(t, "layout"), 1)
	q.result.Rings = ringsOfTest
	q.reads("c1", "f1")
	of := ledger.From{Environment: "test", Revision: digest.FromString("below"), Record: ledger.Record{Sequence: 1}}
	q.opts.Admission = &Admission{
		IsKnown: true, Waiting: func(map[ledger.Key]ledger.Revision) map[ledger.Key]string { return nil },
		From: func(ledger.Key, ledger.Revision) (ledger.From, string) { return of, "" },
	}
	q.outcomes(q.anna)
	q.now = q.now.Add(time.Minute)
	before := q.state()
	q.rotate(trust.RaiseEpoch)
	refused := func(change func(*PublishOptions)) {
		t.Helper()
		opts := q.opts
		defer func() { q.opts = opts }()
		change(&q.opts)
		_, err := q.publish(q.anna)
		require.ErrorIs(t, err, ErrUnproved)
		require.Equal(t, before, q.state())
	}
	_, record := q.resolved("environments/dev")
	decided := *q.opts.Admission
	decided.Record, decided.IsKnown = record, false

	refused(func(o *PublishOptions) { o.Paused, o.Admission = true, nil })
	refused(func(o *PublishOptions) { o.Paused, o.Admission = true, &decided })
	waiting := decided
	waiting.Waiting = func(rendered map[ledger.Key]ledger.Revision) map[ledger.Key]string {
		all := map[ledger.Key]string{}
		for k := range rendered {
			if k.Workload == "" { // one of what cannot be read
				all[k] = "it waits"
			}
		}
		return all
	}
	refused(func(o *PublishOptions) {
		o.Unread, o.Admission = []platform.Unread{{Registration: "shop", Err: errors.New("no answer")}}, &waiting
	})
	opts := q.opts
	opts.Trust, opts.Now = published.Of(q.chain), func() time.Time { return q.now }
	_, err := Move(t.Context(), q.loc, []*keys.Key{q.anna}, MoveOptions{Environment: "dev", ClusterType: "drone", Ring: ringsOfTest[0]}, opts)
	require.ErrorIs(t, err, ErrUnproved)
	require.Equal(t, before, q.state())

	q.opts.Admission = &decided // all of it is proved
	require.Equal(t, everywhere(releases.OutcomePublished), q.outcomes(q.anna))
}

func TestReleasesAreRenewedInTimeAndSayWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.opts.ValidFor = 9 * 24 * time.Hour
	w.mustPublish()
	ends := w.now.Add(w.opts.ValidFor)
	for _, tc := range []struct {
		left, before time.Duration
		want         releases.Outcome
	}{
		{5 * 24 * time.Hour, 0, releases.OutcomeUnchanged},
		{5 * 24 * time.Hour, 4 * 24 * time.Hour, releases.OutcomeUnchanged},
		{4 * 24 * time.Hour, 4 * 24 * time.Hour, releases.OutcomePublished},
	} {
		w.now, w.opts.RenewBefore = ends.Add(-tc.left), tc.before
		outcomes, p := w.mustPublish()
		require.Equal(t, tc.want, outcomes["drone"], "%s left, renewed %s before", tc.left, tc.before)
		if tc.want == releases.OutcomePublished {
			require.Equal(t, fmt.Sprint("it expires at ", ends.Format(time.RFC3339)), row(t, p, "drone").Renewed)
		}
	}
	w.opts.RenewBefore = w.opts.ValidFor
	_, p := w.mustPublish()
	require.Contains(t, p.Warnings[0], "renews them every time")
}

// Registries whose repositories are created by hand deny access to missing ones, even to users who may write to others.
func TestARegistryMayDenyARepositoryOfTrustDocumentsThatIsNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/v2/line/a/trust/") {
			return false
		}
		rw.WriteHeader(http.StatusForbidden)
		return true
	}
	w.mustPublish()
}
