//go:build e2e

package flux_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/e2e/harness"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// pointer is Kalypso's template arc-flux with a repository that nobody can reach.
const pointer = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  url: https://git.invalid/shop
  ref: {branch: dev}
  secretRef: {name: repo-secret}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  targetNamespace: $NAME
  sourceRef: {kind: GitRepository, name: $NAME-shop}
  path: ./functional-test
  prune: true
`

// embedded returns an assignment with embedded delivery, served by the endpoint.
func (s *site) embedded(t *testing.T, e *harness.Endpoint, name, text string, files map[string]string) reconcilers.Assignment {
	t.Helper()
	a := s.Assignment(t, text)
	a.Name, a.Delivery = name, bundle.Embedded
	require.NoError(t, harness.Files(a.Dir, files))
	for path, data := range files {
		a.Content = bundle.ContentDigest([]bundle.File{{Path: path, Data: []byte(data + text)}})
	}
	a, err := e.Serve(t.Context(), a)
	require.NoError(t, err)
	return a
}

func startEndpoint(t *testing.T) *harness.Endpoint {
	t.Helper()
	e, err := harness.StartEndpoint(t.TempDir())
	require.NoError(t, err)
	e.Changed = rewrite.Manifests
	t.Cleanup(func() { require.NoError(t, e.Stop()) })
	return e
}

// secret returns the Secret with the endpoint's CA, or nil.
func (s *site) secret(t *testing.T) *corev1.Secret {
	t.Helper()
	secret := &corev1.Secret{}
	err := s.Get(t.Context(), types.NamespacedName{Namespace: namespace, Name: rewrite.CAName}, secret)
	if apierrors.IsNotFound(err) {
		return nil
	}
	require.NoError(t, err)
	return secret
}

func TestEmbeddedContentComesFromTheEndpoint(t *testing.T) {
	s, e := newSite(t), startEndpoint(t)
	// The same assignment, before it was embedded.
	before := s.Assignment(t, pointer)
	s.Stands(t, before, bundle.Failed, "GitOperationFailed", "")

	a := s.embedded(t, e, "shop", pointer, map[string]string{"manifests/settings.yaml": settings})
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, a.Served.Manifests.Digest.String(), res.Revision)
	require.False(t, res.Floating)
	require.Equal(t, "1", s.ConfigMap(t, "settings").Data["version"])
	require.Nil(t, s.object(t, "GitRepository", "shop"), "it is no longer among the objects")
	require.NotNil(t, s.secret(t))
	require.Equal(t, bundle.Compliant, s.R.Observe(t.Context(), a).State)
	again := s.R.Apply(t.Context(), a)
	require.Equal(t, bundle.Compliant, again.State)
	require.Empty(t, again.Changes)

	second := s.embedded(t, e, "shop", pointer, map[string]string{
		"manifests/settings.yaml": strings.Replace(settings, `"1"`, `"2"`, 1), "manifests/more/other.yaml": strings.Replace(settings, "{name: settings}", "{name: other}", 1),
	})
	res = s.Settled(t, second, bundle.Compliant)
	require.Equal(t, second.Served.Manifests.Digest.String(), res.Revision)
	require.NotEqual(t, a.Served.Manifests.Digest, second.Served.Manifests.Digest)
	require.Equal(t, "2", s.ConfigMap(t, "settings").Data["version"])
	require.NotNil(t, s.ConfigMap(t, "other"), "folders are read, too")

	// The Secret belongs to all that use it, and goes with the last.
	other := s.embedded(t, e, "other", strings.ReplaceAll(pointer, "$NAME-shop", "$NAME-other"), map[string]string{
		"manifests/settings.yaml": strings.Replace(settings, "{name: settings}", "{name: third}", 1),
	})
	s.Settled(t, other, bundle.Compliant)
	s.Removed(t, second)
	require.Nil(t, s.ConfigMap(t, "settings"))
	require.NotNil(t, s.secret(t))
	require.Equal(t, bundle.Compliant, s.R.Observe(t.Context(), other).State)
	s.Removed(t, other)
	require.Nil(t, s.ConfigMap(t, "third"))
	require.Nil(t, s.secret(t))
	require.Empty(t, s.Own(t, kinds["OCIRepository"]))
	require.Empty(t, s.Own(t, kinds["Kustomization"]))
}

func TestAnEmbeddedAssignmentWithoutAnEndpoint(t *testing.T) {
	s := newSite(t)
	a := s.Assignment(t, pointer)
	a.Delivery = bundle.Embedded
	for _, res := range []reconcilers.Result{s.R.Apply(t.Context(), a), s.R.Observe(t.Context(), a)} {
		require.Equal(t, bundle.Failed, res.State)
		require.Equal(t, rewrite.NoEndpoint, res.Reason)
		require.Equal(t, reconcilers.FaultSite, res.Fault)
		require.Contains(t, res.Message, "--serve")
	}
}

func TestAnEndpointThatFluxCannotReachIsTheSitesFault(t *testing.T) {
	s, e := newSite(t), startEndpoint(t)
	a := s.embedded(t, e, "shop", pointer, map[string]string{"manifests/settings.yaml": settings})
	a.Served.Host = "127.0.0.1:1"
	res := s.Stands(t, a, bundle.Failed, "OCIArtifactPullFailed", "OCIRepository/"+namespace+"/"+s.Name+"-shop: ")
	require.Equal(t, reconcilers.FaultSite, res.Fault)
	s.Removed(t, a)
	require.Nil(t, s.secret(t))
}

// A Secret of that name which the agent has not made is nobody's to take.
func TestTheSecretOfSomebodyElseIsNotTaken(t *testing.T) {
	s, e := newSite(t), startEndpoint(t)
	theirs := &corev1.Secret{}
	theirs.Namespace, theirs.Name, theirs.StringData = namespace, rewrite.CAName, map[string]string{"ca.crt": "theirs"}
	require.NoError(t, s.Create(t.Context(), theirs))
	a := s.embedded(t, e, "shop", pointer, map[string]string{"manifests/settings.yaml": settings})
	res := s.R.Apply(t.Context(), a)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, kubernetes.Conflict, res.Reason)
	require.Equal(t, reconcilers.FaultSite, res.Fault)
	s.Removed(t, a)
	require.Equal(t, []byte("theirs"), s.secret(t).Data["ca.crt"])
	require.NoError(t, s.Client.Delete(t.Context(), theirs))
}

// What somebody has changed in the agent's Secret is drift, and corrected.
func TestTheSecretOfTheAgentIsKeptAsItIs(t *testing.T) {
	s, e := newSite(t), startEndpoint(t)
	a := s.embedded(t, e, "shop", pointer, map[string]string{"manifests/settings.yaml": settings})
	s.Settled(t, a, bundle.Compliant)
	secret := s.secret(t)
	secret.Data["ca.crt"] = []byte("another")
	require.NoError(t, s.Update(t.Context(), secret))
	res := s.R.Observe(t.Context(), a)
	require.Equal(t, bundle.Drifted, res.State)
	require.Contains(t, res.Message, "Secret/"+namespace+"/"+rewrite.CAName+" differs")
	s.Settled(t, a, bundle.Compliant)
	require.Equal(t, a.Served.CA, s.secret(t).Data["ca.crt"])
	require.NoError(t, s.Client.Delete(t.Context(), secret))
	require.Equal(t, bundle.Drifted, s.R.Observe(t.Context(), a).State)
	s.Settled(t, a, bundle.Compliant)
	s.Removed(t, a)
	require.Nil(t, s.secret(t))
}

// The source-controller is the real one, and stores the chart for a HelmRelease; see also release_e2e_test.go.
func TestTheChartOfAHelmReleaseComesFromTheEndpoint(t *testing.T) {
	s, e := newSite(t), startEndpoint(t)
	s.hasHelm(t)
	const release = `apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: $NAME-charts}
