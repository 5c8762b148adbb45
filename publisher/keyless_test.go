package publisher

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/sigstore/cosign/v2/pkg/oci/static"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/publisher/sigstoretest"
	"github.com/wherry-dev/wherry/publisher/verify"
)

const (
	releaser = "https://github.com/example/platform/.github/workflows/release.yaml@refs/heads/main"
	provider = "https://token.actions.githubusercontent.com"
)

func newSigstore(t *testing.T, founded time.Time) (s *sigstoretest.Sigstore, trustedRoot []byte) {
	t.Helper()
	s, err := sigstoretest.New(founded)
	require.NoError(t, err)
	trustedRoot, err = s.TrustedRoot()
	require.NoError(t, err)
	return s, trustedRoot
}

// resolved is what a reference to w's destination names.
func (w *world) resolved(name string) (oci.Target, digest.Digest) {
	repo, desc, err := w.reference(name).Resolve(w.t.Context(), w.opts.OCI)
	require.NoError(w.t, err)
	return repo, desc.Digest
}

func TestAKeylessSignatureIsVerified(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.mustPublish()
	sigstore, trustedRoot := newSigstore(t, w.now.AddDate(-1, 0, 0))
	trust, err := verify.NewKeyless(releaser, provider, trustedRoot)
	require.NoError(t, err)
	for _, name := range []string{"bundles/dev/drone", "environments/dev"} {
		repo, d := w.resolved(name)
		_, err = verify.ByIdentity(t.Context(), w.reference(name), trust, w.now, w.opts.OCI)
		require.ErrorContains(t, err, "is signed, but by no certificate")

		// Signed half a year ago, when the certificate was valid, as the log says.
		at := w.now.AddDate(0, -6, 0)
		require.NoError(t, sigstore.Sign(t.Context(), repo, d, sigstoretest.Signing{Subject: releaser, Issuer: provider, At: at, LoggedAfter: time.Minute}))
		got, err := verify.ByIdentity(t.Context(), w.reference(name), trust, w.now, w.opts.OCI)
		require.NoError(t, err)
		require.Equal(t, &verify.Identity{Subject: releaser, Issuer: provider, LoggedAt: at.Add(time.Minute)}, got.Identity)
		require.Equal(t, d, got.Digest)
		require.Empty(t, got.Keys)

		_, err = verify.ByKeys(t.Context(), w.reference(name), trustIn(w.key), w.now, w.opts.OCI)
		require.ErrorContains(t, err, string(bundle.UntrustedKey))
	}
	_, err = verify.ByIdentity(t.Context(), w.reference("bundles/dev/drone"), trust, w.now.AddDate(1, 0, 0), w.opts.OCI)
	require.ErrorContains(t, err, string(bundle.Expired))
}

