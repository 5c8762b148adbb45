//go:build e2e

package kubernetes_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/bundle/sitevalues"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/rewrite"
)

// valued applies an assignment with these site values.
func (s *site) valued(t *testing.T, name, manifests string, values map[string]string, change ...func(*reconcilers.Assignment)) reconcilers.Assignment {
	t.Helper()
	a := s.assignment(t, name, manifests)
	a.Values, a.ValuesDigest = values, sitevalues.Digest(values)
	for _, c := range change {
		c(&a)
	}
	res := s.r.Apply(t.Context(), a)
	require.Equal(t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
	return a
}

func TestTheConfigMapOfSiteValuesIsTheUnionOfItsUsers(t *testing.T) {
	s := newSite(t)
	one := s.valued(t, "one", configMap("one", "a", "b"), map[string]string{"dns": "a", "gateway.address": "10.0.0.1"})
	require.Equal(t, map[string]string{"dns": "a", "gateway_address": "10.0.0.1"}, s.data(t, rewrite.SiteConfigMap))
	two := s.valued(t, "two", configMap("two", "a", "b"), map[string]string{"dns": "a", "port": "80"})
	require.Equal(t, map[string]string{"dns": "a", "gateway_address": "10.0.0.1", "port": "80"}, s.data(t, rewrite.SiteConfigMap))
	for _, a := range []reconcilers.Assignment{one, two} {
		res := s.r.Apply(t.Context(), a)
		for _, c := range res.Changes {
			require.Equal(t, reconcilers.Unchanged, c.Action, c.Object)
		}
		require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), a).State)
	}

	one = s.valued(t, "one", configMap("one", "a", "b"), map[string]string{"dns": "b"})
	require.Equal(t, map[string]string{"dns": "b", "port": "80"}, s.data(t, rewrite.SiteConfigMap), "a key that nobody uses any more goes")
	two = s.valued(t, "two", configMap("two", "a", "b"), map[string]string{"dns": "b", "port": "80"})

	u := s.read(t, "v1", "ConfigMap", s.Name, rewrite.SiteConfigMap)
	require.NoError(t, unstructured.SetNestedField(u.Object, "by hand", "data", "dns"))
	require.NoError(t, s.Update(t.Context(), u))
	res := s.r.Observe(t.Context(), two)
	require.Equal(t, bundle.Drifted, res.State, res.Message)
	require.NotContains(t, res.Message, "by hand")
	s.valued(t, "two", configMap("two", "a", "b"), map[string]string{"dns": "b", "port": "80"})
	require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), one).State)

	s.remove(t, "one")
	require.Equal(t, map[string]string{"dns": "b", "port": "80"}, s.data(t, rewrite.SiteConfigMap))
	s.remove(t, "two")
	require.Nil(t, s.read(t, "v1", "ConfigMap", s.Name, rewrite.SiteConfigMap), "it goes with its last user")
}

func TestAConfigMapOfSomebodyElseIsNotTaken(t *testing.T) {
	s := newSite(t)
	theirs := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"x": "y"}}}
	theirs.SetNamespace(s.Name)
	theirs.SetName(rewrite.SiteConfigMap)
	require.NoError(t, s.Create(t.Context(), theirs))
	a := s.assignment(t, "one", configMap("one", "a", "b"))
	a.Values, a.ValuesDigest = map[string]string{"dns": "secret-ish"}, digest.FromString("v")
	res := s.r.Apply(t.Context(), a)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, kubernetes.Conflict, res.Reason, res.Message)
	require.Equal(t, reconcilers.FaultSite, res.Fault)
	require.NotContains(t, res.Message, "secret-ish")
	s.remove(t, "one")
	require.Equal(t, map[string]string{"x": "y"}, s.data(t, rewrite.SiteConfigMap))
}

func TestANamespaceThatComesWithTheAssignmentGetsItsValues(t *testing.T) {
	s := newSite(t)
	name := s.Name + "-own"
	t.Cleanup(func() { s.forget("v1", "Namespace", name) })
	a := s.valued(t, "one", "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NS-own}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: $NS-own}\n",
		map[string]string{"dns": "a"}, func(a *reconcilers.Assignment) { a.Namespace = name })
	require.NotNil(t, s.read(t, "v1", "ConfigMap", name, rewrite.SiteConfigMap))

	a.Namespace, a.Values = s.Name+"-absent", map[string]string{"dns": "b"}
	a.ValuesDigest = sitevalues.Digest(a.Values)
	res := s.r.Apply(t.Context(), a)
	require.Equal(t, bundle.Compliant, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, bundle.Compliant, s.r.Observe(t.Context(), a).State, "nothing can use it where there is no namespace")
	require.Nil(t, s.read(t, "v1", "ConfigMap", name, rewrite.SiteConfigMap), "it has moved on")
}

func TestAChangeOfAValueRollsADeployment(t *testing.T) {
	s := newSite(t)
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 0
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, envFrom: [{configMapRef: {name: wherry-site}}]}]}
`
	restart := func(a *reconcilers.Assignment) { a.RestartOnConfig = true }
	template := func(value string, change ...func(*reconcilers.Assignment)) (int64, string) {
		a := s.assignment(t, "web", deployment)
		a.Values = map[string]string{"dns": value}
		a.ValuesDigest = sitevalues.Digest(a.Values)
		for _, c := range change {
			c(&a)
		}
		s.r.Apply(t.Context(), a)
		u := s.read(t, "apps/v1", "Deployment", s.Name, "web")
		require.NotNil(t, u)
		stamp, _, _ := unstructured.NestedString(u.Object, "spec", "template", "metadata", "annotations", kubernetes.ConfigDigestAnnotation)
		return u.GetGeneration(), stamp
	}
	first, one := template("a", restart)
	again, same := template("a", restart)
	require.Equal(t, first, again)
	require.Equal(t, one, same)
	rolled, two := template("b", restart)
	require.Greater(t, rolled, first)
	require.NotEqual(t, one, two)
	require.Equal(t, map[string]string{"dns": "b"}, s.data(t, rewrite.SiteConfigMap))
	_, none := template("c")
	require.Empty(t, none, "nothing asks for restarts")
}
