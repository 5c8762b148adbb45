package rbac

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers/needs"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func options() Options {
	return Options{Account: "wherry-agent", Namespace: "wherry-system", Role: "wherry-agent"}
}

// release is one of two workspaces and the platform's own, on Flux and on nothing.
func release() *needs.Needs {
	n := needs.New()
	n.Assignments = []bundle.Assignment{
		{Name: "base", Namespace: "base", Adapter: "kubernetes"},
		{Name: "files", Namespace: "files", Adapter: "directory"},
		{Name: "shop-live", Workspace: "retail", Namespace: "shop", ServiceAccount: "shop/wherry-retail", Adapter: "flux"},
		{Name: "till-live", Workspace: "tills", Namespace: "till", ServiceAccount: "teams/tills", Adapter: "kubernetes"},
	}
	n.AddManifests("base", []byte(`apiVersion: v1
kind: Namespace
metadata: {name: base}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: menus.coffee.example}
spec: {group: coffee.example, scope: Cluster, names: {kind: Menu, plural: cartes}, versions: [{name: v1}]}
---
{apiVersion: coffee.example/v1, kind: Menu, metadata: {name: winter}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: none}}
---
{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: none}}
`))
	n.AddManifests("files", []byte("{apiVersion: v1, kind: Secret, metadata: {name: not-on-the-cluster}}"))
	n.AddManifests("shop-live", []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: shop, namespace: flux-system}
spec: {sourceRef: {kind: OCIRepository, name: shop}}
`))
	n.AddManifests("till-live", []byte(`{apiVersion: v1, kind: Namespace, metadata: {name: till}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: intruder, namespace: shop}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: intruder, namespace: kube-system}}
