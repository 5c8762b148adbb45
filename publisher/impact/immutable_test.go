package impact

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestImmutable(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {parallelism: 1, completions: 1, template: {spec: {containers: [{image: a:1}]}}}\n"
	const claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nspec: {storageClassName: fast, resources: {requests: {storage: 2Gi}}}\n"
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.0.0.1, ports: [{port: 80}]}\n"
	for name, c := range map[string]struct {
		old, from, to string
		want          string // fields, empty if it may change
	}{
		"a Job's template":                        {job, "a:1", "a:2", "spec.template"},
		"a Job's parallelism":                     {job, "parallelism: 1", "parallelism: 2", ""},
		"a Job's completions":                     {job, "completions: 1", "completions: 2", "spec.completions"},
		"a Job's selector":                        {job, "spec: {p", "spec: {selector: {matchLabels: {a: b}}, p", "spec.selector"},
		"the default that a Job has":              {job, "spec: {p", "spec: {completionMode: NonIndexed, p", ""},
		"both of an indexed Job":                  {strings.Replace(job, "{p", "{completionMode: Indexed, p", 1), "parallelism: 1, completions: 1", "parallelism: 3, completions: 3", ""},
		"where a suspended Job runs":              {strings.Replace(job, "{p", "{suspend: true, p", 1), "containers", "nodeSelector: {a: b}, containers", ""},
		"what a suspended Job runs":               {strings.Replace(job, "{p", "{suspend: true, p", 1), "a:1", "a:2", "spec.template"},
		"a CronJob's template":                    {strings.Replace(job, "kind: Job", "kind: CronJob", 1), "a:1", "a:2", ""},
		"a Job of another group":                  {strings.Replace(job, "batch/", "example.com/", 1), "a:1", "a:2", ""},
		"a Job of another name":                   {job, "name: a", "name: b", ""},
		"a Deployment's selector":                 {deployment, "  replicas: 2", "  replicas: 2\n  selector: {matchLabels: {a: b}}", "spec.selector"},
		"a Deployment's image":                    {deployment, "web:1", "web:2", ""},
		"a DaemonSet's selector":                  {strings.Replace(deployment, "Deployment", "DaemonSet", 1), "  replicas: 2", "  selector: {matchLabels: {a: b}}", "spec.selector"},
		"a StatefulSet's claims":                  {strings.Replace(deployment, "Deployment", "StatefulSet", 1), "  replicas: 2", "  serviceName: b\n  volumeClaimTemplates: [{metadata: {name: a}}]", "spec.serviceName, spec.volumeClaimTemplates"},
		"a Pod's command":                         {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a:1, command: [a]}]}\n", "[a]", "[b]", "spec"},
		"a Pod's image":                           {"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: a, image: a:1}]}\n", "a:1", "a:2", ""},
		"a role that is bound":                    {"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\nroleRef: {name: view}\nsubjects: []\n", "view", "edit", "roleRef"},
		"a ConfigMap that is immutable":           {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nimmutable: true\ndata: {a: b}\n", "a: b", "a: c", "data"},
		"a ConfigMap":                             {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {a: b}\n", "a: b", "a: c", ""},
		"a Secret's type":                         {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "kind: Secret", "kind: Secret\ntype: kubernetes.io/tls", "type"},
		"a Secret's default type":                 {"apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n", "kind: Secret", "kind: Secret\ntype: Opaque", ""},
		"a claim's class":                         {claim, "fast", "slow", "spec.storageClassName"},
		"a claim that grows":                      {claim, "2Gi", "3Gi", ""},
		"a claim that shrinks":                    {claim, "2Gi", "1Gi", "spec.resources.requests.storage"},
		"a claim whose class the cluster chose":   {strings.Replace(claim, "storageClassName: fast, ", "", 1), "spec: {", "spec: {storageClassName: fast, ", ""},
		"a volume's source":                       {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: 1Gi}, nfs: {server: a}}\n", "server: a", "server: b", "spec.nfs"},
		"a volume's capacity":                     {"apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: a}\nspec: {capacity: {storage: 1Gi}, nfs: {server: a}}\n", "1Gi", "2Gi", ""},
		"a Service's address":                     {service, "10.0.0.1", "10.0.0.2", "spec.clusterIP"},
		"a Service's address that is left out":    {service, "clusterIP: 10.0.0.1, ", "", ""},
		"a Service that becomes headless":         {strings.Replace(service, "clusterIP: 10.0.0.1, ", "", 1), "spec: {", "spec: {clusterIP: None, ", "spec.clusterIP"},
		"a Service's port":                        {service, "80", "81", ""},
		"a class":                                 {"apiVersion: storage.k8s.io/v1\nkind: StorageClass\nmetadata: {name: a}\nprovisioner: a\nallowVolumeExpansion: false\n", "provisioner: a", "provisioner: b", "provisioner"},
		"an object in a List":                     {"apiVersion: v1\nkind: List\nitems:\n- {apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {a: 1}}}\n", "a: 1", "a: 2", "spec.template"},
		"an object of a kind that a site defines": {"apiVersion: example.com/v1\nkind: Shop\nmetadata: {name: a}\nspec: {selector: {a: b}}\n", "a: b", "a: c", ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, c.old, c.from)
			now := strings.Replace(c.old, c.from, c.to, 1)
			var got []string
			for _, r := range Immutable(state("", c.old), state("", now)) {
				got = append(got, r.Fields...)
			}
			require.Equal(t, c.want, strings.Join(got, ", "))
			require.Empty(t, Immutable(state("", now), state("", now)))
		})
	}
}

func TestWhatAnEngineReplacesIsNotRefused(t *testing.T) {
	const job = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a, annotations: {ANNOTATION}}\nspec: {template: {a: 1}}\n"
	for annotation, adapters := range map[string][]string{
		"other: text": {"kubernetes", "flux", "argo"},
		"kustomize.toolkit.fluxcd.io/force: enabled":                 {"kubernetes", "argo"},
		"argocd.argoproj.io/sync-options: 'Force=true,Replace=true'": {"kubernetes", "flux"},
	} {
		old := strings.Replace(job, "ANNOTATION", annotation, 1)
		var refuse []string
		for _, adapter := range []string{"kubernetes", "flux", "argo"} {
			was, now := state("", old), state("", strings.Replace(old, "a: 1", "a: 2", 1))
			now.Adapter, now.Embedded = adapter, true
			if got := Immutable(was, now); len(got) > 0 {
				require.Equal(t, []Refused{{"Job/a", []string{"spec.template"}}}, got)
				refuse = append(refuse, adapter)
			}
		}
		require.Equal(t, adapters, refuse, annotation)
	}
	flux := state("", job)
	flux.Adapter = "flux"
	require.Empty(t, Immutable(flux, flux), "what Flux fetches is unknown")
}
