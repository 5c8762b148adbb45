package flux

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
)

// parse reads objects of namespace flux-system and generation 2.
func parse(t *testing.T, texts ...string) kubernetestest.Objects {
	t.Helper()
	var out kubernetestest.Objects
	for _, text := range texts {
		o := kubernetestest.Parse(t, text)
		o.SetGeneration(2)
		o.SetNamespace("flux-system")
		out = append(out, o)
	}
	return out
}

func judgeAll(t *testing.T, texts ...string) reconcilers.Result {
	t.Helper()
	c := parse(t, texts...)
	res, err := kubernetes.JudgeAll(t.Context(), c, c, "sha256:content", judgeObject)
	require.NoError(t, err)
	return res
}

const (
	git           = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: shop}\n"
	kustomization = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: shop}\n"
	follows       = "spec: {sourceRef: {kind: GitRepository, name: shop}, wait: true}\n"
	ready         = "{type: Ready, status: 'True', reason: Succeeded, observedGeneration: 2}"
	fetched       = git + "spec: {ref: {branch: main}}\nstatus: {observedGeneration: 2, artifact: {revision: 'main@sha1:b2'}, conditions: [" + ready + "]}\n"
	pinned        = git + "spec: {ref: {branch: main, commit: b2}}\nstatus: {observedGeneration: 2, artifact: {revision: 'main@sha1:b2'}, conditions: [" + ready + "]}\n"
	applied       = kustomization + follows + "status: {observedGeneration: 2, lastAppliedRevision: 'main@sha1:b2', conditions: [" + ready + "]}\n"
)

