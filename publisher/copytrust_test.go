package publisher

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sigstore "github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/copier"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/releases"
)

// document returns a trust document of w's platform, in which one of roots may sign the next, and all of
// releases have to sign releases.
func (w *world) document(version, epoch int64, roots, releases []*keys.Key, signers ...*keys.Key) []byte {
	w.t.Helper()
	role := func(threshold int, keys []*keys.Key) bundle.Role {
		r := bundle.Role{Threshold: threshold}
		for _, k := range keys {
			key, err := bundle.NewTrustKey("", k.Public())
			require.NoError(w.t, err)
			r.Keys = append(r.Keys, key)
		}
		return r
	}
	envelope, err := bundle.SealTrust(bundle.TrustDocument{
		Schema: bundle.TrustSchema, Platform: "edge", Version: version, Epoch: epoch,
		IssuedAt: w.now, ExpiresAt: w.now.AddDate(1, 0, 0), Root: role(1, roots), Release: role(len(releases), releases),
	})
	require.NoError(w.t, err)
	for _, s := range signers {
		envelope, err = bundle.SignTrust(envelope, s)
		require.NoError(w.t, err)
	}
	return envelope
}

// putTrust puts an envelope where agents look for that version.
func (w *world) putTrust(version int64, envelope []byte) {
	w.t.Helper()
	repo := w.repository(bundle.TrustRepository)
	blobs, err := bundle.TrustManifest(envelope)
	require.NoError(w.t, err)
	for _, b := range blobs {
		require.NoError(w.t, releases.PushBlob(w.t.Context(), repo, b))
	}
	require.NoError(w.t, repo.Tag(w.t.Context(), blobs[len(blobs)-1].Descriptor, bundle.TrustTag(version)))
}

func TestTrustDocumentsGoAlongAndSayWhoMustHaveSigned(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	root, second := keytest.New(t), keytest.New(t)
	first := w.document(1, 1, []*keys.Key{root}, []*keys.Key{second}, root)
	w.mustPublish() // in epoch 0, with a key that only version 2 names
	w.putTrust(1, first)
	m := w.mirror("layout")
	_, err := w.copyTo(m, copier.Options{Trust: first})
	refused(t, err, bundle.OldEpoch)
	require.NoFileExists(t, m.dir+"/index.json")

	done := w.mustCopyTo(m, copier.Options{Keys: trustIn(w.key).Keys})
	require.Equal(t, "trust", done.Items[0].Kind)
	require.Equal(t, resultsAs(done, copier.OutcomeCopied), results(done))
	require.Equal(t, w.allTags(), m.allTags())

	other := w.document(1, 1, []*keys.Key{second}, []*keys.Key{second}, second)
	_, err = w.copyTo(m, copier.Options{Trust: other})
	refused(t, err, bundle.TrustDocumentRejected)
	_, err = w.copyTo(m, copier.Options{Trust: w.document(1, 1, []*keys.Key{root}, []*keys.Key{root})})
	refused(t, err, bundle.TrustDocumentRejected)

	w.putTrust(2, w.document(2, 1, []*keys.Key{root}, []*keys.Key{w.key}, second)) // not by version 1's root
	_, err = w.copyTo(m, copier.Options{Trust: first})
	refused(t, err, bundle.TrustDocumentRejected)
	w.putTrust(2, w.document(2, 1, []*keys.Key{root}, []*keys.Key{w.key}, root))
	w.putTrust(4, w.document(4, 1, []*keys.Key{root}, []*keys.Key{w.key}, root))
	done, err = w.copyBundleTo(m, "bundles/dev/drone", copier.Options{})
	require.NoError(t, err)
	require.Equal(t, map[string]releases.Outcome{
		"trust:v1": releases.OutcomeUnchanged, "trust:v2": copier.OutcomeCopied, done.Items[2].Repository + ":" + done.Items[2].Tag: releases.OutcomeUnchanged,
	}, results(done))
	require.Len(t, done.Warnings, 1)
	require.Contains(t, done.Warnings[0], "trust has v4, but not v3")
}

func TestReleasesOfATrustDocumentNeedItsThreshold(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	root, second := keytest.New(t), keytest.New(t)
	first := w.document(1, 1, []*keys.Key{root}, []*keys.Key{root}, root)
	w.putTrust(1, first)
	w.putTrust(2, w.document(2, 2, []*keys.Key{root}, []*keys.Key{w.key, second}, root)) // both have to sign, in epoch 2
	m := w.mirror("layout")
	latest := w.releaseInEpoch(2, w.key, w.key)
	_, err := w.copyBundleTo(m, "bundles/dev/drone", copier.Options{Trust: first})
	refused(t, err, bundle.BelowThreshold)
	require.NoFileExists(t, m.dir+"/index.json")
	w.sign("bundles/dev/drone", latest, w.key, second)
	done, err := w.copyBundleTo(m, "bundles/dev/drone", copier.Options{Trust: first})
	require.NoError(t, err)
	require.Equal(t, resultsAs(done, copier.OutcomeCopied), results(done))
	require.Equal(t, "s2-1", done.Items[2].Tag)

	// The highest sequence of an epoch that is over does not hold the next one back.
	m = w.mirror("layout")
	m.now = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	m.mustPublish()
	done, err = w.copyBundleTo(m, "bundles/dev/drone", copier.Options{})
	require.NoError(t, err)
	require.Zero(t, done.Kept())
	_, err = w.copyTo(m, copier.Options{Trust: first})
	refused(t, err, bundle.OldEpoch) // the record is of epoch 0
}

