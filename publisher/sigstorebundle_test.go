package publisher

import (
	"encoding/json"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci/referrertest"
	"github.com/wherry-dev/wherry/publisher/keys"
	"github.com/wherry-dev/wherry/publisher/keytest"
	"github.com/wherry-dev/wherry/publisher/verify"
)

const sigstoreBundle = "application/vnd.dev.sigstore.bundle.v0.3+json"

// sigstoreBundleOf is what "cosign sign --new-bundle-format" writes about a manifest.
func sigstoreBundleOf(t *testing.T, of digest.Digest, predicateType string, key *keys.Key) string {
	t.Helper()
	statement, err := json.Marshal(map[string]any{
		"_type": "https://in-toto.io/Statement/v1", "predicateType": predicateType, "predicate": map[string]any{},
		"subject": []any{map[string]any{"digest": map[string]string{"sha256": of.Encoded()}}},
	})
	require.NoError(t, err)
	sealed, err := bundle.SealEnvelopeBy("application/vnd.in-toto+json", statement, key)
	require.NoError(t, err)
	var envelope struct {
		PayloadType, Payload string
		Signatures           []struct{ Sig string } // cosign names no key
	}
	require.NoError(t, json.Unmarshal(sealed, &envelope))
	data, err := json.Marshal(map[string]any{
		"mediaType": sigstoreBundle, "verificationMaterial": map[string]any{"publicKey": map[string]string{"hint": "of nobody"}},
		"dsseEnvelope": map[string]any{"payloadType": envelope.PayloadType, "payload": envelope.Payload, "signatures": []any{map[string]string{"sig": envelope.Signatures[0].Sig}}},
	})
	require.NoError(t, err)
	return string(data)
}

func TestASignatureInASigstoreBundleIsVerified(t *testing.T) {
	const signed = "https://sigstore.dev/cosign/sign/v1"
	inBoth(t, func(t *testing.T, w *world) {
		w.mustPublish()
		repo := w.repository("bundles/dev/drone")
		d, err := repo.Resolve(t.Context(), "latest")
		require.NoError(t, err)
		second, stranger := keytest.New(t), keytest.New(t)
		both := bundle.Trust{Keys: bundle.Keys{w.key.Public(), second.Public()}, Threshold: 2}
		verify := func(trust bundle.Trust) (*verify.Trusted, bundle.Reason) {
			got, err := verify.ByKeys(t.Context(), w.reference("bundles/dev/drone"), trust, w.now, w.opts.OCI)
			var refusal *bundle.Refusal
			if err != nil {
				require.ErrorAs(t, err, &refusal)
				return nil, refusal.Reason
			}
			return got, ""
		}
		attach := func(text string) ocispec.Descriptor {
			m, err := referrertest.Refer(t.Context(), repo, d, sigstoreBundle, text)
			require.NoError(t, err)
			return m
		}
		got, _ := verify(trustIn(w.key))
		require.False(t, got.SigstoreBundle)

		attach("no bundle")
		attach(sigstoreBundleOf(t, digest.FromString("another"), signed, second))                // a signature of something else
		attach(sigstoreBundleOf(t, d.Digest, "https://slsa.dev/provenance/v1", second))          // an attestation, which is no signature
		attach(sigstoreBundleOf(t, d.Digest, signed, stranger))                                  // whoever that is
		_, err = referrertest.Refer(t.Context(), repo, d, "application/spdx+json", `{"name":1}`) // what has nothing to do with it
		require.NoError(t, err)
		_, reason := verify(trustIn(second))
		require.Equal(t, bundle.UntrustedKey, reason)
		_, reason = verify(both)
		require.Equal(t, bundle.BelowThreshold, reason)

		attach(sigstoreBundleOf(t, d.Digest, signed, second))
		got, reason = verify(trustIn(second))
		require.Empty(t, reason)
		require.True(t, got.SigstoreBundle)
		require.Len(t, got.Keys, 1)
		got, reason = verify(both)
		require.Empty(t, reason, "one signature of each form")
		require.True(t, got.SigstoreBundle)
		require.Len(t, got.Keys, 2)
		_, err = bundle.Verify(t.Context(), repo, d, trustIn(second))
		var refusal *bundle.Refusal
		require.ErrorAs(t, err, &refusal, "agents do not read it")
		require.Equal(t, bundle.UntrustedKey, refusal.Reason)
	})
}
