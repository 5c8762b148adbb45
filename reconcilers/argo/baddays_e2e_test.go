//go:build e2e

package argo_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/argo"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

const (
	service    = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: PORT}]}\n"
	deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 0, selector: {matchLabels: {app: APP}}, " +
		"template: {metadata: {labels: {app: APP}}, spec: {containers: [{name: web, image: registry.invalid/web:1}]}}}\n"
)

func TestAFailureHasTheReasonAndWordsOfArgoCD(t *testing.T) {
	for _, c := range []struct{ name, good, bad, reason, message string }{
		{"a file that cannot be read", settings, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: [\n", "ComparisonError", "manifest.yaml"},
		{"an object that the API server refuses", strings.Replace(service, "PORT", "80", 1), strings.Replace(service, "PORT", "80000", 1), argo.SyncFailed, "80000"},
		{"a field that cannot be changed", strings.ReplaceAll(deployment, "APP", "web"), strings.ReplaceAll(deployment, "APP", "shop"), argo.SyncFailed, "field is immutable"},
	} {
		for name, manifests := range map[string]string{"automated": automated, "driven": manual} {
			t.Run(c.name+", "+name, func(t *testing.T) {
				s := newSite(t)
				push(t, s, c.good)
				a := s.assignment(t, manifests)
				first := s.Settled(t, a, bundle.Compliant).Revision

				bad := push(t, s, c.bad)
				res := s.agentSees(t, a, func(res reconcilers.Result) bool {
					return res.State == bundle.Failed && res.Reason == c.reason && strings.Contains(res.Message, c.message)
				})
				require.Contains(t, res.Message, "Application/"+namespace+"/"+s.Name+"-shop: ")
				require.NotEqual(t, bad, res.Revision)
				require.Contains(t, []string{first, ""}, res.Revision)

				good := push(t, s, c.good+"---\n"+settings)
				s.agentSees(t, a, func(res reconcilers.Result) bool { return res.State == bundle.Compliant && res.Revision == good })
			})
		}
	}
}

// agentSees does as the agent: it observes, applies an assignment that has drifted, failed or is pending, and goes on
// until enough is seen of the last observation. A test in which Argo CD prunes needs it: Argo CD may delete an object
// a second time before its cache has seen the first deletion, and a sync without retries then fails.
func (s *site) agentSees(t *testing.T, a reconcilers.Assignment, enough func(reconcilers.Result) bool) reconcilers.Result {
	t.Helper()
	for end := time.Now().Add(reconcilertest.Patience); ; time.Sleep(200 * time.Millisecond) {
		res := s.R.Observe(t.Context(), a)
		if enough(res) {
			return res
		}
		require.True(t, time.Now().Before(end), "%s %s: %s (%s)", res.State, res.Reason, res.Message, res.Revision)
		if res.State != bundle.Progressing && res.State != bundle.Compliant {
			s.R.Apply(t.Context(), a)
		}
	}
}

func TestARevisionThatHasFailedIsTriedOnceMore(t *testing.T) {
	for name, manifests := range map[string]string{"automated": automated, "driven": manual} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			e := s.conforming()
			push(t, s, strings.Replace(service, "PORT", "80000", 1))
			a := s.assignment(t, manifests)
			res := s.Settled(t, a, bundle.Failed)
			began := s.began(t)

			res = s.R.Apply(t.Context(), a)
			require.Equal(t, bundle.Progressing, res.State, "it is tried: %s: %s", res.Reason, res.Message)
			s.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == bundle.Failed })
			require.NotEqual(t, began, s.began(t))

			before := e.Writes(t, a.Name)
			res = s.R.Apply(t.Context(), a)
			require.Equal(t, bundle.Failed, res.State, "and left then: %s: %s", res.Reason, res.Message)
			require.Equal(t, argo.SyncFailed, res.Reason)
			require.Equal(t, before, e.Writes(t, a.Name))
		})
	}
}

// began tells one sync from another.
func (s *site) began(t *testing.T) string {
	t.Helper()
	state, _, err := unstructured.NestedMap(s.application(t, "shop").Object, "status", "operationState")
	require.NoError(t, err)
	operation, _ := state["operation"].(map[string]any)
	began, _ := state["startedAt"].(string)
	info, _ := operation["info"].([]any)
	for _, i := range info {
		began += " " + i.(map[string]any)["value"].(string)
	}
	return began
}

const hook = "---\napiVersion: v1\nkind: Pod\nmetadata: {name: migrate, annotations: {argocd.argoproj.io/hook: PreSync}}\n" +
	"spec: {restartPolicy: Never, containers: [{name: migrate, image: registry.invalid/migrate:1}]}\n"