// releaseInEpoch puts what latest of drone names under a new epoch, and has keys sign it.
func (w *world) releaseInEpoch(epoch int64, keys ...*keys.Key) *bundle.Verified {
	w.t.Helper()
	v := *w.verified("drone", "latest")
	v.Release.Epoch, v.Release.Sequence = epoch, 1
	doc, err := v.Release.Marshal()
	require.NoError(w.t, err)
	config := bundle.NewBlob(bundle.MediaTypeRelease, doc)
	v.Manifest.Config = config.Descriptor
	data, err := json.Marshal(v.Manifest)
	require.NoError(w.t, err)
	manifest := bundle.NewBlob(v.Manifest.MediaType, data)
	repo := w.repository("bundles/dev/drone")
	for _, b := range []bundle.Blob{config, manifest} {
		require.NoError(w.t, releases.PushBlob(w.t.Context(), repo, b))
	}
	v.Descriptor = manifest.Descriptor
	w.sign("bundles/dev/drone", &v, keys...)
	require.NoError(w.t, repo.Tag(w.t.Context(), v.Descriptor, v.Release.Tag()))
	require.NoError(w.t, repo.Tag(w.t.Context(), v.Descriptor, bundle.LatestTag))
	return &v
}

func TestATrustDocumentIsNeverReplacedByAnother(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	a, b := keytest.New(t), keytest.New(t)
	full := w.document(1, 1, []*keys.Key{a, b}, []*keys.Key{w.key}, a, b)
	w.mustPublish()
	w.putTrust(1, full)
	m := w.mirror("layout")
	w.now = w.now.Add(time.Second)
	m.putTrust(1, w.document(1, 1, []*keys.Key{a}, []*keys.Key{w.key}, a))
	w.now = m.now
	before := m.state()
	_, err := w.copyTo(m, copier.Options{})
	refused(t, err, bundle.TrustDocumentRejected)
	require.Equal(t, before, m.state(), "nothing was written")
	require.Equal(t, copier.OutcomeCopied, results(w.mustCopyTo(m, copier.Options{Force: true}))["trust:v1"])

	// Of the same document, the one with more signatures stays.
	less := w.document(1, 1, []*keys.Key{a, b}, []*keys.Key{w.key}, a)
	m.putTrust(1, less)
	require.Equal(t, copier.OutcomeUpdated, results(w.mustCopyTo(m, copier.Options{}))["trust:v1"])
	w.putTrust(1, less)
	done := w.mustCopyTo(m, copier.Options{})
	require.Equal(t, releases.OutcomeUnchanged, results(done)["trust:v1"])
	require.Zero(t, done.Kept())
	envelope, err := bundle.FetchTrust(t.Context(), m.repository("trust"), 1)
	require.NoError(t, err)
	require.Equal(t, full, envelope)
}

func TestSignaturesThatOnlyTheDestinationHasAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	m := w.mirror("registry")
	w.mustCopyTo(m, copier.Options{})
	v := w.verified("drone", "latest")

	// The site adds its own signature at the destination; another key of the platform signs at the source.
	site, late := keytest.New(t), keytest.New(t)
	m.sign("bundles/dev/drone", v, w.key, site)
	w.sign("bundles/dev/drone", v, w.key, late)
	for _, want := range []releases.Outcome{copier.OutcomeUpdated, releases.OutcomeUnchanged} {
		done := w.mustCopyTo(m, copier.Options{})
		require.Equal(t, want, done.Items[0].Result)
		for _, key := range []*keys.Key{w.key, site, late} {
			_, err := bundle.Verify(t.Context(), m.repository("bundles/dev/drone"), v.Descriptor, trustIn(key))
			require.NoError(t, err)
		}
	}
	require.NoError(t, m.complete())
}

// sign puts signatures of these keys in place of those that v has.
func (w *world) sign(repository string, v *bundle.Verified, keys ...*keys.Key) {
	w.t.Helper()
	repo := w.repository(repository)
	var all []sigstore.Signer
	for _, k := range keys {
		all = append(all, k)
	}
	signed, err := bundle.SignManifest(v.Descriptor.Digest, w.loc.Name(repository), all...)
	require.NoError(w.t, err)
	for _, b := range append(signed.Blobs, signed.Manifest) {
		require.NoError(w.t, releases.PushBlob(w.t.Context(), repo, b))
	}
	require.NoError(w.t, repo.Tag(w.t.Context(), signed.Manifest.Descriptor, bundle.SignatureTag(v.Descriptor.Digest)))
}

func TestAReleaseThatComesDuringACopyIsNotUndone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "layout")
	w.mustPublish()
	m := w.mirror("registry")
	m.now = w.now.AddDate(0, 0, 1)
	var began atomic.Bool
	m.front = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/drone/manifests/") && began.CompareAndSwap(false, true) {
			m.mustPublish()
		}
		return false
	}
	done := w.mustCopyTo(m, copier.Options{})
	require.NotZero(t, done.Kept())
	require.Equal(t, m.now.Unix(), m.verified("drone", "latest").Release.Sequence)
	require.Equal(t, w.now.Unix(), m.verified("drone", done.Items[0].Tag).Release.Sequence)
	require.NoError(t, m.complete())
}
