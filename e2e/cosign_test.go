//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/publisher/sigstoretest"
)

// cosign's own command line verifies our bundles, and we verify its signatures.

func TestCosignAcceptsWhatWasPublished(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.grow()
	s.publish()
	s.edit("platform/config.yaml", "LOG_LEVEL: info", "LOG_LEVEL: debug")
	s.publish()
	require.Equal(t, 1, s.deltas())
	s.generateKey("mallory")
	bundles := bundle.Stream{Environment: s.environment, ClusterType: clusterType}.Repository()
	latest, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), "latest")
	require.NoError(t, err)

	for _, repository := range []string{bundles, "environments/" + s.environment} {
		reference := s.prefix + "/" + repository + ":latest"
		verified := s.cosignVerify("cosign.pub", reference)
		require.Zero(t, verified.code, verified.stderr)
		claim := s.claim(verified)
		if repository == bundles {
			require.Equal(t, latest.Digest, claim)
		}
		refused := s.cosignVerify("mallory.pub", reference)
		require.NotZero(t, refused.code)
		require.Contains(t, refused.stderr, "no matching signatures")
		require.Empty(t, refused.stdout)
	}
}

func TestCosignRefusesWhatAnAgentRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		says  string
		offer func(*site) digest.Digest
	}{
		{"an unsigned bundle", "no signatures found", (*site).offerUnsigned},
		{"a bundle signed with another key", "no matching signatures", (*site).offerWronglySigned},
		{"a bundle with the signature of another", "no matching signatures", (*site).offerTransplanted},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			s.publish()
			offered := test.offer(s)
			refused := s.cosignVerify("cosign.pub", s.bundle(offered))
			require.NotZero(t, refused.code)
			require.Contains(t, refused.stderr, test.says)
			require.Equal(t, 4, s.wherry("verify", "oci://"+s.bundle(offered), "--key", "cosign.pub").code)
		})
	}
}

func TestTheAgentAcceptsWhatCosignHasSigned(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	offered := s.offerUnsigned()
	require.Contains(t, s.once(4).stderr, string(bundle.Unsigned))
	require.Equal(t, 4, s.wherry("verify", "oci://"+s.bundle(offered), "--key", "cosign.pub").code)

	signed := s.cosign("sign", "--yes", "--tlog-upload=false", "--key", "cosign.key", "--allow-http-registry", s.bundle(offered))
	require.Zero(t, signed.code, signed.stderr)

	verified := s.wherry("verify", "oci://"+s.bundle(offered), "--key", "cosign.pub")
	require.Zero(t, verified.code, verified.stderr)
	s.once(0)
	require.Equal(t, bundle.Compliant, s.status().State)
	require.Equal(t, offered, s.status().Release.Running.Digest)
	require.Equal(t, "of-mallory", s.settings("shop-web")["REGION"], "what was staged runs")
}

// bundle is a reference to a bundle of the site's cluster type, without a scheme.
func (s *site) bundle(d digest.Digest) string {
	stream := bundle.Stream{Environment: s.environment, ClusterType: clusterType}
	return s.prefix + "/" + stream.Repository() + "@" + d.String()
}

// cosign runs the command line of cosign, away from whatever it keeps in a person's home and without the
// internet: it asks for Sigstore's roots there, says that it cannot have them, and needs none for a key.
func (s *site) cosign(args ...string) ran {
	s.t.Helper()
	path, err := harness.Tool("cosign")
	require.NoError(s.t, err)
	return executeWith(s.t, append([]string{"HOME=" + s.path("home"), "HTTPS_PROXY=http://127.0.0.1:1"}, s.env...), s.dir, path, args...)
}

func (s *site) cosignVerify(key, reference string) ran {
	s.t.Helper()
	return s.cosign("verify", "--key", key, "--insecure-ignore-tlog=true", "--allow-http-registry", reference)
}

// claim is the digest that cosign says was signed.
func (s *site) claim(verified ran) digest.Digest {
	s.t.Helper()
	var claims []struct {
		Critical struct {
			Image struct {
				Digest digest.Digest `json:"docker-manifest-digest"`
			} `json:"image"`
		} `json:"critical"`
	}
	require.NoError(s.t, json.Unmarshal([]byte(verified.stdout), &claims))
	require.Len(s.t, claims, 1)
	return claims[0].Critical.Image.Digest
}

func TestCosignAndWherryAgreeOnIdentities(t *testing.T) {
	t.Parallel()
	const subject, issuer = "https://example.com/release.yaml@refs/heads/main", "https://issuer.example.com"
	s := newSite(t)
	s.publish()
	own := s.repository(s.prefix, clusterType)
	published, err := own.Resolve(t.Context(), "latest")
	require.NoError(t, err)
	sigstore, err := sigstoretest.New(time.Now().AddDate(-1, 0, 0))
	require.NoError(t, err)
	trusted, err := sigstore.TrustedRoot()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(s.path("root.json"), trusted, 0o600))

	good := sigstoretest.Signing{Subject: subject, Issuer: issuer, At: time.Now().AddDate(0, -1, 0)}
	late, unlogged, unseen, another := good, good, good, good
	late.LoggedAfter, unlogged.Unlogged, unseen.NoSCT, another.Subject = time.Hour, true, true, subject+"-2"
	for _, test := range []struct {
		name    string
		signing sigstoretest.Signing
		trusted bool
	}{
		{"a good signature", good, true},
		{"of another subject", another, false},
		{"by a certificate that had expired", late, false},
		{"that is in no log", unlogged, false},
		{"by a certificate that is in no log", unseen, false},
	} {
		require.NoError(t, sigstore.Sign(t.Context(), own, published.Digest, test.signing))
		identity := []string{"--certificate-identity", subject, "--certificate-oidc-issuer", issuer, "--trusted-root", "root.json"}
		theirs := s.cosign(append([]string{"verify", "--offline", "--allow-http-registry", s.bundle(published.Digest)}, identity...)...)
		require.Equal(t, test.trusted, theirs.code == 0, "cosign: %s: %s", test.name, theirs.stderr)
		ours := s.wherry(append([]string{"verify", "oci://" + s.bundle(published.Digest)}, identity...)...)
		require.Equal(t, test.trusted, ours.code == 0, "wherry: %s: %s", test.name, ours.stderr)
		if !test.trusted {
			require.Equal(t, 4, ours.code)
		}
	}
	require.NoError(t, sigstore.Sign(t.Context(), own, published.Digest, good))
	s.once(4) // an agent takes keys only
	added := s.cosign("sign", "--yes", "--tlog-upload=false", "--key", "cosign.key", "--allow-http-registry", s.bundle(published.Digest))
	require.Zero(t, added.code, added.stderr)
	s.once(0)
	require.Zero(t, s.wherry("verify", "oci://"+s.bundle(published.Digest), "--certificate-identity", subject,
		"--certificate-oidc-issuer", issuer, "--trusted-root", "root.json").code, "a bundle can carry both")
}
