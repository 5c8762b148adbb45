//go:build e2e

package e2e

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
)

// An engine that no adapter is for: its objects are applied as all others are, and conditions say when they
// are well.
func TestAnEngineWithoutAnAdapterIsFollowedByConditions(t *testing.T) {
	t.Parallel()
	s := newFleet(t)
	s.publish()
	s.once(5, "--wait", "0s")
	s.make(late)
	s.once(5, "--wait", "1s")
	s.requireItem(bundle.Progressing, "NotReady", `.status.conditions[?(@.type=="Ready")].status is False, not True, .status.readyClusters is 0, not 1`)
	s.once(1, "--deadline", "5s") // that bounds each call as well
	s.requireItem(bundle.Failed, "DeadlineExceeded", ".status.readyClusters is 0, not 1")

	s.make(good)
	s.once(0)
	s.requireItem(bundle.Compliant, "", "")

	// A green status of the former assignment.
	s.make(asleep)
	s.edit("workloads/shop/workload.yaml", "branch: dev", "branch: next")
	s.publish()
	s.once(5, "--wait", "1s")
	s.requireItem(bundle.Progressing, "NotReady", "its controller has seen generation 1, not yet 2")

	s.make(stalled)
	s.once(1)
	s.requireItem(bundle.Failed, "Unhealthy", "couldn't find remote ref next; ")

	s.make(good)
	s.once(0)
	s.requireItem(bundle.Compliant, "", "")

	// Conditions count as soon as they are published, though no file has changed.
	s.edit("workloads/shop/workload.yaml", "readyClusters == 1", "readyClusters == 2")
	s.publish()
	s.once(5, "--wait", "1s")
	s.requireItem(bundle.Progressing, "NotReady", ".status.readyClusters is 1, not 2")
	s.edit("workloads/shop/workload.yaml", "GitRepo: .status.readyClusters", "GitRepository: .status.readyClusters")
	r := s.tryPublish(s.prefix, "cosign.key")
	require.NotZero(t, r.code)
	require.Contains(t, r.stderr, "GitRepository: .status.readyClusters == 2: nothing that is rendered is it [E1608]")
}

// What the controller makes of GitRepos.
const (
	asleep  int32 = iota // it does not look
	late                 // it is at work
	good                 // they are well
	stalled              // it has given up
)

// fleet is a site with an engine of its own: a GitRepo and a controller that behave as Rancher Fleet's do.
type fleet struct {
	*site
	mood   atomic.Int32
	rounds atomic.Int64 // of the controller
	list   schema.GroupVersionKind
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	s := &fleet{site: newSite(t)}
	group := s.environment + ".example.com"
	s.list = schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: "GitRepoList"}
	for from, to := range map[string]string{"fleet/templates.yaml": "platform/templates.yaml", "fleet/workload.yaml": "workloads/shop/workload.yaml"} {
		require.NoError(t, os.Rename(s.path(from), s.path(to)))
	}
	s.edit("workloads/shop/workload.yaml", "ENVIRONMENT", s.environment)
	s.edit("platform/templates.yaml", "GROUP/v1alpha1", group+"/v1alpha1")
	definition := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(gitRepoDefinition), &definition.Object))
	definition.SetName("gitrepos." + group)
	require.NoError(t, unstructured.SetNestedField(definition.Object, group, "spec", "group"))
	require.NoError(t, s.Create(t.Context(), definition))
	t.Cleanup(func() { require.NoError(t, s.Delete(context.Background(), definition)) })
	require.Eventually(t, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(s.list)
		return s.List(t.Context(), list) == nil
	}, patience, 50*time.Millisecond, "the definition is not served")

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.control(ctx)
			s.rounds.Add(1)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

const gitRepoDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {}
spec:
  scope: Namespaced
  names: {kind: GitRepo, listKind: GitRepoList, plural: gitrepos, singular: gitrepo}
  versions:
    - name: v1alpha1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// make has the controller make that of every GitRepo, and returns when it has done so with those that are
// there.
func (s *fleet) make(mood int32) {
	s.t.Helper()
	s.mood.Store(mood)
	before := s.rounds.Load()
	require.Eventually(s.t, func() bool { return s.rounds.Load() >= before+2 }, patience, 20*time.Millisecond)
}

// control brings the status of every GitRepo to what the controller's mood makes of it.
func (s *fleet) control(ctx context.Context) {
	mood := s.mood.Load()
	if mood == asleep {
		return
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(s.list)
	if err := s.List(ctx, list); err != nil {
		return // the next round comes soon
	}
	for _, o := range list.Items {
		ready, clusters, why := "True", int64(1), ""
		branch, _, _ := unstructured.NestedString(o.Object, "spec", "branch")
		switch mood {
		case late:
			ready, clusters, why = "False", 0, "NotReady(1) [Cluster fleet-local/local]"
		case stalled:
			ready, clusters, why = "False", 0, "couldn't find remote ref "+branch
		}
		condition := func(kind string, status string) any {
			return map[string]any{"type": kind, "status": status, "message": why, "lastUpdateTime": "2026-01-02T03:04:05Z"}
		}
		text := func(is bool) string { return map[bool]string{true: "True", false: "False"}[is] }
		before := o.DeepCopy()
		o.Object["status"] = map[string]any{
			"observedGeneration": o.GetGeneration(), "commit": "5523a85f37d12c0c7c10ab6616644db089fcd6f7",
			"desiredReadyClusters": int64(1), "readyClusters": clusters, "display": map[string]any{"message": why},
			"conditions": []any{
				condition("Ready", ready), condition("Accepted", "True"),
				condition("Reconciling", text(mood == late)), condition("Stalled", text(mood == stalled)),
			},
		}
		err := s.Status().Patch(ctx, &o, client.MergeFrom(before))
		if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			s.t.Errorf("the controller of the test: %v", err)
		}
	}
}

// requireItem requires how the only assignment stands. The message has to contain some words.
func (s *fleet) requireItem(state bundle.State, reason, words string) {
	s.t.Helper()
	items := s.status().Items
	require.Len(s.t, items, 1)
	require.Equal(s.t, state, items[0].State, items[0].Message)
	require.Equal(s.t, reason, items[0].Reason, items[0].Message)
	require.Contains(s.t, items[0].Message, words)
	if words != "" && reason != "InvalidHealth" {
		require.Contains(s.t, items[0].Message, "GitRepo/"+s.namespace("shop-web")+"/shop: ")
	}
}
