package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
)

const fleet = `apiVersion: fleet.cattle.io/v1alpha1
kind: GitRepo
metadata: {name: shop, namespace: fleet-local}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: platform-config, namespace: shop}
---
apiVersion: v1
kind: Secret
metadata: {name: token, namespace: shop}
`

// judged returns a pass over the manifests of fleet, whose GitRepo is live as the given YAML says.
func judged(t *testing.T, gitRepo string) *pass {
	t.Helper()
	p := offline(t)
	var err error
	p.plan.objects, err = parseManifests("reconciler.yaml", []byte(fleet))
	require.NoError(t, err)
	live, err := parseManifests("live.yaml", []byte("apiVersion: fleet.cattle.io/v1alpha1\nkind: GitRepo\n"+gitRepo))
	require.NoError(t, err)
	for _, m := range p.plan.objects {
		p.live[m.id()] = m.Unstructured
	}
	p.live[live[0].id()] = live[0].Unstructured
	return p
}

func TestConditionsDecideWhetherACustomResourceIsWell(t *testing.T) {
	ready, clusters := `GitRepo: .status.conditions[?(@.type=="Ready")].status == True`, "GitRepo/shop: .status.readyClusters == 1"
	const metadata = "metadata: {name: shop, namespace: fleet-local, generation: 2}\n"
	for _, c := range []struct {
		name, live      string
		conditions      []string
		state           bundle.State
		reason, message string
	}{
		{"without conditions kstatus finds nothing amiss in a new object", metadata, nil, bundle.Compliant, "", ""},
		{
			"with them it is not well before its controller says so", metadata,
			[]string{ready, clusters},
			bundle.Progressing, NotReady,
			`GitRepo/fleet-local/shop: .status.conditions[?(@.type=="Ready")].status is absent, not True, .status.readyClusters is absent, not 1`,
		},
		{
			"all are true", metadata + "status: {observedGeneration: 2, readyClusters: 1, conditions: [{type: Ready, status: 'True'}]}",
			[]string{ready, clusters},
			bundle.Compliant, "", "",
		},
		{
			"one is not", metadata + "status: {observedGeneration: 2, readyClusters: 0, conditions: [{type: Ready, status: 'True'}]}",
			[]string{ready, clusters},
			bundle.Progressing, NotReady, "GitRepo/fleet-local/shop: .status.readyClusters is 0, not 1",
		},
		{
			"a green status of an older generation is none", metadata + "status: {observedGeneration: 1, readyClusters: 1, conditions: [{type: Ready, status: 'True'}]}",
			[]string{ready, clusters},
			bundle.Progressing, NotReady, "GitRepo/fleet-local/shop: its controller has seen generation 1, not yet 2",
		},
		{
			"nor is a condition about one", metadata + "status: {readyClusters: 1, conditions: [{type: Ready, status: 'True', observedGeneration: 1}]}",
			[]string{ready, clusters},
			bundle.Progressing, NotReady, `GitRepo/fleet-local/shop: .status.conditions[?(@.type=="Ready")].status is absent, not True`,
		},
		{
			"its controller has given up", metadata + "status: {observedGeneration: 2, conditions: [{type: Stalled, status: 'True', message: no such branch}]}",
			[]string{clusters},
			bundle.Failed, Unhealthy, "GitRepo/fleet-local/shop: no such branch; .status.readyClusters is absent, not 1",
		},
		{
			"they decide in place of kstatus", metadata + "status: {observedGeneration: 2, readyClusters: 1, conditions: [{type: Ready, status: 'False'}]}",
			[]string{clusters},
			bundle.Compliant, "", "",
		},
		{
			"what is being deleted is not well", "metadata: {name: shop, namespace: fleet-local, deletionTimestamp: '2026-01-02T03:04:05Z'}\nstatus: {readyClusters: 1}",
			[]string{clusters},
			bundle.Progressing, NotReady, "GitRepo/fleet-local/shop: it is being deleted",
		},
		{
			"without a kind they are about custom resources alone", metadata + "status: {phase: Waiting}",
			[]string{".status.phase == Running"},
			bundle.Progressing, NotReady, "GitRepo/fleet-local/shop: .status.phase is Waiting, not Running",
		},
		{
			"other objects can be named", metadata,
			[]string{"ConfigMap: .data.level == 3"},
			bundle.Progressing, NotReady,
			"ConfigMap/shop/platform-config: .data.level is absent, not 3",
		},
		{
			"a Secret is not quoted", metadata,
			[]string{"Secret: .kind == Public"},
			bundle.Progressing, NotReady,
			"Secret/shop/token: .kind is not Public",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := judged(t, c.live)
			require.NoError(t, p.plan.expect(c.conditions))
			res := p.plan.assess("sha256:abc", p.live)
			require.Equal(t, c.state, res.State, res.Message)
			require.Equal(t, c.reason, res.Reason)
			require.Equal(t, c.message, res.Message)

			// An engine's own judge is asked first, and then the conditions.
			engine := reconcilers.Result{State: bundle.Compliant}
			engine = p.plan.confirm(engine, p.live)
			want := c.state
			if c.reason == Unhealthy { // which is the engine's to say
				want = bundle.Progressing
			}
			require.Equal(t, want, engine.State)
		})
	}
}

func TestKubernetesOwnKindsAreJudgedByBoth(t *testing.T) {
	p := offline(t)
	var err error
	p.plan.objects, err = parseManifests("a.yaml", []byte(`apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, generation: 1}
spec: {replicas: 1}
status: {observedGeneration: 1, phase: Good}
`))
	require.NoError(t, err)
	p.live[p.plan.objects[0].id()] = p.plan.objects[0].Unstructured
	require.NoError(t, p.plan.expect([]string{"Deployment: .status.phase == Good"}))
	res := p.plan.assess("sha256:abc", p.live)
	require.Equal(t, bundle.Progressing, res.State)
	require.Contains(t, res.Message, "Deployment/shop/web: ")
}

func TestAConditionAboutNothingFails(t *testing.T) {
	for condition, want := range map[string]string{
		"GitRepository: .status.phase == Running": "health condition GitRepository: .status.phase == Running: the assignment has no GitRepository",
		"GitRepo/west: .status.phase == Running":  "health condition GitRepo/west: .status.phase == Running: the assignment has no GitRepo of the name west",
		"status == x":                             `health condition: "status == x" does not begin with a path`,
	} {
		err := judged(t, "metadata: {name: shop, namespace: fleet-local}").plan.expect([]string{condition})
		res := failed(t.Context(), err)
		require.Equal(t, bundle.Failed, res.State)
		require.Equal(t, InvalidHealth, res.Reason)
		require.Equal(t, want, res.Message)
	}
	p := judged(t, "metadata: {name: shop, namespace: fleet-local}")
	p.plan.objects = p.plan.objects[1:]
	require.EqualError(t, p.plan.expect([]string{".status.phase == Running"}),
		"health condition .status.phase == Running: the assignment has no custom resource, and it names no kind")
}
