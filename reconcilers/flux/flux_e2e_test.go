//go:build e2e

package flux_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

// objects is a source that follows a branch, and what Flux is to do with it.
const objects = `apiVersion: source.toolkit.fluxcd.io/v1beta2
kind: GitRepository
metadata: {name: $NAME-shop}
spec:
  interval: 1s
  url: $GIT/$NAME
  ref: {branch: dev}
  secretRef: {name: repo-secret}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1beta2
kind: Kustomization
metadata: {name: $NAME-shop}
spec:
  interval: 10m
  retryInterval: 1s
  timeout: 15s
  path: ./dev
  prune: true
  targetNamespace: $NAME
  sourceRef: {kind: GitRepository, name: $NAME-shop}
`

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {version: \"1\"}\n"

func push(t *testing.T, s *site, path, text string) (revision string) {
	t.Helper()
	commit, err := git.Commit(t.Context(), s.Name, "dev", map[string]string{path: text})
	require.NoError(t, err)
	return "dev@sha1:" + commit
}

func TestWhatABranchHoldsIsFollowed(t *testing.T) {
	s := newSite(t)
	first := push(t, s, "dev/settings.yaml", settings)
	a := s.Assignment(t, objects)
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, first, res.Revision)
	require.True(t, res.Floating)
	require.Contains(t, res.Message, "GitRepository applied as v1, not v1beta2; Kustomization applied as v1, not v1beta2")
	require.NotNil(t, s.ConfigMap(t, "settings"))

	second := push(t, s, "dev/other.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n")
	s.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == bundle.Compliant && res.Revision == second })
	require.NotNil(t, s.ConfigMap(t, "other"))
	require.Nil(t, s.ConfigMap(t, "settings"))
}

func TestAFailureHasTheReasonAndWordsOfFlux(t *testing.T) {
	s := newSite(t)
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  progressDeadlineSeconds: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.invalid/web:1}]}}
`
	a := s.Assignment(t, objects)
	for _, c := range []struct{ name, path, text, reason, message string }{
		{"a path that is not there", "elsewhere/settings.yaml", settings, "ArtifactFailed", "kustomization path not found"},
		{"a file that cannot be built", "dev/settings.yaml", "apiVersion: v1\nkind: ConfigMap\n", "BuildFailed", "missing metadata.name"},
		{"an object that the API server refuses", "dev/settings.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80000}]}\n", "ReconciliationFailed", "80000"},
		{"a rollout that does not get on", "dev/web.yaml", deployment, kubernetes.Unhealthy, "Deployment/"},
	} {
		t.Run(c.name, func(t *testing.T) {
			push(t, s, c.path, c.text)
			res := s.Stands(t, a, bundle.Failed, c.reason, c.message)

			good := push(t, s, "dev/settings.yaml", settings)
			s.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == bundle.Compliant && res.Revision == good })
		})
	}
	t.Run("a source that cannot be had", func(t *testing.T) {
		a := s.Assignment(t, objects+"---\n"+`apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: $NAME-closed}
spec: {interval: 1m, url: $GIT/$NAME, ref: {branch: dev}}
`)
		res := s.Stands(t, a, bundle.Failed, "GitOperationFailed", "authentication required")
		require.Contains(t, res.Message, "GitRepository/"+namespace+"/"+s.Name+"-closed: ")
	})
}

func TestFieldsThatWentWithAVersionAreNamed(t *testing.T) {
	s := newSite(t)
	a := s.Assignment(t, objects+"  validation: client\n")
	res := s.R.Apply(t.Context(), a)
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, kubernetes.VersionNotServed, res.Reason)
	require.Contains(t, res.Message, "reconciler.yaml, document 2: Kustomization/"+namespace+"/"+s.Name+"-shop is written for v1beta2, and v1, which the cluster serves, lacks .spec.validation")
	require.Nil(t, s.object(t, "GitRepository", "shop"), "nothing is applied unless all of it can be")
}

func TestANamespaceGoesAfterWhatFluxHasPutIntoIt(t *testing.T) {
	s := newSite(t)
	push(t, s, "dev/settings.yaml", settings)
	own := s.Name + "-own"
	const namespaced = "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NAME-own}\n---\n"
	a := s.Assignment(t, namespaced+strings.Replace(objects, "targetNamespace: $NAME", "targetNamespace: $NAME-own", 1))
	s.Settled(t, a, bundle.Compliant)
	res := s.R.Remove(t.Context(), a)
	require.Equal(t, bundle.Progressing, res.State)
	for end := time.Now().Add(reconcilertest.Patience); res.State == bundle.Progressing && time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond)
		res = s.R.Remove(t.Context(), a)
	}
	require.Equal(t, bundle.Removed, res.State, "%s: %s", res.Reason, res.Message)
	require.Empty(t, res.Reason, res.Message)
	err := s.Get(t.Context(), types.NamespacedName{Name: own}, &corev1.Namespace{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