---
{apiVersion: oven.example/v1, kind: Oven, metadata: {name: o}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}}
---
{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: s}}
`))
	return n
}

// What the agent has for itself is its own to change, whoever applies the assignment, and what Flux brings is only read.
func TestAnEmbeddedAssignmentOfAWorkspace(t *testing.T) {
	n := needs.New()
	n.Assignments = []bundle.Assignment{
		{Name: "shop-live", Workspace: "retail", Namespace: "shop", ServiceAccount: "shop/wherry-retail", Adapter: "flux"},
		{Name: "web-live", Namespace: "web", Adapter: "argo"},
	}
	secret := needs.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Namespace: "flux-system"}
	n.Shared["shop-live"] = []needs.Shared{{Object: secret, Name: "wherry-serve-ca"}}
	n.Shared["web-live"] = []needs.Shared{{Object: needs.Object{Kind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}}, Name: "argocd-tls-certs-cm"}}
	n.Followed["shop-live"] = []needs.Object{{Kind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}}}
	opts := options()
	opts.ArgoNamespace = "argo"
	p := For([]*needs.Needs{n}, opts)
	agent, workspace := subject{"wherry-system", "wherry-agent"}, subject{"shop", "wherry-retail"}
	require.Equal(t, map[rule]verbs{{"", "secrets", "wherry-serve-ca"}: full}, p.grants[grant{"flux-system", agent}])
	require.Equal(t, full, p.grants[grant{"argo", agent}][rule{"", "configmaps", "argocd-tls-certs-cm"}])
	require.Equal(t, map[rule]verbs{{"apps", "deployments", ""}: reading}, p.grants[grant{"shop", workspace}])
}

func manifests(t *testing.T, p *Permissions) string {
	t.Helper()
	var all []string
	for _, o := range p.Objects() {
		data, err := yaml.Marshal(o)
		require.NoError(t, err)
		all = append(all, string(data))
	}
	return strings.Join(all, "---\n")
}

func TestPermissionsOfARelease(t *testing.T) {
	p := For([]*needs.Needs{release()}, options())
	got := manifests(t, p)
	const golden = "testdata/release.yaml"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
	require.Equal(t, []string{
		"Oven of oven.example is guessed to be ovens, in namespaces: give its CustomResourceDefinition by --crd FILE",
		"assignment shop-live holds kustomizations in namespace flux-system, which is not an assignment's: allowed to wherry-retail of shop",
		"assignment shop-live holds ocirepositories in namespace flux-system, which is not an assignment's: allowed to wherry-retail of shop",
		"assignment till-live holds a Role: who applies it needs all rights that it gives, or the verbs escalate and bind, which are not printed",
		"assignment till-live holds a StorageClass, which is in no namespace: tills of teams may change all of them",
		"assignment till-live holds configmaps in namespace kube-system, which is another's: not allowed to tills of teams",
		"assignment till-live holds configmaps in namespace shop, which is another's: not allowed to tills of teams",
		"no assignment brings these namespaces, which have to exist before the Roles in them: flux-system, teams",
	}, p.Notes)

	turned := release()
	slices.Reverse(turned.Assignments)
	again := manifests(t, For([]*needs.Needs{turned, release()}, options()))
	require.Equal(t, string(want), again, "neither order nor repetition counts")
}

func TestADefinitionEndsTheGuessing(t *testing.T) {
	opts := options()
	opts.Known = map[schema.GroupKind]needs.Resource{{Group: "oven.example", Kind: "Oven"}: {Plural: "ovenses"}}
	p := For([]*needs.Needs{release()}, opts)
	require.NotContains(t, p.Notes[0], "guessed")
	require.Equal(t, full, p.grants[grant{"", subject{"teams", "tills"}}][rule{"oven.example", "ovenses", ""}])
}

func TestASiteThatInsistsOnServiceAccounts(t *testing.T) {
	n := needs.New()
	n.Assignments = []bundle.Assignment{
		{Name: "shop", Workspace: "retail", Namespace: "shop", Adapter: "kubernetes"},
		{Name: "bad", Workspace: "Team A", Namespace: "bad", Adapter: "kubernetes"},
		{Name: "own", Namespace: "own", Adapter: "kubernetes"},
	}
	for _, a := range n.Assignments {
		n.AddManifests(a.Name, []byte("{apiVersion: v1, kind: Secret, metadata: {name: s}}"))
	}
	opts := options()
	opts.Impersonate = true
	p := For([]*needs.Needs{n}, opts)
	agent, retail := subject{"wherry-system", "wherry-agent"}, subject{"shop", "wherry-retail"}
	require.Equal(t, map[grant]map[rule]verbs{
		{"own", agent}:   {{"", "secrets", ""}: full},
		{"shop", agent}:  {{"", "serviceaccounts", "wherry-retail"}: assumed},
		{"shop", retail}: {{"", "secrets", ""}: full},
	}, p.grants)
	require.Contains(t, p.Notes[0], `assignment bad: the ServiceAccount of workspace "Team A"`)
}

func TestApplicationsGoWhereArgoCDIs(t *testing.T) {
	n := needs.New()
	n.Assignments = []bundle.Assignment{{Name: "shop", Namespace: "shop", Adapter: "argo"}}
	n.AddManifests("shop", []byte("{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: shop}}"))
	opts := options()
	opts.ArgoNamespace = "gitops"
	require.Equal(t, map[grant]map[rule]verbs{{"gitops", subject{"wherry-system", "wherry-agent"}}: {
		{"argoproj.io", "applications", ""}: full, {"argoproj.io", "appprojects", ""}: reading, {"", "configmaps", "argocd-cm"}: reading,
	}}, For([]*needs.Needs{n}, opts).grants)
}

// What these kinds are called is known without a cluster.
func TestBuiltInKinds(t *testing.T) {
	k := newKinds(nil, nil)
	for kind, want := range map[schema.GroupVersionKind]needs.Resource{
		{Version: "v1", Kind: "Endpoints"}:                                                             {Plural: "endpoints", Namespaced: true},
		{Version: "v1", Kind: "PersistentVolume"}:                                                      {Plural: "persistentvolumes"},
		{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress"}:                                   {Plural: "ingresses", Namespaced: true},
		{Group: "storage.k8s.io", Version: "v1", Kind: "StorageClass"}:                                 {Plural: "storageclasses"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRoleBinding"}:                {Plural: "clusterrolebindings"},
		{Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"}:                                  {Plural: "poddisruptionbudgets", Namespaced: true},
		{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}: {Plural: "validatingwebhookconfigurations"},
		{Group: "argoproj.io", Version: "v1alpha1", Kind: "AppProject"}:                                {Plural: "appprojects", Namespaced: true},
		{Group: "source.toolkit.fluxcd.io", Version: "v1", Kind: "GitRepository"}:                      {Plural: "gitrepositories", Namespaced: true},
		{Group: "kustomize.toolkit.fluxcd.io", Version: "v1beta2", Kind: "Kustomization"}:              {Plural: "kustomizations", Namespaced: true},
	} {
		require.Equal(t, want, k.resource(needs.Object{Kind: kind}), kind)
	}
	require.Empty(t, k.guesses())
}

func TestAnAssignmentThatBringsItsServiceAccount(t *testing.T) {
	n := needs.New()
	n.Assignments = []bundle.Assignment{
		{Name: "pay", Workspace: "payments", Namespace: "pay", ServiceAccount: "pay/wherry-payments", Adapter: "kubernetes"},
		{Name: "till", Workspace: "tills", Namespace: "till", ServiceAccount: "teams/tills", Adapter: "kubernetes"},
	}
	for _, namespace := range []string{"pay", "till"} {
		n.AddManifests(namespace, []byte("{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}}\n---\n{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a}}\n"))
	}
	p := For([]*needs.Needs{n}, options())
	agent := p.agent()
	bind := rule{"rbac.authorization.k8s.io", "clusterroles", "wherry-workspace"}
	require.Equal(t, verbs("bind"), p.grants[grant{"pay", agent}][bind])
	require.Equal(t, full, p.grants[grant{"pay", agent}][rule{"", "serviceaccounts", ""}])
	require.Equal(t, full, p.grants[grant{"pay", agent}][rule{"rbac.authorization.k8s.io", "rolebindings", ""}])
	require.NotContains(t, p.grants[grant{"till", agent}], bind, "its account is elsewhere")
}
