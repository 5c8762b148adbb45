package agent

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/agent/state"
	"github.com/wherry-dev/wherry/agent/trust"
	"github.com/wherry-dev/wherry/bundle"
)

var shop = map[string]string{"shop-main/config.yaml": "a: 1"}

// underTrust gives the site a root key and version 1 of the trust document, in the agent's state.
func underTrust(t testing.TB) (*site, agenttest.Trust) {
	t.Helper()
	s := newSite(t)
	first := agenttest.NewTrust(s.stream.Platform, epoch, agenttest.NewKey(), s.key)
	s.epoch = 1
	require.NoError(t, s.install(first))
	return s, first
}

// install is what "trust install" does where no agent runs.
func (s *site) install(documents ...agenttest.Trust) (err error) {
	s.t.Helper()
	var envelopes [][]byte
	for _, d := range documents {
		e, err := d.Envelope()
		require.NoError(s.t, err)
		envelopes = append(envelopes, e)
	}
	s.agent(func(a *Agent) { _, err = a.InstallTrust(envelopes...) })
	return err
}

func (s *site) offerTrust(documents ...agenttest.Trust) {
	s.t.Helper()
	for _, d := range documents {
		require.NoError(s.t, d.Publish(context.Background(), s.trust))
	}
}

func (s *site) known() (tr trust.Known) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		var err error
		tr, err = a.state.Trust().Known()
		require.NoError(s.t, err)
	})
	return tr
}

// requireRefused runs a pass, and requires that it refuses for that reason and does not change the running release.
func (s *site) requireRefused(reason bundle.Reason, words string) {
	s.t.Helper()
	before := s.status().Release.Running
	r := s.once()
	require.Equal(s.t, Refused, r.Verdict, r.Error)
	require.Equal(s.t, bundle.Rejected, r.Status.State)
	require.Equal(s.t, string(reason), r.Status.Reason, r.Status.Message)
	require.Contains(s.t, r.Status.Message, words)
	if before != nil {
		require.Equal(s.t, before.Digest, r.Status.Release.Running.Digest)
	}
}

func (s *site) requireTaken() {
	s.t.Helper()
	r := s.once()
	require.Equal(s.t, Done, r.Verdict, r.Error)
	require.Equal(s.t, bundle.Compliant, r.Status.State)
}

func (s *site) status() (st Status) {
	s.t.Helper()
	s.agent(func(a *Agent) {
		var err error
		st, err = a.Status()
		require.NoError(s.t, err)
	})
	return st
}

func TestNewerTrustDocumentsAreTakenBeforeANewReleaseIsJudged(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()

	// The release key changes twice before the agent hears of it.
	second, third := first.Next(s.now), first
	second.Document.Release = agenttest.Role(1, agenttest.NewKey())
	third = second.Next(s.now)
	s.key = agenttest.NewKey().(*ecdsa.PrivateKey)
	third.Document.Release = agenttest.Role(1, s.key)
	s.offerTrust(first, second, third)
	s.publish(s.draft(2, shop))

	s.requireTaken()
	known := s.known()
	require.Len(t, known.Chain, 3)
	require.Equal(t, state.Stamp(s.now), known.AskedAt)
	require.Empty(t, known.Reason)
}

func TestOnlyAPersonMakesAPinnedAgentOneWithADocument(t *testing.T) {
	s := newSite(t)
	first := agenttest.NewTrust(s.stream.Platform, epoch, agenttest.NewKey(), s.key)
	s.offerTrust(first)
	s.publish(s.draft(1, shop))
	asked := s.countTrust()
	s.requireTaken()
	require.Zero(t, asked(), "an agent with a pinned key asks for no trust document")

	s.epoch = 1
	s.publish(s.draft(2, shop))
	s.requireRefused(bundle.OldEpoch, "release has epoch 1, the trust in force has 0")
	require.NoError(t, s.install(first))
	s.requireTaken()
	require.Contains(t, s.log.String(), "pinned keys no longer count")

	s.epoch = 0
	s.publish(s.draft(3, shop))
	s.requireRefused(bundle.OldEpoch, "release has epoch 0, the trust in force has 1")
}

// countTrust counts the requests for trust documents from now on.
func (s *site) countTrust() func() int64 {
	s.t.Helper()
	from := s.registry.trust.Load()
	return func() int64 { return s.registry.trust.Load() - from }
}

func TestTheRegistryIsAskedForTrustDocumentsOnceADay(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	asked := s.countTrust()

	require.Equal(t, Idle, s.once().Verdict)
	s.now = s.now.Add(23 * time.Hour)
	require.Equal(t, Idle, s.once().Verdict)
	require.Zero(t, asked(), "neither is a day over nor a release new")

	second := first.Next(s.now)
	s.offerTrust(first, second)
	asked = s.countTrust()
	s.now = s.now.Add(2 * time.Hour)
	require.Equal(t, Idle, s.once().Verdict)
	require.Positive(t, asked())
	require.Len(t, s.known().Chain, 2)

	s.offerTrust(second.Next(s.now))
	s.agent(func(a *Agent) { require.Equal(t, Idle, a.sync(t.Context(), 0).Verdict) })
	require.Len(t, s.known().Chain, 3, "a person who asks need not wait for the day to be over")
}

