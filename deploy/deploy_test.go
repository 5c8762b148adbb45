package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/agent/clustermemory"
)

// manifests are objects by kind, of which there is one of each.
type manifests map[string][]byte

func parse(t *testing.T, data []byte) manifests {
	t.Helper()
	found := manifests{}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		doc, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return found
		}
		require.NoError(t, err)
		var kind struct{ Kind string }
		require.NoError(t, yaml.Unmarshal(doc, &kind))
		require.NotContains(t, found, kind.Kind)
		found[kind.Kind] = doc
	}
}

// decode reads an object with the API's own type: a field that is not one of it is an error.
func decode[T any](t *testing.T, m manifests, kind string) (object T) {
	t.Helper()
	require.Contains(t, m, kind)
	require.NoError(t, yaml.UnmarshalStrict(m[kind], &object))
	return object
}

func options() AgentOptions {
	return AgentOptions{
		Files: map[string][]byte{"agent.yaml": []byte("environment: dev\n"), "cosign.pub": []byte("key\n")},
		Image: "registry.plant-7:5000/edge/wherry-agent:v1.2.3",
	}
}

func render(t *testing.T, opts AgentOptions) manifests {
	t.Helper()
	data, err := Agent(opts)
	require.NoError(t, err)
	return parse(t, data)
}

// The usual role names its resources, and lists nothing: whoever has the agent's account cannot read what is no assignment's kind.
func TestTheUsualRoleReadsNothingElse(t *testing.T) {
	data, err := os.ReadFile("agent/rbac.yaml")
	require.NoError(t, err)
	for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal(document, &role))
		for _, rule := range role.Rules {
			require.NotContains(t, append(rule.APIGroups, rule.Resources...), "*")
			require.Subset(t, []string{"get", "create", "patch", "update", "delete"}, rule.Verbs)
		}
	}
}

func TestTheEndpointGetsAService(t *testing.T) {
	opts := options()
	require.NotContains(t, render(t, opts), "Service")
	opts.Namespace, opts.ServePort = "edge", 5001
	m := render(t, opts)
	service := decode[corev1.Service](t, m, "Service")
	agent := decode[appsv1.Deployment](t, m, "Deployment")
	require.Equal(t, "edge", service.Namespace)
	require.Equal(t, agent.Spec.Template.Labels, service.Spec.Selector)
	require.True(t, service.Spec.PublishNotReadyAddresses)
	require.Equal(t, int32(5001), service.Spec.Ports[0].Port)
	container := agent.Spec.Template.Spec.Containers[0]
	require.Contains(t, container.Ports, corev1.ContainerPort{Name: "registry", ContainerPort: 5001})
	require.Contains(t, container.Ports, corev1.ContainerPort{Name: "metrics", ContainerPort: 8081})
	require.Contains(t, container.Env, corev1.EnvVar{Name: "WHERRY_SERVE_URL", Value: "https://wherry-agent.edge.svc:5001"})

	opts.ServeURL = "https://10.0.0.7:30501"
	agent = decode[appsv1.Deployment](t, render(t, opts), "Deployment")
	require.Contains(t, agent.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "WHERRY_SERVE_URL", Value: opts.ServeURL})
}

func TestTheAgentsManifests(t *testing.T) {
	m := render(t, options())
	config := decode[corev1.ConfigMap](t, m, "ConfigMap")
	require.Equal(t, map[string]string{"agent.yaml": "environment: dev\n", "cosign.pub": "key\n"}, config.Data)
	namespace := decode[corev1.Namespace](t, m, "Namespace")
	require.Equal(t, "restricted", namespace.Labels["pod-security.kubernetes.io/enforce"])
	account := decode[corev1.ServiceAccount](t, m, "ServiceAccount")
	role := decode[rbacv1.ClusterRole](t, m, "ClusterRole")
	binding := decode[rbacv1.ClusterRoleBinding](t, m, "ClusterRoleBinding")
	require.Equal(t, role.Name, binding.RoleRef.Name)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: account.Name, Namespace: namespace.Name}}, binding.Subjects)
	claim := decode[corev1.PersistentVolumeClaim](t, m, "PersistentVolumeClaim")

	agent := decode[appsv1.Deployment](t, m, "Deployment")
	pod := agent.Spec.Template.Spec
	require.Equal(t, namespace.Name, agent.Namespace)
	require.Equal(t, agent.Spec.Selector.MatchLabels, map[string]string{"app.kubernetes.io/name": "wherry-agent"})
	require.Equal(t, account.Name, pod.ServiceAccountName)
	require.Equal(t, "registry.plant-7:5000/edge/wherry-agent:v1.2.3", pod.Containers[0].Image)
	require.Equal(t, config.Name, volume(t, pod, "config").ConfigMap.Name, "another configuration is another pod")
	require.Equal(t, claim.Name, volume(t, pod, "state").PersistentVolumeClaim.ClaimName)
	for path, probes := range map[string][]*corev1.Probe{
		"/healthz": {pod.Containers[0].StartupProbe, pod.Containers[0].LivenessProbe}, "/readyz": {pod.Containers[0].ReadinessProbe},
	} {
		for _, probe := range probes {
			require.Equal(t, path, probe.HTTPGet.Path)
			require.Equal(t, pod.Containers[0].Ports[0].Name, probe.HTTPGet.Port.StrVal)
		}
	}
	port := fmt.Sprint(pod.Containers[0].Ports[0].ContainerPort)
	require.Contains(t, pod.Containers[0].Env, corev1.EnvVar{Name: "WHERRY_LISTEN", Value: ":" + port})
	require.Equal(t, port, agent.Spec.Template.Annotations["prometheus.io/port"])
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, agent.Spec.Strategy.Type, "two pods must not work with one state folder")
	require.EqualValues(t, 30, *pod.TerminationGracePeriodSeconds)
	require.Len(t, m, 9)
}

