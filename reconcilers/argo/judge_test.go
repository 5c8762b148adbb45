package argo

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

var tested = engine{Options{Namespace: "argocd", Deadline: 5 * time.Minute, Poll: DefaultPoll, Now: func() time.Time { return now }}}

const commit = "b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2b2"

// Parts of an Application: its specification, and Argo CD's status.
const (
	head     = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: shop, namespace: argocd}\n"
	source   = "{repoURL: git://shop, path: dev, targetRevision: dev"
	spec1    = "spec: {source: " + source + ", directory: {recurse: false}}, destination: {namespace: shop, server: https://kubernetes.default.svc}, syncPolicy: "
	auto     = spec1 + "{automated: {prune: true, selfHeal: true}}}\n"
	heedless = spec1 + "{automated: {}}}\n"
	manually = spec1 + "{}}\n"
	looked   = "status:\n  reconciledAt: '2026-11-21T11:59:00Z'\n"
	compared = "comparedTo: {source: " + source + "}, destination: {namespace: shop, server: https://kubernetes.default.svc}}}\n"
	synced   = "  sync: {status: Synced, revision: " + commit + ", " + compared
	differs  = "  sync: {status: OutOfSync, revision: " + commit + ", " + compared + "  resources: [{kind: ConfigMap, namespace: shop, name: settings, status: OutOfSync}]\n"
	surplus  = "  sync: {status: OutOfSync, revision: " + commit + ", " + compared + "  resources: [{kind: ConfigMap, namespace: shop, name: settings, status: OutOfSync, requiresPruning: true}]\n"
	older    = "  sync: {status: Synced, revision: " + commit + ", comparedTo: {source: {repoURL: git://shop, path: dev, targetRevision: main}, destination: {namespace: shop, server: https://kubernetes.default.svc}}}\n"
	healthy  = "  health: {status: Healthy}\n"
	result1  = "syncResult: {revision: " + commit + ", source: " + source + "}"
	done     = "  operationState: {phase: Succeeded, startedAt: '2026-11-21T11:58:00Z', message: all fine, " + result1 + "}}\n"
	refused  = "  operationState: {phase: Failed, startedAt: '2026-11-21T11:58:00Z', message: one or more objects failed, " + result1 + "}}\n"
	again    = "  operationState: {phase: Failed, operation: {info: [{name: wherry.dev/attempt, value: '2'}]}, startedAt: '2026-11-21T11:58:00Z', message: it is no good, " + result1 + "}}\n"
	before   = "  operationState: {phase: Failed, startedAt: '2026-11-21T11:58:00Z', message: it is no good, syncResult: {revision: a1, source: " + source + "}}}\n"
	behind   = "  operationState: {phase: Succeeded, startedAt: '2026-11-21T11:58:00Z', finishedAt: '%s', syncResult: {revision: a1, source: " + source + "}}}\n"
	running  = "  operationState: {phase: Running, startedAt: '2026-11-21T11:58:00Z', message: waiting for Pod/migrate}\n"
	hangs    = "  operationState: {phase: Running, startedAt: '2026-11-21T11:50:00Z', message: waiting for Pod/migrate}\n"
	closed   = "  operationState: {phase: Running, startedAt: '2026-11-21T11:50:00Z', message: Sync operation blocked by sync window}\n"
	op       = "operation: {sync: {}}\n"
)

func application1(t *testing.T, text string) *application {
	t.Helper()
	a, err := parse(kubernetestest.Parse(t, head+text))
	require.NoError(t, err)
	return a
}