func TestATrustDocumentThatMustNotBeBelievedKeepsNewReleasesOut(t *testing.T) {
	stranger := agenttest.NewKey()
	for _, tc := range []struct {
		name   string
		second func(agenttest.Trust) agenttest.Trust
		words  string
	}{
		{"not signed by the roots", func(d agenttest.Trust) agenttest.Trust {
			d.Signers = []crypto.Signer{stranger}
			return d
		}, "signed by 0 of its own root keys"},
		{"signed by its own roots alone", func(d agenttest.Trust) agenttest.Trust {
			d.Document.Root, d.Signers = agenttest.Role(1, stranger), []crypto.Signer{stranger}
			return d
		}, "signed by 0 of the previous version's root keys"},
		{"that is an older one", func(d agenttest.Trust) agenttest.Trust {
			d.Document.Version = 1
			return d
		}, "has version 1, the next one here is 2"},
		{"that skips one", func(d agenttest.Trust) agenttest.Trust {
			d.Document.Version = 3
			return d
		}, "has version 3, the next one here is 2"},
		{"for another platform", func(d agenttest.Trust) agenttest.Trust {
			d.Document.Platform = "test"
			return d
		}, `for platform "test"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s, first := underTrust(t)
			s.publish(s.draft(1, shop))
			s.requireTaken()
			good := first.Next(s.now)
			envelope, err := tc.second(good).Envelope()
			require.NoError(t, err)
			require.NoError(t, agenttest.PublishEnvelope(t.Context(), s.trust, 2, envelope))
			s.publish(s.draft(2, shop))

			s.requireRefused(bundle.TrustDocumentRejected, tc.words)
			require.Len(t, s.known().Chain, 1)
			require.Equal(t, string(bundle.TrustDocumentRejected), s.known().Reason)

			s.offerTrust(good) // somebody mends it
			s.requireTaken()
			require.Empty(t, s.known().Reason)
		})
	}
}

func TestWhatRunsIsNotTouchedByABadTrustDocument(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	bad := first.Next(s.now)
	bad.Signers = nil
	s.offerTrust(bad)
	s.now = s.now.Add(25 * time.Hour)
	require.NoError(t, os.Remove(filepath.Join(s.host, "shop-main/config.yaml")))

	r := s.once()

	require.Equal(t, Idle, r.Verdict, r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	require.Equal(t, string(bundle.TrustDocumentRejected), r.Status.Reason, "people get to know")
	require.Equal(t, "trust document version 2 is signed by 0 of its own root keys, 1 are needed", r.Status.Message)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
	require.Equal(t, 1, strings.Count(s.log.String(), "no newer trust document can be taken"))
	require.Equal(t, string(bundle.TrustDocumentRejected), s.once().Status.Reason)
	require.Equal(t, 1, strings.Count(s.log.String(), "no newer trust document can be taken"), "said once")
}

func TestATrustDocumentThatCannotBeReadKeepsNewReleasesWaiting(t *testing.T) {
	s, _ := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.publish(s.draft(2, shop))
	s.registry.trustAway.Store(true)
	r := s.once()
	require.Equal(t, Unreachable, r.Verdict)
	require.EqualValues(t, 1, r.Status.Release.Running.Sequence)
	s.registry.trustAway.Store(false)
	s.requireTaken()
}

func TestAnExpiredTrustDocumentLetsNothingNewIn(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	s.now = first.Document.ExpiresAt
	require.NoError(t, os.Remove(filepath.Join(s.host, "shop-main/config.yaml")))
	r := s.once()
	require.Equal(t, Idle, r.Verdict, "the accepted release offered again is no refusal: %s", r.Error)
	require.Equal(t, bundle.Compliant, r.Status.State)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")

	s.publish(s.draft(2, map[string]string{"shop-main/config.yaml": "a: 2"}))
	s.requireRefused(bundle.Expired, "version 1 of the trust document expired at 2027-03-01T12:00:00Z")
	second := first.Next(s.now)
	s.offerTrust(first, second)
	s.requireTaken()
	requireFile(t, s.host, "shop-main/config.yaml", "a: 2")

	s.now = second.Document.ExpiresAt.Add(-time.Hour)
	require.Equal(t, Idle, s.once().Verdict)
	s.now = second.Document.ExpiresAt
	s.offerTrust(second.Next(s.now))
	require.Equal(t, Idle, s.once().Verdict)
	require.Len(t, s.known().Chain, 3, "an expired one is replaced before a day is over, and without a new release")
}

func TestANewEpochBeginsTheSequenceAgainAndEndsTheOldOne(t *testing.T) {
	s, first := underTrust(t)
	thief := s.draft(bundle.MaxSequence, shop)
	thief.Release.IssuedAt = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
	thief.Release.ExpiresAt = thief.Release.IssuedAt.AddDate(1, 0, 0)
	stolen := s.publish(thief)
	s.requireTaken()
	s.publish(s.draft(2, shop))
	s.requireRefused(bundle.OlderRelease, "")

	second := first.Next(s.now)
	second.Document.Epoch = 2
	s.offerTrust(first, second)
	s.epoch = 2
	healed := s.draft(1, map[string]string{"shop-main/config.yaml": "a: 2"})
	s.publish(healed)
	s.requireTaken()
	requireFile(t, s.host, "shop-main/config.yaml", "a: 2")
	require.False(t, s.status().Release.Running.Expired, "the thief's date ended with the epoch")

	require.NoError(t, s.repo.Tag(t.Context(), stolen, bundle.LatestTag))
	s.requireRefused(bundle.OldEpoch, "release has epoch 1, the trust in force has 2")
}

func TestTheAcceptedReleaseOfferedAgainIsNoRefusalAfterANewEpoch(t *testing.T) {
	s, first := underTrust(t)
	s.publish(s.draft(1, shop))
	s.requireTaken()
	second := first.Next(s.now)
	second.Document.Epoch = 2
	second.Document.Release = agenttest.Role(1, agenttest.NewKey())
	require.NoError(t, s.install(second))
	require.Equal(t, Idle, s.once().Verdict)
	s.now = s.now.AddDate(1, 0, 0)
	require.NoError(t, os.RemoveAll(s.host))
	r := s.once()
	require.Equal(t, Idle, r.Verdict, r.Error)
	require.True(t, r.Status.Release.Running.Expired)
	requireFile(t, s.host, "shop-main/config.yaml", "a: 1")
}

func TestAReleaseNeedsTheThresholdOfDistinctKeys(t *testing.T) {
	s, first := underTrust(t)
	ci, anna := agenttest.NewKey(), agenttest.NewKey()
	second := first.Next(s.now)
	second.Document.Release = agenttest.Role(2, s.key, ci, anna)
	require.NoError(t, s.install(second))

	d := s.draft(1, shop)
	d.CoSigners = []crypto.Signer{s.key}
	desc := s.publish(d)
	s.requireRefused(bundle.BelowThreshold, "signed by 1 of the keys that are trusted here, 2 are needed")
	s.agent(func(a *Agent) {
		order, _, err := a.state.judgedSoFar(s.stream, 1)
		require.NoError(t, err)
		require.Zero(t, order, "what too few have signed has no place in the order")
	})

	// The missing signature comes under the same digest, and is found without anybody's asking.
	require.NoError(t, agenttest.Sign(t.Context(), s.repo, desc, anna, s.key))
	s.agent(func(a *Agent) {
		require.Equal(t, Refused, a.makePass(t.Context(), scope{from: s.repo}).Verdict, "it is too soon")
	})
	s.now = s.now.Add(DefaultInterval)
	s.agent(func(a *Agent) {
		require.Equal(t, Done, a.makePass(t.Context(), scope{from: s.repo}).Verdict)
	})
}

func TestARefusalThatANewerDocumentChangesIsJudgedAgainByItself(t *testing.T) {
	s, first := underTrust(t)
	s.key = agenttest.NewKey().(*ecdsa.PrivateKey)
	s.epoch = 2
	s.publish(s.draft(1, shop))
	s.requireRefused(bundle.UntrustedKey, "")
	second := first.Next(s.now)
	second.Document.Epoch, second.Document.Release = 2, agenttest.Role(1, s.key)
	s.offerTrust(first, second)
	s.now = s.now.Add(DefaultInterval)
	s.agent(func(a *Agent) {
		out := a.makePass(t.Context(), scope{from: s.repo, documents: s.trust})
		require.Equal(t, Done, out.Verdict, out.Err)
	})
}

// onlyUpTo is a repository whose link is cut before one of its tags is named.
type onlyUpTo struct {
	bundle.Source
	cut string
}

func (o onlyUpTo) Resolve(ctx context.Context, tag string) (ocispec.Descriptor, error) {
	if tag == o.cut {
		return ocispec.Descriptor{}, errors.New("cut")
	}
	return o.Source.Resolve(ctx, tag)
}

func TestAWalkThatIsCutGoesOnWhereItWas(t *testing.T) {
	s, first := underTrust(t)
	second := first.Next(s.now)
	third := second.Next(s.now)
	s.offerTrust(first, second, third)
	s.publish(s.draft(1, shop))
	s.opts.TrustSource = onlyUpTo{s.trust, "v3"}
	require.Equal(t, Unreachable, s.once().Verdict)
	require.Len(t, s.known().Chain, 2)
	require.Equal(t, "Unreachable", s.known().Reason)
	s.opts.TrustSource = onlyUpTo{s.trust, "v2"} // which is not asked for again
	s.requireTaken()
	require.Len(t, s.known().Chain, 3)
}

func TestWhatTheDiskDoesNotTakeIsNotBelieved(t *testing.T) {
	s, first := underTrust(t)
	envelope, err := first.Next(s.now).Envelope()
	require.NoError(t, err)
	state, err := OpenState(s.dir, s.opts.Now)
	require.NoError(t, err)
	require.NoError(t, state.Close())
	_, err = state.trust.Install(s.stream.Platform, envelope)
	require.ErrorContains(t, err, "write state")
	require.Len(t, state.trust.Chain(), 1)
}