spec: {interval: 1h, url: "https://charts.invalid"}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  releaseName: shop
  targetNamespace: $NAME
  storageNamespace: $NAME
  chart: {spec: {chart: shop, version: 6.x, sourceRef: {kind: HelmRepository, name: $NAME-charts}}}
`
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	archive := tar.NewWriter(zip)
	const about = "apiVersion: v2\nname: shop\nversion: 6.1.0\n"
	require.NoError(t, archive.WriteHeader(&tar.Header{Name: "shop/Chart.yaml", Mode: 0o644, Size: int64(len(about))}))
	_, err := archive.Write([]byte(about))
	require.NoError(t, err)
	require.NoError(t, archive.Close())
	require.NoError(t, zip.Close())

	a := s.embedded(t, e, "shop", release, map[string]string{"charts/shop-6.1.0.tgz": packed.String()})
	s.R.Apply(t.Context(), a)
	require.Eventually(t, func() bool {
		for _, source := range s.chartSources(t) {
			revision, _, _ := unstructured.NestedString(source.Object, "status", "artifact", "digest")
			if revision == digest.FromBytes(packed.Bytes()).String() {
				return true // it is the chart, as its maker packed it
			}
		}
		return false
	}, reconcilertest.Patience, 100*time.Millisecond)
	name, _, _ := unstructured.NestedString(s.object(t, "HelmRelease", "shop").Object, "spec", "chartRef", "name")
	require.Equal(t, s.chartSources(t)[0].GetName(), name)
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(schema.GroupVersionKind{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "HelmRepositoryList"})
	require.NoError(t, s.List(t.Context(), list, client.InNamespace(namespace)))
	for _, o := range list.Items {
		require.NotEqual(t, s.Name+"-charts", o.GetName(), "Flux could not reach it")
	}
	s.Removed(t, a)
	require.Empty(t, s.chartSources(t))
	require.Nil(t, s.secret(t))
}

// chartSources are the OCIRepositories of charts.
func (s *site) chartSources(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kinds["OCIRepository"])
	require.NoError(t, s.List(t.Context(), list, client.InNamespace(namespace), client.HasLabels{kubernetes.OwnerLabel}))
	return list.Items
}