// The names in the Role are those that the agent uses, whatever Kustomize does to others that look like them.
func TestTheAgentMayKeepItsMemory(t *testing.T) {
	m := render(t, options())
	binding := decode[rbacv1.RoleBinding](t, m, "RoleBinding")
	require.Equal(t, "Role", binding.RoleRef.Kind)
	role := decode[rbacv1.Role](t, m, "Role")
	require.Equal(t, role.Name, binding.RoleRef.Name)
	var rules []rbacv1.PolicyRule
	for _, kind := range [][2]string{{"", "secrets"}, {"coordination.k8s.io", "leases"}} {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: kind[:1], Resources: kind[1:], Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: kind[:1], Resources: kind[1:], ResourceNames: []string{clustermemory.DefaultName}, Verbs: []string{"get", "update"}})
	}
	require.Equal(t, rules, role.Rules)
}

func volume(t *testing.T, pod corev1.PodSpec, name string) corev1.Volume {
	t.Helper()
	for _, v := range pod.Volumes {
		if v.Name == name {
			return v
		}
	}
	require.Fail(t, "no volume "+name)
	return corev1.Volume{}
}

func TestAnotherConfigurationIsAnotherConfigMap(t *testing.T) {
	before := decode[corev1.ConfigMap](t, render(t, options()), "ConfigMap")
	opts := options()
	opts.Files["agent.yaml"] = []byte("environment: prod\n")
	require.NotEqual(t, before.Name, decode[corev1.ConfigMap](t, render(t, opts), "ConfigMap").Name)
}

func TestAFolderOfTheNodeInsteadOfAVolume(t *testing.T) {
	opts := options()
	opts.HostPath = "/srv/wherry"
	m := render(t, opts)
	require.NotContains(t, m, "PersistentVolumeClaim")
	require.Equal(t, "privileged", decode[corev1.Namespace](t, m, "Namespace").Labels["pod-security.kubernetes.io/enforce"])
	pod := decode[appsv1.Deployment](t, m, "Deployment").Spec.Template.Spec
	kind := corev1.HostPathDirectoryOrCreate
	require.Equal(t, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/wherry", Type: &kind}}, volume(t, pod, "state").VolumeSource)
	require.Zero(t, *pod.SecurityContext.RunAsUser)
	require.Nil(t, pod.SecurityContext.FSGroup)
	require.Equal(t, []corev1.Capability{"ALL"}, pod.Containers[0].SecurityContext.Capabilities.Drop)
	require.True(t, *pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem)
}

func TestTheFolderOfAVetoFileIsTheNodes(t *testing.T) {
	opts := options()
	opts.VetoFile, opts.Namespace = "/run/plc/busy", "line-b"
	m := render(t, opts)
	require.Equal(t, "privileged", decode[corev1.Namespace](t, m, "Namespace").Labels["pod-security.kubernetes.io/enforce"])
	pod := decode[appsv1.Deployment](t, m, "Deployment").Spec.Template.Spec
	kind := corev1.HostPathDirectoryOrCreate
	require.Equal(t, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/plc", Type: &kind}}, volume(t, pod, "veto").VolumeSource)
	require.Contains(t, pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "veto", MountPath: "/run/plc", ReadOnly: true})
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
}

func TestACertificateOfTheAgentIsInASecret(t *testing.T) {
	opts := options()
	opts.ClientSecret = "plant-7"
	pod := decode[appsv1.Deployment](t, render(t, opts), "Deployment").Spec.Template.Spec
	require.Equal(t, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "plant-7"}}, volume(t, pod, "client").VolumeSource)
	agent := pod.Containers[0]
	require.Contains(t, agent.VolumeMounts, corev1.VolumeMount{Name: "client", MountPath: "/etc/wherry-client", ReadOnly: true})
	require.Contains(t, agent.Env, corev1.EnvVar{Name: "WHERRY_TLS_CERT", Value: "/etc/wherry-client/tls.crt"})
	require.Contains(t, agent.Env, corev1.EnvVar{Name: "WHERRY_TLS_KEY", Value: "/etc/wherry-client/tls.key"})
	before := decode[appsv1.Deployment](t, render(t, options()), "Deployment").Spec.Template.Spec
	require.Len(t, agent.Env, len(before.Containers[0].Env)+2)
	require.Len(t, pod.Volumes, len(before.Volumes)+1)
}

