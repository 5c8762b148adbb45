package publisher

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
	"github.com/wherry-dev/wherry/publisher/trust"
)

func TestATrustDocumentIsPublishedOnceAndInOrder(t *testing.T) {
	inBoth(t, func(t *testing.T, w *world) {
		ctx, opts := t.Context(), w.opts.OCI
		anna, bob, carol, draft := threeSigners(t)
		_, err := trust.Publish(ctx, signedTrust(t, draft, nil, anna), w.loc, opts)
		require.ErrorIs(t, err, trust.ErrNotYet)
		require.ErrorContains(t, err, "1 more of its own root keys is needed, of ")

		v1 := signedTrust(t, draft, nil, anna, bob)
		v2 := editedTrust(t, v1, trust.RaiseEpoch)
		v3 := signedTrust(t, editedTrust(t, signedTrust(t, v2, v1, anna, bob)), nil, anna, bob)
		_, err = trust.Publish(ctx, v3, w.loc, opts)
		require.ErrorContains(t, err, "publish version 1 first")
		done, err := trust.Publish(ctx, v1, w.loc, opts)
		require.NoError(t, err)
		require.Equal(t, releases.OutcomePublished, done.Result)
		before := w.state()
		again, err := trust.Publish(ctx, signedTrust(t, v1, nil, carol), w.loc, opts)
		require.NoError(t, err)
		require.Equal(t, releases.OutcomeUnchanged, again.Result)
		require.Equal(t, done.Digest, again.Digest)
		require.Equal(t, before, w.state())

		other := signedTrust(t, editedTrust(t, draft, trust.Thresholds(0, 1)), nil, anna, bob)
		_, err = trust.Publish(ctx, other, w.loc, opts)
		var refusal *bundle.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, bundle.TrustDocumentRejected, refusal.Reason)

		_, err = trust.Publish(ctx, v2, w.loc, opts)
		require.ErrorIs(t, err, trust.ErrNotYet)
		require.ErrorContains(t, err, "2 more of version 1's root keys are needed")
		for _, envelope := range [][]byte{signedTrust(t, v2, v1, anna, carol), v3} {
			_, err = trust.Publish(ctx, envelope, w.loc, opts)
			require.NoError(t, err)
		}
		chain, err := trust.Begin(v1)
		require.NoError(t, err)
		chain, err = published.FollowTrust(ctx, w.loc, chain, opts)
		require.NoError(t, err)
		require.EqualValues(t, 3, chain.Current().Version)
		_, err = trust.Begin(v3)
		require.ErrorContains(t, err, "it is version 3: give version 1")
	})
}

func TestAnotherDocumentThatWasFasterIsNoticed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	anna, bob, _, draft := threeSigners(t)
	ours := signedTrust(t, draft, nil, anna, bob)
	theirs := signedTrust(t, editedTrust(t, draft, trust.Thresholds(0, 1)), nil, anna, bob)
	w.front = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPut || !strings.HasSuffix(r.URL.Path, "/manifests/v1") {
			return false
		}
		w.front = nil
		_, err := trust.Publish(t.Context(), theirs, w.loc, w.opts.OCI)
		require.NoError(t, err)
		rw.WriteHeader(http.StatusCreated) // and their tag is written after ours
		return true
	}
	_, err := trust.Publish(t.Context(), ours, w.loc, w.opts.OCI)
	require.ErrorContains(t, err, "a version is never replaced")
}

// threeSigners are three keys, and a document in which two of them have to sign everything.
func threeSigners(t *testing.T) (anna, bob, carol *keys.Key, envelope []byte) {
	anna, bob, carol = keytest.New(t), keytest.New(t), keytest.New(t)
	role := bundle.Role{Threshold: 2, Keys: []bundle.TrustKey{keytest.Named(t, "anna", anna), keytest.Named(t, "bob", bob), keytest.Named(t, "carol", carol)}}
	envelope, err := trust.New("edge", role, role, 24*time.Hour, trustTimeHere)
	require.NoError(t, err)
	return anna, bob, carol, envelope
}

func signedTrust(t testing.TB, envelope, previous []byte, keys ...*keys.Key) []byte {
	t.Helper()
	signed, err := trust.Sign(envelope, previous, keys)
	require.NoError(t, err)
	return signed
}

func editedTrust(t *testing.T, envelope []byte, changes ...trust.Change) []byte {
	t.Helper()
	next, err := trust.Edit(envelope, trustTimeHere.Add(time.Hour), changes...)
	require.NoError(t, err)
	return next
}

var trustTimeHere = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
