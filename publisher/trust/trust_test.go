package trust

import (
	"crypto/ed25519"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/usage"
)

var trustTime = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// people are three keys, and a document in which two of them have to sign everything.
func people(t *testing.T) (anna, bob, carol *keys.Key, envelope []byte) {
	anna, bob, carol = keytest.New(t), keytest.New(t), keytest.New(t)
	role := bundle.Role{Threshold: 2, Keys: []bundle.TrustKey{keytest.Named(t, "anna", anna), keytest.Named(t, "bob", bob), keytest.Named(t, "carol", carol)}}
	envelope, err := New("edge", role, role, 24*time.Hour, trustTime)
	require.NoError(t, err)
	return anna, bob, carol, envelope
}

func signTrust(t testing.TB, envelope, previous []byte, keys ...*keys.Key) []byte {
	t.Helper()
	signed, err := Sign(envelope, previous, keys)
	require.NoError(t, err)
	return signed
}

func editTrust(t *testing.T, envelope []byte, changes ...Change) []byte {
	t.Helper()
	next, err := Edit(envelope, trustTime.Add(time.Hour), changes...)
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
	dave := keytest.Named(t, "dave", keytest.New(t))
	draft := editTrust(t, v1, AddKey(RoleRelease, dave), ValidFor(48*time.Hour))
	d := openTrust(t, draft)
	require.EqualValues(t, 1, d.Version)
	require.Len(t, d.Release.Keys, 4)
	require.Equal(t, 48*time.Hour, d.ExpiresAt.Sub(d.IssuedAt))
	require.Equal(t, trustTime.Add(time.Hour), d.IssuedAt)

	half := signTrust(t, v1, nil, anna)
	_, err := Edit(half, trustTime, RaiseEpoch)
	require.ErrorIs(t, err, ErrNotYet)

	signed := signTrust(t, half, nil, bob)
	next := editTrust(t, signed, RemoveKey(RoleRelease, keytest.Named(t, "", carol).ID[:8]), RaiseEpoch)
	d = openTrust(t, next)
	require.EqualValues(t, 2, d.Version)
	require.EqualValues(t, 2, d.Epoch)
	require.Len(t, d.Release.Keys, 2)
	require.Equal(t, 24*time.Hour, d.ExpiresAt.Sub(d.IssuedAt), "as long as before")
	isDraft, err := IsDraft(next)
	require.NoError(t, err)
	require.True(t, isDraft, "signatures on the version before say nothing about this one")
	require.Equal(t, next, editTrust(t, signed, RemoveKey(RoleRelease, keytest.Named(t, "", carol).ID), RaiseEpoch), "the same input gives the same bytes")
}

func TestAnEpochIsRaisedOnceInAVersion(t *testing.T) {
	anna, bob, _, v1 := people(t)
	v1 = signTrust(t, v1, nil, anna, bob)
	v2 := editTrust(t, editTrust(t, v1, Thresholds(0, 2)), RaiseEpoch)
	require.EqualValues(t, 2, openTrust(t, v2).Epoch)
	v2 = editTrust(t, editTrust(t, v2, RaiseEpoch), Thresholds(0, 1), RaiseEpoch)
	require.EqualValues(t, 2, openTrust(t, v2).Epoch)

	v2 = signTrust(t, v2, v1, anna, bob)
	require.NotContains(t, string(v2), "epochBefore", "what is signed is as ever")
	v3 := editTrust(t, editTrust(t, v2, RaiseEpoch), RaiseEpoch)
	require.EqualValues(t, 3, openTrust(t, v3).Version)
	require.EqualValues(t, 3, openTrust(t, v3).Epoch)

	old, err := bundle.SealTrust(openTrust(t, v3))
	require.NoError(t, err)
	require.EqualValues(t, 4, openTrust(t, editTrust(t, old, RaiseEpoch)).Epoch, "a draft that does not say what was before")
}

func TestAChangeThatIsNoneIsRefused(t *testing.T) {
	anna, _, _, v1 := people(t)
	id := keytest.Named(t, "", anna).ID
	for name, change := range map[string]Change{
		"a key that is there":       AddKey(RoleRoot, keytest.Named(t, "again", anna)),
		"a key that is not there":   RemoveKey(RoleRoot, keytest.Named(t, "", keytest.New(t)).ID),
		"half a word":               RemoveKey(RoleRoot, id[:7]),
		"another role":              RemoveKey("admin", id),
		"more signers than keys":    Thresholds(4, 0),
		"no time":                   ValidFor(-time.Hour),
		"an epoch in version 1":     RaiseEpoch,
		"fewer keys than have sign": func(d *bundle.TrustDocument) error { d.Root.Threshold = 3; return RemoveKey(RoleRoot, id)(d) },
	} {
		_, err := Edit(v1, trustTime, change)
		require.ErrorAs(t, err, new(*usage.Error), name)
	}
	public, _, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	data, err := bundle.MarshalPublicKey(public)
	require.NoError(t, err)
	_, err = NewKey("x", data)
	require.ErrorIs(t, err, keys.ErrEd25519)
}

func TestCopiesThatSeveralPeopleSignedAreJoined(t *testing.T) {
	anna, bob, carol, v1 := people(t)
	a, b, c := signTrust(t, v1, nil, anna), signTrust(t, v1, nil, bob), signTrust(t, v1, nil, carol, bob)
	joined, err := Join(a, b, c, a)
	require.NoError(t, err)
	other, err := Join(b, a, signTrust(t, v1, nil, carol))
	require.NoError(t, err)
	for _, envelope := range [][]byte{joined, other} {
		s, err := StatusOf(envelope, nil)
		require.NoError(t, err)
		require.Equal(t, 3, s.Own.Have)
		require.Empty(t, s.Own.Missing)
		require.True(t, s.Complete)
	}
	again, err := Join(joined, b)
	require.NoError(t, err)
	require.Equal(t, joined, again, "one more signature by the same key is none")

	_, err = Join(a, signTrust(t, editTrust(t, v1, Thresholds(1, 0)), nil, bob))
	require.ErrorAs(t, err, new(*usage.Error))
	_, err = Sign(v1, nil, []*keys.Key{keytest.New(t)})
	require.ErrorContains(t, err, "is not a root key of version 1; those are")
}

func TestARootKeyThatLeavesSignsItsOwnRemoval(t *testing.T) {
	anna, bob, carol, v1 := people(t)
	v1 = signTrust(t, v1, nil, anna, bob)
	v2 := editTrust(t, v1, Thresholds(1, 0), RemoveKey(RoleRoot, keytest.Named(t, "", carol).ID))
	_, err := Sign(v2, nil, []*keys.Key{carol})
	require.ErrorContains(t, err, "--previous")
	v2 = signTrust(t, v2, v1, carol)
	s, err := StatusOf(v2, v1)
	require.NoError(t, err)
	require.Equal(t, 0, s.Own.Have)
	require.Equal(t, 1, s.Previous.Have)
	require.Len(t, s.Previous.Missing, 2)
	require.False(t, s.Complete)
	s, err = StatusOf(signTrust(t, v2, nil, anna), v1)
	require.NoError(t, err)
	require.True(t, s.Complete)
	_, err = StatusOf(v2, v2)
	require.ErrorContains(t, err, "is not the one before")
}
