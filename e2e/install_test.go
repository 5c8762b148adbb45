//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wherry-dev/wherry/agent/clustermemory"
)

// install returns the manifests of an agent for the site, in a namespace of the site's, and writes them to
// install.yaml.
func (s *site) install(more ...string) (namespace string, objects []*unstructured.Unstructured) {
	s.t.Helper()
	namespace = s.environment + "-agent"
	args := []string{
		"install", "agent", "--registry", "oci://" + s.prefix, "--environment", s.environment, "--cluster-type", clusterType,
		"--key", "cosign.pub", "--namespace", namespace, "--print",
	}
	r := s.wherry(append(args, more...)...)
	require.Zero(s.t, r.code)
	require.NoError(s.t, os.WriteFile(s.path("install.yaml"), []byte(r.stdout), 0o644))
	return namespace, objectsIn(r.stdout)
}

func objectsIn(manifests string) (objects []*unstructured.Unstructured) {
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		u := &unstructured.Unstructured{}
		if decoder.Decode(&u.Object) != nil {
			return objects
		}
		if len(u.Object) > 0 { // a comment alone
			objects = append(objects, u)
		}
	}
}

// apply applies the objects in their order, as "kubectl apply --server-side" does, but for the Deployment:
// no node is there to run it. It returns when the API server acts on all permissions among them.
func (s *site) apply(objects []*unstructured.Unstructured) {
	s.t.Helper()
	for _, u := range objects {
		if u.GetKind() == "Deployment" {
			continue
		}
		require.NoError(s.t, s.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("e2e")))
		if u.GetNamespace() == "" && u.GetKind() != "Namespace" {
			s.t.Cleanup(func() { // the test's own context has ended then
				require.NoError(s.t, client.IgnoreNotFound(s.Delete(context.Background(), u)))
			})
		}
	}
	s.awaitRights(objects)
}

func find[T any](t *testing.T, objects []*unstructured.Unstructured, kind string) (object T) {
	t.Helper()
	for _, u := range objects {
		if u.GetKind() == kind {
			data, err := json.Marshal(u)
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(data, &object))
			return object
		}
	}
	require.Fail(t, "no "+kind)
	return object
}

func TestTheInstalledAgentFitsPodSecurity(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, level string
		flags       []string
	}{
		{"restricted with a volume", "restricted", nil},
		{"privileged with a folder of the node", "privileged", []string{"--host-path", "/var/lib/wherry-agent"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newSite(t)
			name, objects := s.install(test.flags...)
			s.apply(objects)
			var namespace corev1.Namespace
			s.read("", name, &namespace)
			require.Equal(t, test.level, namespace.Labels["pod-security.kubernetes.io/enforce"])

			deployment := find[appsv1.Deployment](t, objects, "Deployment")
			require.NoError(t, s.Create(t.Context(), deployment.DeepCopy(), client.DryRunAll), "server-side dry run")
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "agent", Labels: deployment.Spec.Template.Labels},
				Spec:       deployment.Spec.Template.Spec,
			}
			require.NoError(t, s.Create(t.Context(), pod.DeepCopy(), client.DryRunAll))

			// The same server says no to what Pod Security forbids there, so its yes means something.
			pod.Spec.HostNetwork = true
			err := s.Create(t.Context(), pod, client.DryRunAll)
			require.Equal(t, test.level == "restricted", apierrors.IsForbidden(err), "%v", err)
		})
	}
}

// The agent is run here as the pod would run it: with the configuration that was installed and as its
// service account.
func TestTheInstalledAgentMayDoWhatItHasTo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	namespace, objects := s.install()
	s.apply(objects)
	agent := s.installed(namespace, find[corev1.ConfigMap](t, objects, "ConfigMap"))

	r := agent("doctor", "-o", "json")
	require.Zero(t, r.code, r.stdout)
	checks := findings(t, r)
	require.Equal(t, "ok", checks["kubernetes"].Result, "%+v", checks["kubernetes"])
	require.Equal(t, "ok", checks["kinds"].Result, "%+v", checks["kinds"])
	require.Equal(t, "ok", checks["permissions"].Result, "%+v", checks["permissions"])

	require.Zero(t, agent("once", "--wait", patience.String()).code)
	require.Equal(t, map[string]string{"REGION": "north", "LOG_LEVEL": "info"}, s.settings("shop-web"))
	s.dropBatch()
	s.publish()
	require.Zero(t, agent("once", "--wait", patience.String()).code)
	s.gone(s.namespace("shop-batch"), "shop", &appsv1.Deployment{})
	s.read("", s.namespace("shop-batch"), &corev1.Namespace{}) // which the agent may not look into
}

