package publisher

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/cosign/v2/pkg/cosign"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/keytest"
)

// verifyWithCosign is what cosign verify --key and Flux do with what we published.
func verifyWithCosign(t *testing.T, w *world, repository string, manifest ocispec.Descriptor) error {
	repo := w.repository(repository)
	desc, err := repo.Resolve(t.Context(), bundle.SignatureTag(manifest.Digest))
	require.NoError(t, err)
	data, err := bundle.ReadBlob(t.Context(), repo, desc, bundle.MaxManifestBytes)
	require.NoError(t, err)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(data, &m))
	require.Len(t, m.Layers, 1)
	layer := m.Layers[0]
	layer.Data = nil // cosign fetches the payload
	payload, err := bundle.ReadBlob(t.Context(), repo, layer, bundle.MaxManifestBytes)
	require.NoError(t, err)
	b64 := layer.Annotations["dev.cosignproject.cosign/signature"]
	_, err = base64.StdEncoding.DecodeString(b64)
	require.NoError(t, err)
	sig, err := static.NewSignature(payload, b64)
	require.NoError(t, err)
	verifier, err := signature.LoadDefaultVerifier(w.key.Public())
	require.NoError(t, err)
	hash, err := v1.NewHash(manifest.Digest.String())
	require.NoError(t, err)
	_, err = cosign.VerifyImageSignature(t.Context(), sig, hash, &cosign.CheckOpts{
		SigVerifier: verifier, ClaimVerifier: cosign.SimpleClaimVerifier, IgnoreTlog: true, Offline: true,
	})
	return err
}

func TestCosignAgreesOnWhatIsTrusted(t *testing.T) {
	w := newWorld(t, "embedded")
	w.mustPublish()
	ctx := t.Context()
	drone, large := w.verified("drone", "latest"), w.verified("large", "latest")
	require.NoError(t, verifyWithCosign(t, w, "bundles/dev/drone", drone.Descriptor))

	record, err := w.repository("environments/dev").Resolve(ctx, "latest")
	require.NoError(t, err)
	require.NoError(t, verifyWithCosign(t, w, "environments/dev", record))

	// The signature of one bundle under the tag of another: valid, but for something else.
	from, to := w.repository("bundles/dev/large"), w.repository("bundles/dev/drone")
	desc, err := from.Resolve(ctx, bundle.SignatureTag(large.Descriptor.Digest))
	require.NoError(t, err)
	data, err := bundle.ReadBlob(ctx, from, desc, bundle.MaxManifestBytes)
	require.NoError(t, err)
	var m ocispec.Manifest
	require.NoError(t, json.Unmarshal(data, &m))
	for _, d := range append(m.Layers, m.Config) {
		d.Annotations = nil
		blob, err := bundle.ReadBlob(ctx, from, d, bundle.MaxManifestBytes)
		require.NoError(t, err)
		require.NoError(t, to.Push(ctx, d, bytes.NewReader(blob)))
	}
	require.NoError(t, to.Push(ctx, desc, bytes.NewReader(data)))
	require.NoError(t, to.Tag(ctx, desc, bundle.SignatureTag(drone.Descriptor.Digest)))

	require.Error(t, verifyWithCosign(t, w, "bundles/dev/drone", drone.Descriptor))
	_, err = bundle.Verify(ctx, to, drone.Descriptor, trustIn(w.key))
	var refusal *bundle.Refusal
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.DigestMismatch, refusal.Reason)

	// And a signature by a key that nobody pinned.
	w.key = keytest.New(t)
	require.Error(t, verifyWithCosign(t, w, "bundles/dev/large", large.Descriptor))
	_, err = bundle.Verify(ctx, from, large.Descriptor, trustIn(w.key))
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, bundle.UntrustedKey, refusal.Reason)
}
