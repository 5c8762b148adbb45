package publisher

import (
	"crypto/ed25519"
	"crypto/rand"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/usage"
)

var trustTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// trustKey is what a trust document says of a key.
func trustKey(t testing.TB, name string, key *keys.Key) bundle.TrustKey {
	k, err := bundle.NewTrustKey(name, key.Public())
	require.NoError(t, err)
	return k
}

// people are three keys, and a document in which two of them have to sign everything.
func people(t *testing.T) (anna, bob, carol *keys.Key, envelope []byte) {
	anna, bob, carol = newKeyForTest(t), newKeyForTest(t), newKeyForTest(t)
	role := bundle.Role{Threshold: 2, Keys: []bundle.TrustKey{trustKey(t, "anna", anna), trustKey(t, "bob", bob), trustKey(t, "carol", carol)}}
	envelope, err := NewTrust("edge", role, role, 24*time.Hour, trustTime)
	require.NoError(t, err)
	return anna, bob, carol, envelope
}

func signTrust(t testing.TB, envelope, previous []byte, keys ...*keys.Key) []byte {
	t.Helper()
	signed, err := SignTrust(envelope, previous, keys)
	require.NoError(t, err)
	return signed
}

func editTrust(t *testing.T, envelope []byte, changes ...TrustChange) []byte {
	t.Helper()
	next, err := EditTrust(envelope, trustTime.Add(time.Hour), changes...)
	require.NoError(t, err)
	return next
}

func openTrust(t *testing.T, envelope []byte) bundle.TrustDocument {
	t.Helper()
	d, _, err := bundle.OpenTrust(envelope)
	require.NoError(t, err)
	return d
}

func TestADraftIsChangedAndASignedDocumentIsContinued(t *testing.T) {
	anna, bob, carol, v1 := people(t)
	dave := trustKey(t, "dave", newKeyForTest(t))
	draft := editTrust(t, v1, TrustAddKey(RoleRelease, dave), TrustValidFor(48*time.Hour))
	d := openTrust(t, draft)
	require.EqualValues(t, 1, d.Version)
	require.Len(t, d.Release.Keys, 4)
	require.Equal(t, 48*time.Hour, d.ExpiresAt.Sub(d.IssuedAt))
	require.Equal(t, trustTime.Add(time.Hour), d.IssuedAt)

	half := signTrust(t, v1, nil, anna)
	_, err := EditTrust(half, trustTime, TrustRaiseEpoch)
	require.ErrorIs(t, err, ErrNotYet)

	signed := signTrust(t, half, nil, bob)
	next := editTrust(t, signed, TrustRemoveKey(RoleRelease, trustKey(t, "", carol).ID[:8]), TrustRaiseEpoch)
	d = openTrust(t, next)
	require.EqualValues(t, 2, d.Version)
	require.EqualValues(t, 2, d.Epoch)
	require.Len(t, d.Release.Keys, 2)
	require.Equal(t, 24*time.Hour, d.ExpiresAt.Sub(d.IssuedAt), "as long as before")
	isDraft, err := IsTrustDraft(next)
	require.NoError(t, err)
	require.True(t, isDraft, "signatures on the version before say nothing about this one")
	require.Equal(t, next, editTrust(t, signed, TrustRemoveKey(RoleRelease, trustKey(t, "", carol).ID), TrustRaiseEpoch), "the same input gives the same bytes")
}

func TestAnEpochIsRaisedOnceInAVersion(t *testing.T) {
	anna, bob, _, v1 := people(t)
	v1 = signTrust(t, v1, nil, anna, bob)
	v2 := editTrust(t, editTrust(t, v1, TrustThresholds(0, 2)), TrustRaiseEpoch)
	require.EqualValues(t, 2, openTrust(t, v2).Epoch)
	v2 = editTrust(t, editTrust(t, v2, TrustRaiseEpoch), TrustThresholds(0, 1), TrustRaiseEpoch)
	require.EqualValues(t, 2, openTrust(t, v2).Epoch)

	v2 = signTrust(t, v2, v1, anna, bob)
	require.NotContains(t, string(v2), "epochBefore", "what is signed is as ever")
	v3 := editTrust(t, editTrust(t, v2, TrustRaiseEpoch), TrustRaiseEpoch)
	require.EqualValues(t, 3, openTrust(t, v3).Version)
	require.EqualValues(t, 3, openTrust(t, v3).Epoch)

	old, err := bundle.SealTrust(openTrust(t, v3))
	require.NoError(t, err)
	require.EqualValues(t, 4, openTrust(t, editTrust(t, old, TrustRaiseEpoch)).Epoch, "a draft that does not say what was before")
}