func TestASyncHookThatFailsFailsTheAssignment(t *testing.T) {
	s := newSite(t)
	push(t, s, settings+hook)
	a := s.assignment(t, automated)
	res := s.R.Apply(t.Context(), a)
	s.pod(t, "migrate", corev1.PodFailed)
	res = s.Observed(t, a, res, func(res reconcilers.Result) bool { return res.State == bundle.Failed })
	require.Equal(t, argo.SyncFailed, res.Reason)
	require.Contains(t, res.Message, "Pod/"+s.Name+"/migrate (PreSync): table is locked")
	require.Nil(t, s.ConfigMap(t, "settings"))
}

func TestASyncThatDoesNotEndIsEndedAfterTheDeadline(t *testing.T) {
	s := newSite(t)
	push(t, s, settings+hook)
	a := s.assignment(t, manual)
	waits := func(res reconcilers.Result) bool {
		return strings.Contains(res.Message, "waiting for completion of hook /Pod/migrate")
	}
	res := s.Observed(t, a, s.R.Apply(t.Context(), a), waits)
	require.Equal(t, bundle.Progressing, res.State)
	require.Equal(t, argo.Syncing, res.Reason)
	s.R.Apply(t.Context(), a)
	require.True(t, waits(s.R.Observe(t.Context(), a)), "before the deadline it goes on")

	late := s.later(t, 10*time.Minute)
	res = s.Observed(t, a, late.Apply(t.Context(), a), func(res reconcilers.Result) bool {
		if waits(res) { // Argo CD may just have written that it goes on, over what says that it is to end
			late.Apply(t.Context(), a)
		}
		return res.State == bundle.Failed
	})
	require.Equal(t, argo.SyncFailed, res.Reason)
	require.Contains(t, res.Message, "Operation terminated")
}

func TestAProjectThatDoesNotPermitTheNamespaceIsNamed(t *testing.T) {
	s := newSite(t)
	push(t, s, settings)
	elsewhere := strings.Replace(project, "namespace: $NAME*", "namespace: elsewhere", 1)
	a := s.assignment(t, strings.Replace(automated, "project: default", "project: $NAME-shop", 1)+elsewhere)
	s.Stands(t, a, bundle.Failed, "InvalidSpecError", "do not match any of the allowed destinations in project '"+s.Name+"-shop'")
	require.Nil(t, s.ConfigMap(t, "settings"))

	s.Settled(t, s.assignment(t, strings.Replace(automated, "project: default", "project: $NAME-shop", 1)+project), bundle.Compliant)
}

func TestWithoutARepoServerAnAssignmentIsPending(t *testing.T) {
	s := newSite(t)
	push(t, s, settings)
	start, err := s.engine.StopRepoServer()
	require.NoError(t, err)
	running := false
	restart := func() {
		if !running {
			running = true
			require.NoError(t, start(context.Background()))
		}
	}
	t.Cleanup(restart)
	a := s.assignment(t, automated)
	s.Stands(t, a, bundle.Pending, argo.RepoServerUnreachable, "connection refused")
	restart()
	s.agentSees(t, a, func(res reconcilers.Result) bool { return res.State == bundle.Compliant })
}

func TestAnApplicationThatNobodyLooksAtIsNotBelieved(t *testing.T) {
	s := newSite(t)
	first := push(t, s, settings)
	a := s.assignment(t, strings.Replace(automated, "targetRevision: dev", "targetRevision: "+first, 1))
	res := s.Settled(t, a, bundle.Compliant)
	require.False(t, res.Floating)
	resume, err := s.engine.PauseController()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, resume()) })

	res = s.later(t, 4*time.Hour).Observe(t.Context(), a)
	require.Equal(t, bundle.Pending, res.State, "%s: %s", res.Reason, res.Message)
	require.Equal(t, argo.NotReconciled, res.Reason)
	require.Contains(t, res.Message, "is its application-controller running?")
	require.Empty(t, s.application(t, "shop").GetAnnotations()["argocd.argoproj.io/refresh"], "an observation changes nothing")

	second := push(t, s, strings.ReplaceAll(settings, "settings", "other"))
	newer := s.assignment(t, strings.Replace(automated, "targetRevision: dev", "targetRevision: "+second, 1))
	for range 3 {
		res = s.R.Apply(t.Context(), newer)
		require.Equal(t, bundle.Progressing, res.State, "what is green is the older revision: %s: %s", res.Reason, res.Message)
		require.Equal(t, argo.NotReconciled, res.Reason)
	}
	require.Equal(t, "normal", s.application(t, "shop").GetAnnotations()["argocd.argoproj.io/refresh"])
	require.NoError(t, resume())
	res = s.agentSees(t, newer, func(res reconcilers.Result) bool { return res.State == bundle.Compliant })
	require.Equal(t, second, res.Revision)
}

func TestWithoutAKindArgoCDIsToBeInstalled(t *testing.T) {
	s := newSite(t)
	res := s.R.Apply(t.Context(), s.assignment(t, "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: $NAME-shop}\n"))
	require.Equal(t, bundle.Failed, res.State)
	require.Equal(t, kubernetes.KindNotServed, res.Reason)
	require.Contains(t, res.Message, "the cluster does not serve ApplicationSet.argoproj.io: install Argo CD")
}
