//go:build e2e

package argo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestConformance(t *testing.T) {
	reconcilertest.Run(t, reconcilertest.Adapter{
		Name: "argo", On: "a real application-controller and repo-server of Argo CD, with git, on a real API server", Start: newEngine,
	})
}

// application follows a branch. Its syncPolicy is for the test to add.
const application = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: $NAME-shop}
spec:
  project: default
  source: {repoURL: $GIT/$NAME, path: dev, targetRevision: dev}
  destination: {server: https://kubernetes.default.svc, namespace: $NAME}
`

// What Argo CD does by itself. Without retries a test need not wait for them.
const (
	automated = application + "  syncPolicy: {automated: {prune: true, selfHeal: true}, retry: {limit: 0}}\n"
	manual    = application + "  syncPolicy: {syncOptions: [ApplyOutOfSyncOnly=true], retry: {limit: 0}}\n"
)

const settings = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {version: \"1\"}\n"

func push(t *testing.T, s *site, text string) (commit string) {
	t.Helper()
	commit, err := git.Commit(t.Context(), s.Name, "dev", map[string]string{"dev/manifest.yaml": text})
	require.NoError(t, err)
	return commit
}

func TestWhatABranchHoldsIsFollowed(t *testing.T) {
	s := newSite(t)
	first := push(t, s, settings)
	a := s.assignment(t, automated)
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, first, res.Revision)
	require.True(t, res.Floating)
	require.NotNil(t, s.ConfigMap(t, "settings"))

	second := push(t, s, strings.ReplaceAll(settings, "settings", "other"))
	s.agentSees(t, a, func(res reconcilers.Result) bool { return res.State == bundle.Compliant && res.Revision == second })
	require.NotNil(t, s.ConfigMap(t, "other"))
	require.Nil(t, s.ConfigMap(t, "settings"))
}

func TestWithoutAutomatedSyncsArgoCDIsDriven(t *testing.T) {
	s := newSite(t)
	e := s.conforming()
	first := push(t, s, settings)
	a := s.assignment(t, manual)
	res := s.Settled(t, a, bundle.Compliant)
	require.Equal(t, first, res.Revision)

	before := e.Writes(t, a.Name)
	res = s.R.Apply(t.Context(), a)
	require.Equal(t, bundle.Compliant, res.State, res.Message)
	require.Equal(t, before, e.Writes(t, a.Name), "what is well is left alone")

	second := push(t, s, strings.ReplaceAll(settings, "settings", "other"))
	res = s.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == bundle.Drifted })
	require.Equal(t, argo.OutOfSync, res.Reason)
	require.Contains(t, res.Message, second)
	require.Equal(t, first, res.Revision, "which is what runs")
	require.NotNil(t, s.ConfigMap(t, "settings"), "an observation changes nothing")
	s.R.Apply(t.Context(), a)
	res = s.agentSees(t, a, func(res reconcilers.Result) bool { return res.State == bundle.Compliant })
	require.Equal(t, second, res.Revision)
	require.Nil(t, s.ConfigMap(t, "settings"), "what the branch has lost goes")

	other := s.ConfigMap(t, "other")
	other.Data["version"] = "by hand"
	require.NoError(t, s.Update(t.Context(), other))
	res = s.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == bundle.Drifted })
	require.Contains(t, res.Message, "ConfigMap/"+s.Name+"/other")
	s.Settled(t, a, bundle.Compliant)
	require.Equal(t, "1", s.ConfigMap(t, "other").Data["version"])
}

func TestSeveralSourcesAreOneApplication(t *testing.T) {
	for name, policy := range map[string]string{"automated": "{automated: {prune: true}}", "driven": "{}"} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			commit := push(t, s, settings)
			other, err := git.Commit(t.Context(), s.Name, "main", map[string]string{"main/manifest.yaml": strings.ReplaceAll(settings, "settings", "other")})
			require.NoError(t, err)
			sources := "sources: [{repoURL: $GIT/$NAME, path: dev, targetRevision: " + commit + "}, {repoURL: $GIT/$NAME, path: main, targetRevision: main}]"
			a := s.assignment(t, strings.Replace(application, "source: {repoURL: $GIT/$NAME, path: dev, targetRevision: dev}", sources, 1)+"  syncPolicy: "+policy+"\n")
			res := s.Settled(t, a, bundle.Compliant)
			require.Equal(t, commit+", "+other, res.Revision)
			require.True(t, res.Floating, "one of them follows a branch")
			require.NotNil(t, s.ConfigMap(t, "settings"))
			require.NotNil(t, s.ConfigMap(t, "other"))
		})
	}
}

// project is an AppProject that permits the site's own namespace.
const project = `---
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: $NAME-shop}
spec:
  sourceRepos: ['*']
  destinations: [{server: https://kubernetes.default.svc, namespace: $NAME*}]
`

func TestANamespaceAndAProjectGoAfterWhatArgoCDHasBrought(t *testing.T) {
	s := newSite(t)
	push(t, s, settings)
	const own = "apiVersion: v1\nkind: Namespace\nmetadata: {name: $NAME-own}\n---\n"
	a := s.assignment(t, own+strings.NewReplacer("namespace: $NAME}", "namespace: $NAME-own}", "project: default", "project: $NAME-shop").Replace(automated)+project)
	s.Settled(t, a, bundle.Compliant)
	require.NotContains(t, s.application(t, "shop").GetFinalizers(), "resources-finalizer.argocd.argoproj.io", "until it is to go")
	s.Removed(t, a)
	for _, o := range []*unstructured.Unstructured{object("v1", "Namespace", "", s.Name+"-own"), object("argoproj.io/v1alpha1", "AppProject", namespace, s.Name+"-shop")} {
		err := s.Get(t.Context(), client.ObjectKeyFromObject(o), o)
		require.True(t, apierrors.IsNotFound(err), "%s: %v", o.GetName(), err)
	}
	require.Nil(t, s.application(t, "shop"))
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func TestASyncWindowKeepsAnAssignmentPending(t *testing.T) {
	for name, manifests := range map[string]string{"automated": automated, "driven": manual} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			push(t, s, settings)
			closed := project + "  syncWindows: [{kind: deny, schedule: '* * * * *', duration: 1h, applications: ['*']}]\n"
			a := s.assignment(t, strings.Replace(manifests, "project: default", "project: $NAME-shop", 1)+closed)
			s.Stands(t, a, bundle.Pending, argo.OutsideWindow, "sync window")
			require.Nil(t, s.ConfigMap(t, "settings"))
			open := s.assignment(t, strings.Replace(manifests, "project: default", "project: $NAME-shop", 1)+project)
			s.Settled(t, open, bundle.Compliant)
		})
	}
}

func TestHealthIsArgoCDs(t *testing.T) {
	s := newSite(t)
	const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  paused: PAUSED
  progressDeadlineSeconds: 1
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: registry.invalid/web:1}]}}
`
	push(t, s, strings.Replace(deployment, "PAUSED", "true", 1))
	a := s.assignment(t, automated)
	res := s.Settled(t, a, bundle.Suspended)
	require.Equal(t, argo.Suspended, res.Reason)

	push(t, s, strings.Replace(deployment, "PAUSED", "false", 1))
	// Argo CD writes an Application's health before or after what its resources say.
	res = s.Observed(t, a, res, func(res reconcilers.Result) bool {
		return res.Reason == argo.Degraded && strings.Contains(res.Message, "Deployment/"+s.Name+"/web: Progress deadline exceeded")
	})
	require.Equal(t, bundle.Progressing, res.State)
	res = s.later(t, 10*time.Minute).Observe(t.Context(), a)
	require.Equal(t, bundle.Failed, res.State, "after the deadline: %s: %s", res.Reason, res.Message)
	require.Equal(t, argo.Degraded, res.Reason)
}

// later is the reconciler at another time.
func (s *site) later(t *testing.T, d time.Duration) reconcilers.Reconciler {
	t.Helper()
	r, err := argo.New(s.Config, reconcilertest.DiskLedger(s.Ledger), argo.Options{
		Namespace: namespace, Poll: time.Hour, Now: func() time.Time { return time.Now().Add(d) },
	})
	require.NoError(t, err)
	return r
}

// pod waits until Argo CD has made a Pod, of which it says then how it ended; nothing runs it.
func (s *site) pod(t *testing.T, name string, phase corev1.PodPhase) {
	t.Helper()
	pod := &corev1.Pod{}
	require.Eventually(t, func() bool {
		if s.Get(t.Context(), types.NamespacedName{Namespace: s.Name, Name: name}, pod) != nil {
			return false
		}
		pod.Status.Phase, pod.Status.Message = phase, "table is locked"
		return s.Status().Update(t.Context(), pod) == nil // the scheduler writes there too
	}, reconcilertest.Patience, 100*time.Millisecond)
}