func TestHowFluxStandsIsHowTheAssignmentStands(t *testing.T) {
	for _, c := range []struct {
		name     string
		objects  []string
		state    bundle.State
		reason   string
		revision string
		floating bool
	}{
		{"a branch whose newest commit is applied", []string{fetched, applied}, bundle.Compliant, "", "main@sha1:b2", true},
		{"a commit that is applied", []string{pinned, applied}, bundle.Compliant, "", "main@sha1:b2", false},
		{
			"an older revision that is well",
			[]string{fetched, kustomization + follows + "status: {observedGeneration: 2, lastAppliedRevision: 'main@sha1:a1', conditions: [" + ready + "]}\n"},
			bundle.Progressing, "NotReady", "main@sha1:a1", true,
		},
		{
			"an older generation that is well",
			[]string{fetched, kustomization + follows + "status: {observedGeneration: 1, lastAppliedRevision: 'main@sha1:b2', conditions: [{type: Ready, status: 'True', reason: x, observedGeneration: 1}]}\n"},
			bundle.Progressing, "NotReady", "main@sha1:b2", true,
		},
		{"what Flux has not taken up", []string{git, kustomization + follows}, bundle.Progressing, "NotReady", "", true},
		{
			"a failure of the newest revision",
			[]string{fetched, kustomization + follows + "status: {observedGeneration: 1, lastAppliedRevision: 'main@sha1:a1', lastAttemptedRevision: 'main@sha1:b2', conditions: [{type: Ready, status: 'False', reason: BuildFailed, message: no such file, observedGeneration: 2}]}\n"},
			bundle.Failed, "BuildFailed", "main@sha1:a1", true,
		},
		{
			"a failure of an older revision",
			[]string{fetched, kustomization + follows + "status: {lastAttemptedRevision: 'main@sha1:a1', conditions: [{type: Ready, status: 'False', reason: BuildFailed, observedGeneration: 2}]}\n"},
			bundle.Progressing, "NotReady", "", true,
		},
		{
			"one that waits for another",
			[]string{fetched, kustomization + follows + "status: {conditions: [{type: Ready, status: 'False', reason: DependencyNotReady, message: dependency not ready, observedGeneration: 2}]}\n"},
			bundle.Progressing, "DependencyNotReady", "", true,
		},
		{
			"the usual repetition of what is well",
			[]string{fetched, kustomization + follows + "status: {observedGeneration: 2, lastAppliedRevision: 'main@sha1:b2', history: [{lastReconciledStatus: ReconciliationSucceeded}], conditions: [{type: Ready, status: Unknown, reason: Progressing, observedGeneration: 2}]}\n"},
			bundle.Compliant, "", "main@sha1:b2", true,
		},
		{
			"the repetition of what has failed",
			[]string{fetched, kustomization + follows + "status: {observedGeneration: 2, lastAppliedRevision: 'main@sha1:b2', history: [{lastReconciledStatus: HealthCheckFailed}], conditions: [{type: Ready, status: Unknown, reason: Progressing, observedGeneration: 2}]}\n"},
			bundle.Progressing, "Progressing", "main@sha1:b2", true,
		},
		{
			"a branch that cannot be fetched any more",
			[]string{git + "status: {observedGeneration: 2, artifact: {revision: 'main@sha1:b2'}, conditions: [{type: Ready, status: 'False', reason: GitOperationFailed, message: no route, observedGeneration: 2}]}\n", applied},
			bundle.Failed, "GitOperationFailed", "main@sha1:b2", true,
		},
		{
			"a commit that is here and cannot be fetched any more",
			[]string{git + "spec: {ref: {commit: b2}}\nstatus: {observedGeneration: 2, artifact: {revision: 'main@sha1:b2'}, conditions: [{type: Ready, status: 'False', reason: GitOperationFailed, observedGeneration: 2}]}\n", applied},
			bundle.Compliant, "", "main@sha1:b2", false,
		},
		{"a source that does not exist", []string{applied}, bundle.Progressing, "ArtifactFailed", "main@sha1:b2", true},
		{
			"what Flux has given up",
			[]string{git + "status: {conditions: [{type: Ready, status: 'False', reason: InvalidURL, observedGeneration: 2}, {type: Stalled, status: 'True', reason: URLInvalid, message: bad, observedGeneration: 2}]}\n"},
			bundle.Failed, "URLInvalid", "sha256:content", true,
		},
		{
			"what somebody has asked Flux to look at again",
			[]string{fetched, strings.Replace(applied, "{name: shop}", "{name: shop, annotations: {reconcile.fluxcd.io/requestedAt: b}}", 1)},
			bundle.Progressing, "NotReady", "main@sha1:b2", true,
		},
		{
			"what Flux has looked at again",
			[]string{fetched, strings.NewReplacer("{name: shop}", "{name: shop, annotations: {reconcile.fluxcd.io/requestedAt: b}}", "status: {", "status: {lastHandledReconcileAt: b, ").Replace(applied)},
			bundle.Compliant, "", "main@sha1:b2", true,
		},
		{"what is suspended", []string{fetched, kustomization + "spec: {suspend: true, sourceRef: {kind: GitRepository, name: shop}}\n"}, bundle.Suspended, "Suspended", "", true},
		{
			"objects that are not there, without wait",
			[]string{fetched, kustomization + "spec: {sourceRef: {kind: GitRepository, name: shop}}\nstatus: {observedGeneration: 2, lastAppliedRevision: 'main@sha1:b2', inventory: {entries: [{id: shop_web_apps_Deployment, v: v1}]}, conditions: [" + ready + "]}\n"},
			bundle.Progressing, "NotReady", "main@sha1:b2", true,
		},
		{"a registry of charts, which has no status", []string{"apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: shop}\nspec: {type: oci}\n"}, bundle.Compliant, "", "sha256:content", false},
		{"plain objects alone", []string{"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop}\n"}, bundle.Compliant, "", "sha256:content", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := judgeAll(t, c.objects...)
			require.Equal(t, c.state, res.State, res.Message)
			require.Equal(t, c.reason, res.Reason)
			require.Equal(t, c.revision, res.Revision)
			require.Equal(t, c.floating, res.Floating)
			require.Equal(t, c.state == bundle.Compliant, res.Message == "", "all but compliance is explained: %q", res.Message)
		})
	}
}

func TestAPinIsFoundInARevision(t *testing.T) {
	for revision, pin := range map[string]string{
		"main@sha1:b2": "b2", "sha1:b2": "b2", "latest@sha256:9c": "sha256:9c", "sha256:9c": "sha256:9c",
	} {
		require.True(t, endsWith(revision, pin), revision)
		require.False(t, endsWith(revision, "b"), revision)
		require.False(t, endsWith(revision, ""), revision)
	}
}