func TestAChangeThatIsNoneIsRefused(t *testing.T) {
	anna, _, _, v1 := people(t)
	id := trustKey(t, "", anna).ID
	for name, change := range map[string]TrustChange{
		"a key that is there":       TrustAddKey(RoleRoot, trustKey(t, "again", anna)),
		"a key that is not there":   TrustRemoveKey(RoleRoot, trustKey(t, "", newKeyForTest(t)).ID),
		"half a word":               TrustRemoveKey(RoleRoot, id[:7]),
		"another role":              TrustRemoveKey("admin", id),
		"more signers than keys":    TrustThresholds(4, 0),
		"no time":                   TrustValidFor(-time.Hour),
		"an epoch in version 1":     TrustRaiseEpoch,
		"fewer keys than have sign": func(d *bundle.TrustDocument) error { d.Root.Threshold = 3; return TrustRemoveKey(RoleRoot, id)(d) },
	} {
		_, err := EditTrust(v1, trustTime, change)
		require.ErrorAs(t, err, new(*usage.Error), name)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	data, err := bundle.MarshalPublicKey(public)
	require.NoError(t, err)
	_, err = NewTrustKey("x", data)
	require.ErrorIs(t, err, keys.ErrEd25519)
}

func TestCopiesThatSeveralPeopleSignedAreJoined(t *testing.T) {
	anna, bob, carol, v1 := people(t)
	a, b, c := signTrust(t, v1, nil, anna), signTrust(t, v1, nil, bob), signTrust(t, v1, nil, carol, bob)
	joined, err := JoinTrust(a, b, c, a)
	require.NoError(t, err)
	other, err := JoinTrust(b, a, signTrust(t, v1, nil, carol))
	require.NoError(t, err)
	for _, envelope := range [][]byte{joined, other} {
		s, err := TrustStatusOf(envelope, nil)
		require.NoError(t, err)
		require.Equal(t, 3, s.Own.Have)
		require.Empty(t, s.Own.Missing)
		require.True(t, s.Complete)
	}
	again, err := JoinTrust(joined, b)
	require.NoError(t, err)
	require.Equal(t, joined, again, "one more signature by the same key is none")

	_, err = JoinTrust(a, signTrust(t, editTrust(t, v1, TrustThresholds(1, 0)), nil, bob))
	require.ErrorAs(t, err, new(*usage.Error))
	_, err = SignTrust(v1, nil, []*keys.Key{newKeyForTest(t)})
	require.ErrorContains(t, err, "is no root key of version 1; those are")
}

func TestARootKeyThatLeavesSignsItsOwnRemoval(t *testing.T) {
	anna, bob, carol, v1 := people(t)
	v1 = signTrust(t, v1, nil, anna, bob)
	v2 := editTrust(t, v1, TrustThresholds(1, 0), TrustRemoveKey(RoleRoot, trustKey(t, "", carol).ID))
	_, err := SignTrust(v2, nil, []*keys.Key{carol})
	require.ErrorContains(t, err, "--previous")
	v2 = signTrust(t, v2, v1, carol)
	s, err := TrustStatusOf(v2, v1)
	require.NoError(t, err)
	require.Equal(t, 0, s.Own.Have)
	require.Equal(t, 1, s.Previous.Have)
	require.Len(t, s.Previous.Missing, 2)
	require.False(t, s.Complete)
	s, err = TrustStatusOf(signTrust(t, v2, nil, anna), v1)
	require.NoError(t, err)
	require.True(t, s.Complete)
	_, err = TrustStatusOf(v2, v2)
	require.ErrorContains(t, err, "is not the one before")
}

func TestATrustDocumentIsPublishedOnceAndInOrder(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		ctx, opts := t.Context(), w.opts.OCI
		anna, bob, carol, draft := people(t)
		_, err := PublishTrust(ctx, signTrust(t, draft, nil, anna), w.loc, opts)
		require.ErrorIs(t, err, ErrNotYet)
		require.ErrorContains(t, err, "1 more of its own root keys is needed, of ")

		v1 := signTrust(t, draft, nil, anna, bob)
		v2 := editTrust(t, v1, TrustRaiseEpoch)
		v3 := signTrust(t, editTrust(t, signTrust(t, v2, v1, anna, bob)), nil, anna, bob)
		_, err = PublishTrust(ctx, v3, w.loc, opts)
		require.ErrorContains(t, err, "publish version 1 first")
		done, err := PublishTrust(ctx, v1, w.loc, opts)
		require.NoError(t, err)
		require.Equal(t, OutcomePublished, done.Result)
		before := w.state()
		again, err := PublishTrust(ctx, signTrust(t, v1, nil, carol), w.loc, opts)
		require.NoError(t, err)
		require.Equal(t, OutcomeUnchanged, again.Result)
		require.Equal(t, done.Digest, again.Digest)
		require.Equal(t, before, w.state())

		other := signTrust(t, editTrust(t, draft, TrustThresholds(0, 1)), nil, anna, bob)
		_, err = PublishTrust(ctx, other, w.loc, opts)
		var refusal *bundle.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, bundle.TrustDocumentRejected, refusal.Reason)

		_, err = PublishTrust(ctx, v2, w.loc, opts)
		require.ErrorIs(t, err, ErrNotYet)
		require.ErrorContains(t, err, "2 more of version 1's root keys are needed")
		for _, envelope := range [][]byte{signTrust(t, v2, v1, anna, carol), v3} {
			_, err = PublishTrust(ctx, envelope, w.loc, opts)
			require.NoError(t, err)
		}
		chain, err := BeginTrust(v1)
		require.NoError(t, err)
		chain, err = WalkTrust(ctx, w.loc, chain, opts)
		require.NoError(t, err)
		require.EqualValues(t, 3, chain.Current().Version)
		_, err = BeginTrust(v3)
		require.ErrorContains(t, err, "it is version 3: give version 1")
	})
}

func TestAnotherDocumentThatWasFasterIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	anna, bob, _, draft := people(t)
	ours := signTrust(t, draft, nil, anna, bob)
	theirs := signTrust(t, editTrust(t, draft, TrustThresholds(0, 1)), nil, anna, bob)
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/manifests/v1") {
			return false
		}
		w.front = nil
		_, err := PublishTrust(t.Context(), theirs, w.loc, w.opts.OCI)
		require.NoError(t, err)
		rw.WriteHeader(http.StatusCreated) // and their tag is written after ours
		return true
	}
	_, err := PublishTrust(t.Context(), ours, w.loc, w.opts.OCI)
	require.ErrorContains(t, err, "a version is never replaced")
}
