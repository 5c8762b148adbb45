//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/bundle"
)

// permit applies what "wherry install agent --rbac bundle" prints for the newest bundle, and returns a
// function that runs wherry-agent with these permissions alone.
func (s *site) permit(more ...string) (agent func(args ...string) ran) {
	s.t.Helper()
	namespace, objects := s.install(append(more, "--rbac", "bundle")...)
	for _, u := range objects {
		require.NotContains(s.t, u.GetKind(), "ClusterRole", "nothing here is cluster-wide")
	}
	s.apply(objects)
	return s.installed(namespace, find[corev1.ConfigMap](s.t, objects, "ConfigMap"))
}

// awaitRights waits until the API server has learnt of the Roles and ClusterRoles among objects and of their bindings.
func (s *site) awaitRights(objects []*unstructured.Unstructured) {
	s.t.Helper()
	roles := map[string][]rbacv1.PolicyRule{}
	for _, u := range objects {
		one, place := []*unstructured.Unstructured{u}, u.GetNamespace()+"/"
		switch u.GetKind() {
		case "Role", "ClusterRole":
			roles[place+u.GetName()] = find[rbacv1.Role](s.t, one, u.GetKind()).Rules
		case "RoleBinding", "ClusterRoleBinding":
			binding := find[rbacv1.RoleBinding](s.t, one, u.GetKind())
			for _, rule := range roles[place+binding.RoleRef.Name] {
				s.awaitRight(binding.Subjects[0], u.GetNamespace(), rule, true)
			}
		}
	}
}

// awaitRight waits until the API server lets an account do the last thing that a rule is about, or does not any more.
func (s *site) awaitRight(subject rbacv1.Subject, namespace string, rule rbacv1.PolicyRule, want bool) {
	s.t.Helper()
	last := func(of []string) string { return of[len(of)-1] }
	review := authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + subject.Namespace + ":" + subject.Name}}
	if len(rule.NonResourceURLs) > 0 {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: last(rule.NonResourceURLs), Verb: last(rule.Verbs)}
	} else {
		asked := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: last(rule.Verbs), Group: last(rule.APIGroups), Resource: last(rule.Resources)}
		if len(rule.ResourceNames) > 0 {
			asked.Name = last(rule.ResourceNames)
		}
		review.Spec.ResourceAttributes = asked
	}
	require.Eventually(s.t, func() bool {
		asked := review.DeepCopy()
		return s.Create(s.t.Context(), asked) == nil && asked.Status.Allowed == want
	}, patience, 20*time.Millisecond, "%+v", review.Spec)
}

func (s *site) standing(assignment string) (found bundle.Item) {
	s.t.Helper()
	for _, item := range s.status().Items {
		if item.Assignment == assignment {
			return item
		}
	}
	require.Fail(s.t, "no assignment "+assignment)
	return found
}

func TestAnAgentWithThePermissionsOfItsBundleAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	agent := s.permit()
	r := agent("doctor", "-o", "json")
	require.Equal(t, "ok", findings(t, r)["permissions"].Result, r.stdout)
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, s.settings("shop-web"))

	s.edit("platform/config.yaml", "north", "south")
	s.publish()
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	require.Equal(t, "south", s.settings("shop-web")["REGION"])

	older, err := s.repository(s.prefix, clusterType).Resolve(t.Context(), "latest")
	require.NoError(t, err)

	// A kind that the bundle did not hold when the permissions were printed.
	s.edit("platform/templates.yaml", "      kind: ConfigMap\n", "      kind: Secret\n")
	s.edit("platform/templates.yaml", "      data:\n", "      stringData:\n")
	s.publish()
	require.Equal(t, 1, agent("once", "--wait", patience.String()).code)
	item := s.standing("shop-web")
	require.Equal(t, bundle.Failed, item.State)
	require.Equal(t, "Forbidden", item.Reason)
	require.Contains(t, item.Message, fmt.Sprintf(`cannot get resource "secrets" in API group "" in the namespace "%s"`, s.namespace("shop-web")))
	require.Contains(t, item.Message, "wherry install agent … --rbac bundle --print")
	denied := findings(t, agent("doctor", "-o", "json"))["permissions"]
	require.Equal(t, "failed", denied.Result)
	require.Contains(t, denied.Message, "create secrets in "+s.namespace("shop-web"))

	// The new Roles let it take away what the older bundle held, too.
	reference := "oci://" + s.prefix + "/bundles/" + s.environment + "/" + clusterType
	agent = s.permit("--for", reference, "--for", reference+"@"+older.Digest.String())
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	s.gone(s.namespace("shop-web"), "platform-config", &corev1.ConfigMap{})
	s.read(s.namespace("shop-web"), "platform-config", &corev1.Secret{})

	s.dropBatch()
	s.publish()
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	s.gone(s.namespace("shop-batch"), "shop", &appsv1.Deployment{})
	s.gone(s.namespace("shop-batch"), "platform-config", &corev1.Secret{})
	s.read("", s.namespace("shop-batch"), &corev1.Namespace{})
	require.Equal(t, map[string]bundle.State{"shop-web": bundle.Compliant}, s.states())
}

func TestTheInstalledAgentReadsItsSiteValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	own := s.environment + "-own"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}
	require.NoError(t, s.Create(t.Context(), namespace))
	t.Cleanup(func() { _ = s.Delete(context.Background(), namespace) })
	require.NoError(t, s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "values"}, Data: map[string]string{"dns": "plant-7"}}))
	agent := s.permit("--site-values", "configmap:"+own+"/values")
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	r := agent("doctor", "-o", "json")
	require.NotEqual(t, "failed", findings(t, r)["values"].Result, r.stdout)

	subject := rbacv1.Subject{Namespace: s.environment + "-agent", Name: "wherry-agent"}
	rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"other"}}
	s.awaitRight(subject, own, rule, false)
	require.NoError(t, s.DeleteAllOf(t.Context(), &rbacv1.RoleBinding{}, client.InNamespace(own)))
	rule.ResourceNames = []string{"values"}
	s.awaitRight(subject, own, rule, false)
	r = agent("doctor", "-o", "json")
	require.Equal(t, "failed", findings(t, r)["values"].Result, r.stdout)
}

// Two workspaces share a cluster. The agent may assume a ServiceAccount of each in each of its namespaces,
// and nothing else; one of the workspaces tries to reach into the home of the other.
func TestAWorkspaceIsConfinedByTheAPIServer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const object = "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: WorkloadRegistration\nmetadata:\n  name: guest\nspec:\n  workspace: guests\n  workload: {repo: https://git.invalid/guest, branch: main, path: .}\n"
	require.NoError(t, os.WriteFile(s.path("platform/guests.yaml"), []byte(object), 0o644))
	require.NoError(t, os.WriteFile(s.path("platform/platform.yaml"), []byte("apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata:\n  name: default\nspec:\n  workspaces:\n    - name: retail\n    - name: guests\n      serviceAccount: visitor\n"), 0o644))
	s.edit("platform/templates.yaml", "                envFrom:", `                {{- if .Manifests.into }}
                env: [{name: INTO, value: {{ .Manifests.into }}}]
                {{- end }}
                envFrom:`)
	s.edit("platform/templates.yaml", "                      name: platform-config", `                      name: platform-config
      {{- if .Manifests.into }}
      ---
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: intruder
        namespace: {{ .Manifests.into }}
      {{- end }}`)
	workload, err := os.ReadFile(s.path("workloads/shop/workload.yaml"))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(s.path("workloads/guest"), 0o755))
	guest, _, _ := strings.Cut(strings.Replace(string(workload), "name: shop", "name: guest", 1), "    - name: batch")
	require.NoError(t, os.WriteFile(s.path("workloads/guest/workload.yaml"), []byte(guest), 0o644))
	publish := func() {
		r := s.wherry("publish", "platform", "--environment", s.environment, "--workload", "shop=workloads/shop", "--workload", "guest=workloads/guest", "--to", "oci://"+s.prefix, "--key", "cosign.key")
		require.Zero(t, r.code, r.stderr)
	}
	publish()
	agent := s.permit()
	r := agent("doctor", "-o", "json")
	require.Equal(t, "ok", findings(t, r)["permissions"].Result, r.stdout)
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	good := map[string]bundle.State{"shop-web": bundle.Compliant, "shop-batch": bundle.Compliant, "guest-web": bundle.Compliant}
	require.Equal(t, good, s.states())

	s.edit("workloads/guest/workload.yaml", `        replicas: "0"`, `        replicas: "0"`+"\n        into: "+s.namespace("shop-web"))
	publish()
	printed := s.wherry("install", "agent", "--registry", "oci://"+s.prefix, "--environment", s.environment, "--cluster-type", clusterType, "--key", "cosign.pub", "--namespace", s.environment+"-agent", "--rbac", "bundle", "--print")
	require.Contains(t, printed.stderr, "note: assignment guest-web holds configmaps in namespace "+s.namespace("shop-web")+", which is another's: not allowed to visitor of "+s.namespace("guest-web"))
	agent = s.permit()
	require.Equal(t, 1, agent("once", "--wait", patience.String()).code)
	item := s.standing("guest-web")
	require.Equal(t, bundle.Failed, item.State)
	require.Equal(t, "Forbidden", item.Reason)
	require.Contains(t, item.Message, fmt.Sprintf(`User "system:serviceaccount:%s:visitor" cannot get resource "configmaps" in API group "" in the namespace "%s"`, s.namespace("guest-web"), s.namespace("shop-web")))
	s.gone(s.namespace("shop-web"), "intruder", &corev1.ConfigMap{})
	require.Equal(t, bundle.Compliant, s.standing("shop-web").State)

	// The former objects are removed by the same account, since the agent itself has no permission.
	require.NoError(t, os.Remove(s.path("workloads/guest/workload.yaml")))
	publish()
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	s.gone(s.namespace("guest-web"), "guest", &appsv1.Deployment{})
	s.read(s.namespace("guest-web"), "visitor", &corev1.ServiceAccount{})
	var role rbacv1.Role
	s.read(s.namespace("guest-web"), "wherry-agent-"+s.environment+"-agent", &role)
	for _, rule := range role.Rules {
		require.NotContains(t, rule.Resources, "deployments", "the agent itself may not")
	}
}