func TestWhatIsToGoGoesWhenArgoCDHasCalmedDown(t *testing.T) {
	const asks = "metadata: {name: shop, namespace: argocd, annotations: {argocd.argoproj.io/refresh: normal}, finalizers: [resources-finalizer.argocd.argoproj.io]}\n"
	ended := fmt.Sprintf(behind, "2026-11-21T11:58:00Z")
	for _, c := range []struct {
		name, text, writes string
		ready              bool
	}{
		{"it syncs by itself", auto, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"},"finalizers":["resources-finalizer.argocd.argoproj.io"]},"spec":{"syncPolicy":{"automated":null}}}`, false},
		{"it does not, and never was synced", manually, `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`, true},
		{"Argo CD has yet to look", asks + manually, `null`, false},
		{"a sync has yet to begin", asks + op + manually, `null`, false},
		{"a sync is under way", op + manually + looked + differs + running, `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]},"status":{"operationState":{"phase":"Terminating"}}}`, false},
		{"a sync has ended long before the comparison", manually + looked + synced + ended, `{"metadata":{"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`, true},
		{"a sync has just ended", manually + strings.ReplaceAll(looked, "11:59:00", "11:58:01") + synced + ended, `{"metadata":{"annotations":{"argocd.argoproj.io/refresh":"normal"},"finalizers":["resources-finalizer.argocd.argoproj.io"]}}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields, ready := application1(t, c.text).leave()
			require.Equal(t, c.ready, ready)
			data, err := json.Marshal(fields)
			require.NoError(t, err)
			require.JSONEq(t, c.writes, string(data))
		})
	}
}

func TestHowArgoCDStandsIsHowTheAssignmentStands(t *testing.T) {
	for _, c := range []struct {
		name, text string
		state      bundle.State
		reason     string
		revision   string
	}{
		{"a branch whose newest commit is synced", auto + looked + synced + healthy + done, bundle.Compliant, "", commit},
		{"a revision that changes nothing is not synced", auto + looked + synced + healthy + before, bundle.Compliant, "", commit},
		{"a comparison made before a sync of another revision ended", auto + looked + synced + healthy + fmt.Sprintf(behind, "2026-11-21T11:59:30Z"), bundle.Progressing, NotReconciled, commit},
		{"a comparison made after it", auto + looked + synced + healthy + fmt.Sprintf(behind, "2026-11-21T11:59:00Z"), bundle.Compliant, "", commit},
		{"a comparison of that second, just now", auto + strings.ReplaceAll(looked, "11:59:00", "11:59:58") + synced + healthy + fmt.Sprintf(behind, "2026-11-21T11:59:58Z"), bundle.Progressing, NotReconciled, commit},
		{"a difference that a sync of that second may have mended", manually + strings.ReplaceAll(looked, "11:59:00", "11:59:58") + differs + strings.ReplaceAll(done, "startedAt", "finishedAt: '2026-11-21T11:59:58Z', startedAt"), bundle.Progressing, NotReconciled, commit},
		{"a difference that the sync has not mended", manually + looked + differs + strings.ReplaceAll(done, "startedAt", "finishedAt: '2026-11-21T11:59:00Z', startedAt"), bundle.Drifted, OutOfSync, commit},
		{"an Application without anything", auto + looked + synced + healthy, bundle.Compliant, "", commit},
		{"a good status of another branch", auto + looked + older + healthy + done, bundle.Progressing, NotReconciled, commit},
		{"what Argo CD has not taken up", auto, bundle.Pending, NotReconciled, ""},
		{"what Argo CD has not looked at for long", auto + "status:\n  reconciledAt: '2026-11-21T11:50:00Z'\n" + synced + healthy + done, bundle.Pending, NotReconciled, commit},
		{"a clock that is behind Argo CD's", auto + "status:\n  reconciledAt: '2027-11-21T11:50:00Z'\n" + synced + healthy + done, bundle.Compliant, "", commit},
		{"a sync that is asked for", op + manually + looked + differs, bundle.Progressing, Syncing, ""},
		{"a sync that goes on", op + manually + looked + differs + running, bundle.Progressing, Syncing, ""},
		{"a window that is closed", op + manually + looked + differs + closed, bundle.Pending, OutsideWindow, ""},
		{"a sync that has failed, and is repeated", op + auto + looked + differs + "  operationState: {phase: Running, finishedAt: '2026-11-21T11:58:00Z', startedAt: '2026-11-21T11:58:00Z', message: Retrying attempt 1}\n", bundle.Progressing, Retrying, ""},
		{"a sync that has failed", auto + looked + differs + refused, bundle.Failed, SyncFailed, ""},
		{"a sync that has failed, of another revision", auto + looked + differs + before, bundle.Progressing, OutOfSync, ""},
		{"a hook that has failed where all objects are as they should be", auto + looked + synced + healthy + refused, bundle.Failed, SyncFailed, commit},
		{"what Argo CD will correct", auto + looked + differs + done, bundle.Progressing, OutOfSync, commit},
		{"what Argo CD leaves as it is", heedless + looked + differs + done, bundle.Drifted, OutOfSync, commit},
		{"what nobody has asked Argo CD to sync", manually + looked + differs, bundle.Drifted, OutOfSync, ""},
		{"what must not be pruned", heedless + looked + surplus + done, bundle.Drifted, OutOfSync, commit},
		{"what would wipe out everything", auto + looked + differs + "  conditions: [{type: SyncError, message: would wipe out all}]\n", bundle.Failed, "SyncError", ""},
		{"a source that cannot be read", auto + looked + synced + healthy + "  conditions: [{type: ComparisonError, message: there is no such path}]\n" + done, bundle.Failed, "ComparisonError", commit},
		{"a warning", auto + looked + synced + healthy + "  conditions: [{type: SharedResourceWarning, message: shared}]\n" + done, bundle.Compliant, "", commit},
		{"an error of the specification before", auto + looked + older + "  conditions: [{type: ComparisonError, message: there is no such path}]\n", bundle.Progressing, NotReconciled, commit},
		{"a workload that has just become Degraded", auto + looked + synced + "  health: {status: Degraded, lastTransitionTime: '2026-11-21T11:59:00Z'}\n" + done, bundle.Progressing, Degraded, commit},
		{"a workload that stays Degraded", auto + looked + synced + "  health: {status: Degraded, lastTransitionTime: '2026-11-21T11:50:00Z'}\n" + done, bundle.Failed, Degraded, commit},
		{"a rollout", auto + looked + synced + "  health: {status: Progressing}\n" + done, bundle.Progressing, "NotReady", commit},
		{"what is suspended", auto + looked + synced + "  health: {status: Suspended}\n" + done, bundle.Suspended, Suspended, commit},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := application1(t, c.text)
			a.Metadata.CreationTimestamp.Time = now.Add(-time.Hour)
			v := tested.judgeApplication(t.Context(), kubernetestest.Objects{}, a)
			require.Equal(t, c.state, v.State, v.Message)
			require.Equal(t, c.reason, v.Reason)
			require.Equal(t, c.revision, a.running())
			require.Equal(t, c.state == bundle.Compliant, v.Message == "", "all but compliance is explained: %q", v.Message)
		})
	}
}

func TestArgoCDIsAskedForWhatItDoesNotDoByItself(t *testing.T) {
	const refresh, hard, sync, terminate, nothing = "refresh", "hard", "sync", "terminate", ""
	for _, c := range []struct {
		name, text string
		changed    bool
		want       string
	}{
		{"nothing where all is well", auto + looked + synced + healthy + done, false, nothing},
		{"nothing where all is well, and syncs are not automated", manually + looked + synced + healthy + done, false, nothing},
		{"to look at what was changed", auto + looked + older + healthy + done, true, refresh},
		{"to look at what was changed, whatever it does", op + manually + looked + older + running, true, refresh},
		{"to sync what was changed", manually + looked + older + healthy + done, true, sync},
		{"to sync what nobody has synced", manually + looked + differs, false, sync},
		{"nothing where it will sync by itself", auto + looked + differs, false, nothing},
		{"nothing while it syncs", op + manually + looked + differs + running, false, nothing},
		{"to end a sync that hangs", op + manually + looked + differs + hangs, false, terminate},
		{"nothing while a window is closed", op + manually + looked + differs + closed, false, nothing},
		{"to try once more what has failed", auto + looked + differs + refused, false, sync},
		{"nothing where that has failed, too", auto + looked + differs + again, false, nothing},
		{"to correct what it leaves as it is", heedless + looked + differs + done, false, sync},
		{"nothing where it must not prune", heedless + looked + surplus + done, false, nothing},
		{"to read a source again", auto + looked + synced + healthy + "  conditions: [{type: ComparisonError, message: there is no such path}]\n" + done, false, hard},
		{"to look at what it has not looked at for long", auto + "status:\n  reconciledAt: '2026-11-21T11:30:00Z'\n" + synced + healthy + done, false, refresh},
		{"to sync where it would not any more", auto + looked + older + "  operationState: {phase: Error, startedAt: '2026-11-21T11:58:00Z', message: no project}\n", true, sync},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := nothing
			patch := tested.next(application1(t, c.text), c.changed)
			if metadata, ok := patch["metadata"].(map[string]any); ok {
				got = map[string]string{"normal": refresh, "hard": hard}[metadata["annotations"].(map[string]any)[refreshKey].(string)]
			}
			if patch["operation"] != nil {
				got = sync
			}
			if patch["status"] != nil {
				got = terminate
			}
			require.Equal(t, c.want, got, "%v", patch)
		})
	}
}

func TestAPinIsExact(t *testing.T) {
	for text, floating := range map[string]bool{
		"targetRevision: " + commit: false,
		"targetRevision: sha256:" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef": false,
		"targetRevision: 1.2.3, chart: shop": false,
		"targetRevision: 1.2.*, chart: shop": true,
		"targetRevision: 1.2.3":              true, // a tag
		"targetRevision: b2b2b2b":            true,
		"path: dev":                          true, // HEAD
	} {
		require.Equal(t, floating, application1(t, "spec: {source: {"+text+"}}\n").floating(), text)
	}
}

func TestASlowSyncHasAHint(t *testing.T) {
	slow := application1(t, op+manually+looked+differs+running)
	require.NotContains(t, slow.judgeOperation().Message, "ApplyOutOfSyncOnly", "which is not felt")
	slow.Status.Resources = make([]resource, 200)
	require.Contains(t, slow.judgeOperation().Message, "lack ApplyOutOfSyncOnly=true")
	slow.Spec.SyncPolicy.SyncOptions = []string{"ApplyOutOfSyncOnly=true"}
	require.NotContains(t, slow.judgeOperation().Message, "ApplyOutOfSyncOnly")
}

func TestSilenceFollowsArgoCDsSettings(t *testing.T) {
	for every, want := range map[string]time.Duration{"": 9 * time.Minute, "1h": 3 * time.Hour, "10s": 9 * time.Minute, "0s": 0, "often": 9 * time.Minute} {
		require.Equal(t, want, Silence(map[string]string{"timeout.reconciliation": every}, DefaultPoll), every)
	}
}

func TestWhatArgoCDLeavesOutIsNoDrift(t *testing.T) {
	parseSpec := func(text string) *unstructured.Unstructured {
		return kubernetestest.Parse(t, head+"spec: "+text+"\n")
	}
	for _, c := range []struct{ manifest, live, want string }{
		{"{syncPolicy: {automated: {prune: true, allowEmpty: false}}}", "{syncPolicy: {automated: {prune: true}}}", "{syncPolicy: {automated: {prune: true}}}"},
		{"{syncPolicy: {automated: {prune: false}}}", "{syncPolicy: {automated: {prune: true}}}", "{syncPolicy: {automated: {prune: false}}}"},
		{"{syncPolicy: {automated: {enabled: false}}}", "{}", "{syncPolicy: {automated: {enabled: false}}}"},
		{"{source: {path: '', directory: {recurse: false}}, syncPolicy: {}}", "{}", "{source: {}}"},
		{"{sources: [{chart: ''}, {ref: '', helm: {valuesObject: {replicas: 0}}}]}", "{}", "{sources: [{}, {helm: {valuesObject: {replicas: 0}}}]}"},
		{"{syncPolicy: {retry: {limit: 0}}, revisionHistoryLimit: 0}", "{}", "{syncPolicy: {retry: {}}, revisionHistoryLimit: 0}"},
	} {
		o := parseSpec(c.manifest)
		fit(o, parseSpec(c.live))
		require.Equal(t, parseSpec(c.want).Object, o.Object, c.manifest)
	}
	fit(parseSpec("{syncPolicy: {automated: {prune: false}}}"), nil)
}