func TestTheDoctorNamesMissingPermissionsAndKinds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.publish()
	namespace, objects := s.install()
	s.apply(objects)
	agent := s.installed(namespace, find[corev1.ConfigMap](t, objects, "ConfigMap"))
	role := find[rbacv1.ClusterRole](t, objects, "ClusterRole")
	role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "patch"}}}
	before := find[rbacv1.ClusterRole](t, objects, "ClusterRole").Rules
	require.NoError(t, s.Update(t.Context(), &role))
	subject := find[rbacv1.ClusterRoleBinding](t, objects, "ClusterRoleBinding").Subjects[0]
	s.awaitRight(subject, s.namespace("shop-web"), before[0], false)

	r := agent("doctor", "-o", "json")
	require.Equal(t, 1, r.code, r.stdout)
	denied := findings(t, r)["permissions"]
	require.Equal(t, "failed", denied.Result)
	require.Contains(t, denied.Message, "delete configmaps in "+s.namespace("shop-web"))
	require.Contains(t, denied.Message, "create deployments.apps in "+s.namespace("shop-web"))
	require.Contains(t, denied.Message, "create namespaces")
	require.NotContains(t, denied.Message, "create configmaps")
	require.Contains(t, denied.Remedy, "bind a ClusterRole")

	s.edit("platform/templates.yaml", "apiVersion: apps/v1", "apiVersion: kustomize.wherry-e2e.toolkit.fluxcd.io/v1")
	s.publish()
	missing := findings(t, agent("doctor", "-o", "json"))["kinds"]
	require.Equal(t, "failed", missing.Result)
	require.Equal(t, "the cluster does not serve Deployment of kustomize.wherry-e2e.toolkit.fluxcd.io/v1", missing.Message)
	require.Contains(t, missing.Remedy, "install Flux")
}

// installed returns a function that runs wherry-agent with the installed configuration.
func (s *site) installed(namespace string, config corev1.ConfigMap) func(args ...string) ran {
	s.t.Helper()
	for name, content := range config.Data {
		require.NoError(s.t, os.WriteFile(s.path("etc-"+name), []byte(strings.ReplaceAll(content, "cosign.pub", "etc-cosign.pub")), 0o644))
	}
	kubeconfig := s.path("agent.kubeconfig")
	s.writeServiceAccount(namespace, kubeconfig)
	return func(args ...string) ran {
		args = append(args, "--config", "etc-agent.yaml", "--state-dir", "agent", "--kubeconfig", kubeconfig, "--memory", namespace+"/"+clustermemory.DefaultName) // as in its pod
		return s.program("wherry-agent", args...)
	}
}

// writeServiceAccount writes a kubeconfig for the agent's service account.
func (s *site) writeServiceAccount(namespace, file string) {
	s.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wherry-agent"}}
	token := &authenticationv1.TokenRequest{}
	require.NoError(s.t, s.SubResource("token").Create(s.t.Context(), account, token))
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig)
	require.NoError(s.t, err)
	current := config.Contexts[config.CurrentContext]
	config.AuthInfos[current.AuthInfo] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	require.NoError(s.t, clientcmd.WriteToFile(*config, file))
}

// finding is one of the checks in the JSON of "wherry-agent doctor".
type finding struct{ Check, Result, Message, Remedy string }

func findings(t *testing.T, r ran) map[string]finding {
	t.Helper()
	var report struct{ Checks []finding }
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report))
	found := map[string]finding{}
	for _, f := range report.Checks {
		found[f.Check] = f
	}
	return found
}
