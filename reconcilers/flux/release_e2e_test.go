//go:build e2e

package flux_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// Releases are tested on a real helm-controller where the cluster has one, and else with the test in its place,
// which writes what helm-controller documents that it writes.

// chart is a release of a chart in the folder chart of the site's repository.
const chart = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: $NAME-shop}
spec: {interval: 1s, url: $GIT/$NAME, ref: {branch: dev}, secretRef: {name: repo-secret}}
---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: $NAME-shop}
spec:
  interval: 1h
  timeout: 10s
  releaseName: shop
  targetNamespace: $NAME
  storageNamespace: $NAME
  chart: {spec: {chart: chart, reconcileStrategy: ChartVersion, sourceRef: {kind: GitRepository, name: $NAME-shop}}}
  upgrade: {remediation: {retries: 1, strategy: rollback, remediateLastFailure: true}}
  values: {version: %q}
`

func TestAHelmReleaseIsFollowed(t *testing.T) {
	s := newSite(t)
	s.commitChart(t)
	if s.hasHelm(t) {
		s.followHelm(t)
	} else {
		s.playHelm(t)
	}
}

// commitChart puts the chart into the site's repository.
func (s *site) commitChart(t *testing.T) {
	t.Helper()
	_, err := git.Commit(t.Context(), s.Name, "dev", map[string]string{
		"chart/Chart.yaml":              "apiVersion: v2\nname: shop\nversion: 6.1.0\n",
		"chart/templates/settings.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {version: {{ .Values.version }}}\n",
	})
	require.NoError(t, err)
}

// hasHelm reports whether the cluster serves HelmReleases and somebody takes them up.
func (s *site) hasHelm(t *testing.T) bool {
	t.Helper()
	_, err := s.RESTMapper().RESTMapping(schema.GroupKind{Group: "helm.toolkit.fluxcd.io", Kind: "HelmRelease"}, "v2")
	if err != nil {
		s.defineHelm(t)
		return false
	}
	probe := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(s.Fill(fmt.Sprintf(chart, "0")[strings.Index(chart, "---"):])), &probe.Object))
	probe.SetNamespace(namespace)
	require.NoError(t, s.Create(t.Context(), probe))
	taken := false
	for end := time.Now().Add(time.Minute); !taken && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		taken = len(s.object(t, "HelmRelease", "shop").GetFinalizers()) > 0
	}
	require.NoError(t, s.Client.Delete(t.Context(), probe))
	require.Eventually(t, func() bool { return s.object(t, "HelmRelease", "shop") == nil }, reconcilertest.Patience, 100*time.Millisecond)
	return taken
}

// followHelm runs a release on a real helm-controller.
func (s *site) followHelm(t *testing.T) {
	t.Helper()
	a := s.Assignment(t, fmt.Sprintf(chart, "one"))
	require.Equal(t, "6.1.0", s.Settled(t, a, bundle.Compliant).Revision)
	require.Equal(t, "one", s.ConfigMap(t, "settings").Data["version"])
	s.Settled(t, s.Assignment(t, fmt.Sprintf(chart, "two")), bundle.Compliant)
	require.Equal(t, "two", s.ConfigMap(t, "settings").Data["version"])
	bad := s.Assignment(t, fmt.Sprintf(chart, "{no: text}"))
	res := s.Settled(t, bad, bundle.Failed)
	require.Contains(t, []string{"UpgradeFailed", "RollbackSucceeded", "RetriesExceeded"}, res.Reason, res.Message)
	s.Settled(t, a, bundle.Compliant)
	require.Equal(t, "one", s.ConfigMap(t, "settings").Data["version"])
	s.Removed(t, a)
	require.Nil(t, s.ConfigMap(t, "settings"))
}

// playHelm is a release with the test as its controller.
func (s *site) playHelm(t *testing.T) {
	t.Helper()
	a := s.Assignment(t, fmt.Sprintf(chart, "one"))
	requireStands(t, s.R.Apply(t.Context(), a), bundle.Progressing, kubernetes.NotReady, "is its helm-controller running?")
	s.report(t, "{type: Reconciling, status: 'True', reason: Progressing}", "{type: Ready, status: Unknown, reason: Progressing, message: running install}")
	s.stands(t, a, bundle.Progressing, "Progressing", "running install")
	s.report(t, "{type: Ready, status: 'True', reason: InstallSucceeded}", "{type: Released, status: 'True', reason: InstallSucceeded}")
	s.stands(t, a, bundle.Compliant, "", "")

	b := s.Assignment(t, fmt.Sprintf(chart, "two"))
	requireStands(t, s.R.Apply(t.Context(), b), bundle.Progressing, kubernetes.NotReady, "has not seen the newest generation")
	s.report(t, "{type: Ready, status: 'False', reason: UpgradeFailed}", "{type: Remediated, status: 'True', reason: RollbackSucceeded, message: back to 6.0.0}")
	s.stands(t, b, bundle.Failed, "RollbackSucceeded", "back to 6.0.0")
	s.report(t, "{type: Ready, status: 'True', reason: UpgradeSucceeded}")
	s.stands(t, b, bundle.Compliant, "", "")

	release := s.object(t, "HelmRelease", "shop")
	require.NoError(t, unstructured.SetNestedField(release.Object, "three", "spec", "values", "version"))
	release.SetFinalizers([]string{"example.com/helm"})
	require.NoError(t, s.Update(t.Context(), release))
	s.stands(t, b, bundle.Drifted, kubernetes.Differs, ".spec.values.version")
	requireStands(t, s.R.Apply(t.Context(), b), bundle.Progressing, kubernetes.NotReady, "has not seen the newest generation")

	requireStands(t, s.R.Remove(t.Context(), b), bundle.Progressing, kubernetes.Terminating, "HelmRelease/")
	release = s.object(t, "HelmRelease", "shop")
	release.SetFinalizers(nil)
	require.NoError(t, s.Update(t.Context(), release))
	s.Removed(t, b)
}

// report writes the conditions of the present generation.
func (s *site) report(t *testing.T, conditions ...string) {
	t.Helper()
	release := s.object(t, "HelmRelease", "shop")
	text := fmt.Sprintf("observedGeneration: %d\nhistory: [{chartVersion: 6.1.0, status: deployed}]\nconditions: [%s]\n", release.GetGeneration(), strings.Join(conditions, ", "))
	status := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &status))
	for _, c := range status["conditions"].([]any) {
		c.(map[string]any)["observedGeneration"] = release.GetGeneration()
	}
	release.Object["status"] = status
	require.NoError(t, s.Status().Update(t.Context(), release))
}

// stands waits until a stands so; its source is Flux's to fetch.
func (s *site) stands(t *testing.T, a reconcilers.Assignment, state bundle.State, reason, message string) {
	t.Helper()
	enough := func(res reconcilers.Result) bool {
		return res.State == state && res.Reason == reason && strings.Contains(res.Message, message)
	}
	s.Observed(t, a, s.R.Observe(t.Context(), a), enough)
}

func requireStands(t *testing.T, res reconcilers.Result, state bundle.State, reason, message string) {
	t.Helper()
	require.Equal(t, state, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, reason, res.Reason, res.Message)
	require.Contains(t, res.Message, message)
}

// defineHelm has the cluster serve HelmReleases, whatever is in them, until the test ends.
func (s *site) defineHelm(t *testing.T) {
	t.Helper()
	const text = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: helmreleases.helm.toolkit.fluxcd.io}
spec:
  group: helm.toolkit.fluxcd.io
  scope: Namespaced
  names: {kind: HelmRelease, listKind: HelmReleaseList, plural: helmreleases, singular: helmrelease}
  versions:
  - {name: v2, served: true, storage: true, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	crd := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(text), &crd.Object))
	require.NoError(t, s.Create(t.Context(), crd))
	t.Cleanup(func() {
		require.NoError(t, s.Client.Delete(context.Background(), crd))
		require.Eventually(t, func() bool {
			return apierrors.IsNotFound(s.Get(context.Background(), client.ObjectKeyFromObject(crd), crd))
		}, reconcilertest.Patience, 100*time.Millisecond)
	})
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kinds["HelmRelease"])
		list.SetKind("HelmReleaseList")
		return s.List(t.Context(), list) == nil
	}, reconcilertest.Patience, 100*time.Millisecond)
}