func TestATokenToEnrollWithIsInASecret(t *testing.T) {
	opts := options()
	require.NotContains(t, render(t, opts), "Secret")
	opts.EnrollToken, opts.EnrollTokenPath = []byte("wht_1"), "/etc/wherry-enroll/token"
	m := render(t, opts)
	secret := decode[corev1.Secret](t, m, "Secret")
	require.Equal(t, map[string][]byte{"token": []byte("wht_1")}, secret.Data)
	pod := decode[appsv1.Deployment](t, m, "Deployment").Spec.Template.Spec
	source := volume(t, pod, "enroll").Secret
	require.Equal(t, secret.Name, source.SecretName)
	require.True(t, *source.Optional, "it may be deleted")
	require.Contains(t, pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "enroll", MountPath: "/etc/wherry-enroll", ReadOnly: true})
	require.Len(t, pod.Containers[0].VolumeMounts, 5)
}

func TestAnotherNamespaceHasARoleOfItsOwn(t *testing.T) {
	opts := options()
	opts.Namespace = "line-b"
	m := render(t, opts)
	require.Equal(t, "line-b", decode[corev1.Namespace](t, m, "Namespace").Name)
	require.Equal(t, "wherry-agent-line-b", decode[rbacv1.ClusterRole](t, m, "ClusterRole").Name)
	binding := decode[rbacv1.ClusterRoleBinding](t, m, "ClusterRoleBinding")
	require.Equal(t, "wherry-agent-line-b", binding.Name)
	require.Equal(t, "wherry-agent-line-b", binding.RoleRef.Name)
	require.Equal(t, "line-b", binding.Subjects[0].Namespace)
	for _, kind := range []string{"ConfigMap", "ServiceAccount", "PersistentVolumeClaim", "Deployment", "Role", "RoleBinding"} {
		var object struct{ Metadata struct{ Namespace string } }
		require.NoError(t, yaml.Unmarshal(m[kind], &object))
		require.Equal(t, "line-b", object.Metadata.Namespace, kind)
	}
}

func TestTheClustersNameIsTheNodesUntilItIsGiven(t *testing.T) {
	name := func(opts AgentOptions) (found []corev1.EnvVar) {
		for _, v := range decode[appsv1.Deployment](t, render(t, opts), "Deployment").Spec.Template.Spec.Containers[0].Env {
			if v.Name == "WHERRY_CLUSTER_NAME" {
				found = append(found, v)
			}
		}
		return found
	}
	require.Equal(t, "spec.nodeName", name(options())[0].ValueFrom.FieldRef.FieldPath)
	opts := options()
	opts.ClusterName = "plant-7"
	require.Equal(t, []corev1.EnvVar{{Name: "WHERRY_CLUSTER_NAME", Value: "plant-7"}}, name(opts))
}

func TestImages(t *testing.T) {
	tests := []struct{ name, image string }{
		{"with a tag", "registry.example/edge/wherry-agent:v1"},
		{"of a registry with a port, without a tag", "registry.example:5000/agent"},
		{"by digest", "registry.example:5000/agent@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			opts := options()
			opts.Image = test.image
			require.Equal(t, test.image, decode[appsv1.Deployment](t, render(t, opts), "Deployment").Spec.Template.Spec.Containers[0].Image)
		})
	}
}

// The base is for people, too: an overlay of theirs gives what the command prints.
func TestTheBaseOnDiskGivesWhatIsPrinted(t *testing.T) {
	disk, dir := filesys.MakeFsOnDisk(), t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "agent"), os.DirFS("agent")))
	overlay := filepath.Join(dir, "plant-7")
	require.NoError(t, os.Mkdir(overlay, 0o755))
	for name, data := range options().Files {
		require.NoError(t, os.WriteFile(filepath.Join(overlay, name), data, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(`
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
namespace: wherry-system
resources: [../agent]
configMapGenerator:
  - name: wherry-agent
    files: [agent.yaml, cosign.pub]
images:
  - {name: wherry-agent, newName: registry.plant-7:5000/edge/wherry-agent, newTag: v1.2.3}
`), 0o644))
	want, err := Agent(options())
	require.NoError(t, err)
	got, err := build(disk, overlay)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	again, err := Agent(options())
	require.NoError(t, err)
	require.Equal(t, string(want), string(again))
}
