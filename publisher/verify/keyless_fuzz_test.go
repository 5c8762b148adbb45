package verify

import (
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/sigstoretest"
)

// FuzzKeyless changes a registry's data about a signature: it is refused, or has the same identity as the valid one.
func FuzzKeyless(f *testing.F) {
	at := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	s, err := sigstoretest.New(at.AddDate(-1, 0, 0))
	require.NoError(f, err)
	trustedRoot, err := s.TrustedRoot()
	require.NoError(f, err)
	trust, err := NewKeyless(subjectOfTest, issuerOfTest, trustedRoot)
	require.NoError(f, err)
	repo := oci.Location{Dir: f.TempDir()}
	target, err := repo.Repository("bundles/dev/drone", oci.Options{})
	require.NoError(f, err)
	d := digest.FromString("a manifest")
	require.NoError(f, s.Sign(f.Context(), target, d, sigstoretest.Signing{Subject: subjectOfTest, Issuer: issuerOfTest, At: at}))
	layers, err := bundle.SignatureLayers(f.Context(), target, d)
	require.NoError(f, err)
	good := layers[0]
	_, err = trust.verifyLayer(f.Context(), good, good.Data, d)
	require.NoError(f, err)

	f.Add(good.Annotations[static.SignatureAnnotationKey], good.Annotations[static.CertificateAnnotationKey],
		good.Annotations[static.ChainAnnotationKey], good.Annotations[static.BundleAnnotationKey], good.Data)
	f.Fuzz(func(t *testing.T, sig, certificate, chain, entry string, claim []byte) {
		layer := ocispec.Descriptor{MediaType: bundle.MediaTypeSimpleSigning, Annotations: map[string]string{
			static.SignatureAnnotationKey: sig, static.CertificateAnnotationKey: certificate,
			static.ChainAnnotationKey: chain, static.BundleAnnotationKey: entry,
		}}
		loggedAt, err := trust.verifyLayer(t.Context(), layer, claim, d)
		if err == nil {
			require.Equal(t, good.Data, claim)
			require.Equal(t, at, loggedAt)
		}
	})
}

const (
	subjectOfTest = "https://github.com/example/platform/.github/workflows/release.yaml@refs/heads/main"
	issuerOfTest  = "https://token.actions.githubusercontent.com"
)
