//go:build e2e

package flux_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/agenttest"
	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/oci"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
)

// artifacts are manifests in a registry, as signed artifacts.
type artifacts struct {
	*site
	prefix string
	n      int64
}

func newArtifacts(t *testing.T) *artifacts {
	t.Helper()
	s := newSite(t)
	registry, err := harness.StartRegistry(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, registry.Stop()) })
	return &artifacts{site: s, prefix: registry.Prefix}
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// push tags settings of a version as latest, signed by key, and returns their digest.
func (s *artifacts) push(t *testing.T, version string, key crypto.Signer) (digest string) {
	t.Helper()
	s.n++
	stream := bundle.Stream{Platform: "default", Environment: s.Name, ClusterType: "drone"}
	location, err := oci.Parse("oci://" + s.prefix)
	require.NoError(t, err)
	repo, err := location.Repository(stream.Repository(), oci.Options{PlainHTTP: true})
	require.NoError(t, err)
	files := map[string]string{"shop-web/settings.yaml": strings.Replace(settings, `"1"`, `"`+version+`"`, 1)}
	d, err := agenttest.New(stream, s.n, time.Now(), files, key).Publish(t.Context(), repo)
	require.NoError(t, err)
	return d.Digest.String()
}

// from is an assignment of what a reference names; extra is more of its spec, and more objects.
func (s *artifacts) from(t *testing.T, ref, extra string) reconcilers.Assignment {
	t.Helper()
	const text = `apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  path: ./shop-web
  prune: true
  targetNamespace: $NAME
  sourceRef: {kind: OCIRepository, name: $NAME-shop}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: OCIRepository
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  insecure: true
  url: oci://$PREFIX/bundles/$NAME/drone
  ref: {$REF}
`
	return s.Assignment(t, strings.NewReplacer("$PREFIX", s.prefix, "$REF", ref).Replace(text)+extra)
}

func TestATagIsFollowed(t *testing.T) {
	s, key := newArtifacts(t), newKey(t)
	first := s.push(t, "1", key)
	res := s.Settled(t, s.from(t, "tag: latest", note("one")), bundle.Compliant)
	require.Equal(t, "latest@"+first, res.Revision)
	require.True(t, res.Floating)

	second := s.push(t, "2", key)
	res = s.Settled(t, s.from(t, "tag: latest", note("two")), bundle.Compliant)
	require.Equal(t, "latest@"+second, res.Revision)
	require.Equal(t, "2", s.ConfigMap(t, "settings").Data["version"])
}

func TestADigestIsExact(t *testing.T) {
	s, key := newArtifacts(t), newKey(t)
	first := s.push(t, "1", key)
	a := s.from(t, "digest: '"+first+"'", "")
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, first, res.Revision)
	require.False(t, res.Floating)

	second := s.push(t, "2", key)
	require.Equal(t, first, s.Settled(t, a, bundle.Compliant).Revision)
	require.Equal(t, "1", s.ConfigMap(t, "settings").Data["version"])

	require.Equal(t, second, s.Settled(t, s.from(t, "digest: '"+second+"'", ""), bundle.Compliant).Revision)
	require.Equal(t, "2", s.ConfigMap(t, "settings").Data["version"])

	absent := s.from(t, "digest: 'sha256:"+strings.Repeat("0", 64)+"'", "")
	s.Stands(t, absent, bundle.Failed, "OCIArtifactPullFailed", "OCIRepository/"+namespace+"/"+s.Name+"-shop: ")
}

// The key that Flux verifies with is the assignment's: with another one, Flux looks again at once.
func TestWhatFluxCannotVerifyIsNotApplied(t *testing.T) {
	s, key := newArtifacts(t), newKey(t)
	verified := func(key crypto.Signer) reconcilers.Assignment {
		public, err := bundle.MarshalPublicKey(key.Public())
		require.NoError(t, err)
		return s.from(t, "tag: latest", "  verify: {provider: cosign, secretRef: {name: $NAME-key}}\n---\n"+
			"apiVersion: v1\nkind: Secret\nmetadata: {name: $NAME-key}\nstringData:\n  cosign.pub: |\n    "+strings.ReplaceAll(string(public), "\n", "\n    ")+"\n")
	}
	first := s.push(t, "1", key)
	s.Stands(t, verified(newKey(t)), bundle.Failed, "VerificationError", "")
	require.Nil(t, s.ConfigMap(t, "settings"))

	require.Equal(t, "latest@"+first, s.Settled(t, verified(key), bundle.Compliant).Revision)
	require.Equal(t, "1", s.ConfigMap(t, "settings").Data["version"])

	s.push(t, "2", newKey(t))
	source := s.object(t, "OCIRepository", "shop")
	s.annotate(t, source, requestedAt, "now")
	res := s.Stands(t, verified(key), bundle.Failed, "VerificationError", "")
	require.Equal(t, "latest@"+first, res.Revision, "what runs is the last one that could be verified")
	require.Equal(t, "1", s.ConfigMap(t, "settings").Data["version"])
}