func TestKeylessSignaturesThatAreNotTrusted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "registry")
	w.mustPublish()
	name := "bundles/dev/drone"
	repo, d := w.resolved(name)
	_, other := w.resolved("bundles/dev/large")
	sigstore, trustedRoot := newSigstore(t, w.now.AddDate(-1, 0, 0))
	mallory, _ := newSigstore(t, w.now.AddDate(-1, 0, 0))
	trust, err := verify.NewKeyless(releaser, provider, trustedRoot)
	require.NoError(t, err)
	good := sigstoretest.Signing{Subject: releaser, Issuer: provider, At: w.now, LoggedAfter: time.Minute}
	with := func(change func(*sigstoretest.Signing)) sigstoretest.Signing {
		signing := good
		change(&signing)
		return signing
	}
	edit := func(key, value string) sigstoretest.Signing {
		return with(func(s *sigstoretest.Signing) { s.Edit = func(a map[string]string) { a[key] = value } })
	}
	entry := func(change func(payload map[string]any)) sigstoretest.Signing {
		return with(func(s *sigstoretest.Signing) {
			s.Edit = func(a map[string]string) {
				var e map[string]any
				require.NoError(t, json.Unmarshal([]byte(a[static.BundleAnnotationKey]), &e))
				change(e["Payload"].(map[string]any))
				data, err := json.Marshal(e)
				require.NoError(t, err)
				a[static.BundleAnnotationKey] = string(data)
			}
		})
	}
	for _, tc := range []struct {
		name    string
		by      *sigstoretest.Sigstore
		signing sigstoretest.Signing
		want    string
	}{
		{"another subject", sigstore, with(func(s *sigstoretest.Signing) { s.Subject = strings.Replace(releaser, "main", "topic", 1) }), "none of the expected identities"},
		{"a subject that begins alike", sigstore, with(func(s *sigstoretest.Signing) { s.Subject += "-2" }), "none of the expected identities"},
		{"another issuer", sigstore, with(func(s *sigstoretest.Signing) { s.Issuer = "https://example.com" }), "none of the expected identities"},
		{"another Sigstore", mallory, good, "rekor log public key not found"},
		{"no promise of the log", sigstore, with(func(s *sigstoretest.Signing) { s.Unlogged = true }), "lacks the promise of a log"},
		{"no promise of the log of certificates", sigstore, with(func(s *sigstoretest.Signing) { s.NoSCT = true }), "does not include required embedded SCT"},
		{"a certificate that had expired", sigstore, with(func(s *sigstoretest.Signing) { s.LoggedAfter = time.Hour }), "certificate expired before signatures were entered in log"},
		{"a certificate that was not yet valid", sigstore, with(func(s *sigstoretest.Signing) { s.LoggedAfter = -time.Hour }), "issued after signatures were entered in log"},
		{"a Sigstore that was not yet there", sigstore, with(func(s *sigstoretest.Signing) { s.At = w.now.AddDate(-2, 0, 0) }), "not valid at payload integrated time"},
		{"a signature of another manifest", sigstore, with(func(s *sigstoretest.Signing) { s.Claims = other }), string(bundle.DigestMismatch)},
		{"a changed signature", sigstore, edit(static.SignatureAnnotationKey, "AAAA"), "does not match signature being verified"},
		{"a certificate that is none", sigstore, edit(static.CertificateAnnotationKey, "PEM"), ""},
		{"a changed time in the log", sigstore, entry(func(p map[string]any) { p["integratedTime"] = w.now.Add(2 * time.Minute).Unix() }), "unable to verify SET"},
		{"an entry without a body", sigstore, entry(func(p map[string]any) { p["body"] = 7 }), "has no body"},
		{"an entry of another kind", sigstore, entry(func(p map[string]any) { p["body"] = "e30=" }), `the log's entry is a ""`},
		{"an entry that is not JSON", sigstore, edit(static.BundleAnnotationKey, "{"), "the log's entry: "},
		// {"kind":"hashedrekord","apiVersion":"0.0.1","spec":{}}
		{"an entry without a signature", sigstore, entry(func(p map[string]any) {
			p["body"] = "eyJraW5kIjoiaGFzaGVkcmVrb3JkIiwiYXBpVmVyc2lvbiI6IjAuMC4xIiwic3BlYyI6e319"
		}), "validation failure"},
		{"an entry whose key is none", sigstore, entry(func(p map[string]any) {
			body, err := base64.StdEncoding.DecodeString(p["body"].(string))
			require.NoError(t, err)
			changed := regexp.MustCompile(`"publicKey":{"content":"[^"]*"`).ReplaceAll(body, []byte(`"publicKey":{"content":"AAAA"`))
			require.NotEqual(t, body, changed)
			p["body"] = base64.StdEncoding.EncodeToString(changed)
		}), "failure decoding PEM"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			require.NoError(t, tc.by.Sign(t.Context(), repo, d, tc.signing))
			got, err := verify.ByIdentity(t.Context(), w.reference(name), trust, w.now, w.opts.OCI)
			require.Nil(t, got)
			var refusal *bundle.Refusal
			require.ErrorAs(t, err, &refusal)
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestTrustInIdentities(t *testing.T) {
	t.Parallel()
	_, err := verify.NewKeyless(releaser, provider, nil)
	require.NoError(t, err, "what is shipped can be read")
	_, err = verify.NewKeyless("", provider, nil)
	require.ErrorContains(t, err, "both not empty")
	_, err = verify.NewKeyless(releaser, "", nil)
	require.ErrorContains(t, err, "both not empty")
	_, err = verify.NewKeyless(releaser, provider, []byte("{}"))
	require.ErrorContains(t, err, "trusted root: ")
}
