package deploy

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/agent/clustermemory"
)

var (
	update = flag.Bool("update", false, "rewrite the Kustomize bases, and the copy of the alerts")
	all    = []Chart{Agent, Hub, Promoter}
)

// manifests are objects by kind and name, as KIND/NAME.
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
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal(doc, &object))
		require.NotContains(t, found, object.Kind+"/"+object.Metadata.Name)
		found[object.Kind+"/"+object.Metadata.Name] = doc
	}
}

// decode reads an object with the API's own type: a field that is not one of it is an error.
func decode[T any](t *testing.T, m manifests, name string) (object T) {
	t.Helper()
	require.Contains(t, m, name)
	require.NoError(t, yaml.UnmarshalStrict(m[name], &object))
	return object
}

// render renders a chart with values in YAML.
func render(t *testing.T, c Chart, namespace, values string) manifests {
	t.Helper()
	data, err := tryRender(t, c, namespace, values)
	require.NoError(t, err)
	return parse(t, data)
}

func tryRender(t *testing.T, c Chart, namespace, values string) ([]byte, error) {
	t.Helper()
	var parsed map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(values), &parsed))
	return c.Render(namespace, parsed)
}

func podOf(t *testing.T, m manifests, c Chart) corev1.PodSpec {
	t.Helper()
	return decode[appsv1.Deployment](t, m, "Deployment/"+string(c)).Spec.Template.Spec
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

// agentValues are those of an agent of one cluster.
const agentValues = `
image: registry.plant-7:5000/edge/wherry-agent:v1.2.3
config: {registry: oci://registry.plant-7:5000/edge, environment: dev, clusterType: drone, keys: [cosign.pub]}
files: {cosign.pub: "key\n"}
`

// The bases in agent/, hub/ and promoter/ are for people who have Kustomize and not Helm.
func TestTheBasesAreTheCharts(t *testing.T) {
	for _, c := range all {
		t.Run(string(c), func(t *testing.T) {
			want, err := c.Render(DefaultNamespace, map[string]any{"createNamespace": true})
			require.NoError(t, err)
			folder := strings.TrimPrefix(string(c), "wherry-")
			file := filepath.Join(folder, string(c)+".yaml")
			if *update {
				require.NoError(t, os.WriteFile(file, want, 0o644))
			}
			got, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), string(got), "go test ./deploy -update writes it")

			built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
			require.NoError(t, err)
			data, err := built.AsYaml()
			require.NoError(t, err)
			require.Len(t, parse(t, data), len(parse(t, want)))
		})
	}
}

// Helm reads no file outside of a chart.
func TestTheHubsChartHasTheAlerts(t *testing.T) {
	want, err := os.ReadFile("prometheus/rules.yaml")
	require.NoError(t, err)
	const file = "charts/wherry-hub/rules.yaml"
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "go test ./deploy -update writes it")
	type groups struct{ Groups []map[string]any }
	var rules groups
	require.NoError(t, yaml.Unmarshal(want, &rules))
	require.NotEmpty(t, rules.Groups)
	require.NotContains(t, render(t, Hub, "edge", ""), "PrometheusRule/wherry")
	var rule struct{ Spec groups }
	require.NoError(t, yaml.Unmarshal(render(t, Hub, "edge", "prometheusRule: {enabled: true}")["PrometheusRule/wherry"], &rule))
	require.Equal(t, rules, rule.Spec)
}

// The overlay of docs/install.md names the image, and has another configuration in another ConfigMap, so that the pod is replaced.
func TestAnOverlayOnTheBase(t *testing.T) {
	page, err := os.ReadFile("../docs/install.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```yaml\n(apiVersion: kustomize.*?)```").FindSubmatch(page)
	require.NotNil(t, found)
	text := strings.NewReplacer("https://github.com/wherry-dev/wherry//deploy/agent?ref=main", "../agent", "wherry-system", "line-b").Replace(string(found[1]))
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "agent"), os.DirFS("agent")))
	overlay := filepath.Join(dir, "plant-7")
	require.NoError(t, os.Mkdir(overlay, 0o755))
	for name, text := range map[string]string{"agent.yaml": "environment: dev\n", "cosign.pub": "key\n", "kustomization.yaml": text} {
		require.NoError(t, os.WriteFile(filepath.Join(overlay, name), []byte(text), 0o644))
	}
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	require.NoError(t, err)
	data, err := built.AsYaml()
	require.NoError(t, err)
	m := parse(t, data)
	pod := podOf(t, m, Agent)
	require.Equal(t, "registry.plant-7:5000/edge/wherry-agent:dev", pod.Containers[0].Image)
	config := volume(t, pod, "config").ConfigMap.Name
	require.NotEqual(t, "wherry-agent", config)
	require.Equal(t, "line-b", decode[corev1.ConfigMap](t, m, "ConfigMap/"+config).Namespace)
	require.Contains(t, m, "Namespace/line-b")
}

// Each pod meets Pod Security "restricted" and is not root; its probes ask a port that it has.
func TestPodsAreConfined(t *testing.T) {
	for _, c := range all {
		t.Run(string(c), func(t *testing.T) {
			m := render(t, c, "edge", "createNamespace: true")
			require.Equal(t, "restricted", decode[corev1.Namespace](t, m, "Namespace/edge").Labels["pod-security.kubernetes.io/enforce"])
			deployment := decode[appsv1.Deployment](t, m, "Deployment/"+string(c))
			require.Equal(t, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels)
			pod := deployment.Spec.Template.Spec
			require.Equal(t, string(c), decode[corev1.ServiceAccount](t, m, "ServiceAccount/"+pod.ServiceAccountName).Name)
			require.Equal(t, c == Agent, *pod.AutomountServiceAccountToken, "only the agent asks the cluster for anything")
			require.True(t, *pod.SecurityContext.RunAsNonRoot)
			container := pod.Containers[0]
			require.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
			for path, probes := range map[string][]*corev1.Probe{
				"/healthz": {container.StartupProbe, container.LivenessProbe}, "/readyz": {container.ReadinessProbe},
			} {
				for _, probe := range probes {
					require.Equal(t, path, probe.HTTPGet.Path)
					require.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.StrVal)
				}
			}
			for kind := range m {
				require.False(t, strings.HasPrefix(kind, "Secret/"), "no chart makes a Secret")
			}
		})
	}
}

// What OpenShift's restricted-v2 asks of a pod, as its SecurityContextConstraints are documented: user and groups are the
// namespace's (MustRunAsRange, MustRunAs), seccomp runtime/default, ALL dropped and only NET_BIND_SERVICE added, no privilege
// escalation, no host directory, namespace or port, and volumes of these types alone.
func TestOpenShiftChoosesUserAndGroups(t *testing.T) {
	allowed := map[string]bool{"configMap": true, "csi": true, "downwardAPI": true, "emptyDir": true, "ephemeral": true, "persistentVolumeClaim": true, "projected": true, "secret": true}
	for _, c := range all {
		t.Run(string(c), func(t *testing.T) {
			values := map[Chart]string{Agent: agentValues, Hub: "replicas: 2\ndatabase: {secret: db}\nfiles: {a: b}", Promoter: "platform: https://forge.example/p\nregistry: oci://r/edge"}[c]
			m := render(t, c, "edge", values+"\nopenshift: true")
			pod := podOf(t, m, c)
			require.Equal(t, &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}, pod.SecurityContext, "no runAsUser, runAsGroup, fsGroup or supplementalGroups")
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC)
			for _, container := range append(pod.InitContainers, pod.Containers...) {
				require.Equal(t, &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}, container.SecurityContext)
				for _, port := range container.Ports {
					require.Zero(t, port.HostPort)
				}
			}
			var raw struct {
				Spec struct {
					Template struct {
						Spec struct{ Volumes []map[string]any }
					}
				}
			}
			require.NoError(t, yaml.Unmarshal(m["Deployment/"+string(c)], &raw))
			require.NotEmpty(t, raw.Spec.Template.Spec.Volumes)
			for _, v := range raw.Spec.Template.Spec.Volumes {
				for kind := range v {
					require.True(t, kind == "name" || allowed[kind], kind)
				}
			}
			require.EqualValues(t, 65532, *podOf(t, render(t, c, "edge", values), c).SecurityContext.FSGroup, "elsewhere it is ours")
		})
	}
	_, err := tryRender(t, Agent, "edge", "openshift: true\nstate: {hostPath: /srv}")
	require.ErrorContains(t, err, "restricted-v2 allows no folder of the node")
}

// A value without a default would be known to nobody.
func TestTheSchemasAreWhole(t *testing.T) {
	for _, c := range all {
		var values map[string]any
		var schema struct{ Properties map[string]any }
		for file, into := range map[string]any{"values.yaml": &values, "values.schema.json": &schema} {
			data, err := os.ReadFile(filepath.Join("charts", string(c), file))
			require.NoError(t, err)
			require.NoError(t, yaml.Unmarshal(data, into))
		}
		require.Equal(t, slices.Sorted(maps.Keys(values)), slices.Sorted(maps.Keys(schema.Properties)), c)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	tests := []struct {
		chart        Chart
		values, want string
	}{
		{Agent, "imag: x", "additional properties 'imag' not allowed"},
		{Agent, "config: {environment: dev}", "missing properties 'registry', 'clusterType'"},
		{Agent, "adapters: [zarf]", "value must be one of 'kubernetes', 'flux', 'argo'"},
		{Agent, "state: {hostPath: state}", "at '/state/hostPath'"},
		{Agent, "pod: {containers: []}", "at '/pod'"},
		{Agent, "networkPolicy: {enabled: yes please}", "at '/networkPolicy/enabled'"},
		{Hub, "replicas: -1", "at '/replicas'"},
		{Hub, "replicas: 2", "set database.secret"},
		{Hub, "tls: {secret: Not_A_Name}", "at '/tls/secret'"},
		{Promoter, "platform: https://forge.example/p", "at '/registry'"},
		{Promoter, "{platform: https://forge.example/p, registry: registry.example/edge}", "at '/registry'"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.chart, " ", test.values), func(t *testing.T) {
			_, err := tryRender(t, test.chart, "edge", test.values)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// The usual role names its resources, and lists nothing: whoever has the agent's account cannot read what is no assignment's kind.
func TestTheUsualRoleReadsNothingElse(t *testing.T) {
	role := decode[rbacv1.ClusterRole](t, render(t, Agent, DefaultNamespace, agentValues), "ClusterRole/wherry-agent")
	for _, rule := range role.Rules {
		require.NotContains(t, append(rule.APIGroups, rule.Resources...), "*")
		require.Subset(t, []string{"get", "create", "patch", "update", "delete"}, rule.Verbs)
	}
}

func TestPermissionsByAdapter(t *testing.T) {
	groups := func(values string) (names []string) {
		for _, rule := range decode[rbacv1.ClusterRole](t, render(t, Agent, DefaultNamespace, values), "ClusterRole/wherry-agent").Rules {
			for _, resource := range rule.Resources {
				if len(rule.ResourceNames) == 0 {
					names = append(names, resource)
				}
			}
		}
		return names
	}
	require.Equal(t, []string{"namespaces", "gitrepositories", "ocirepositories", "helmrepositories", "helmcharts", "buckets", "kustomizations", "helmreleases"}, groups("adapters: [flux]"))
	require.Equal(t, []string{"namespaces", "applications"}, groups("adapters: [argo]"))
	require.Contains(t, groups("adapters: [kubernetes]"), "secrets")
	m := render(t, Agent, DefaultNamespace, "{adapters: [], objects: [{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]}")
	require.NotContains(t, m, "ClusterRole/wherry-agent")
	require.NotContains(t, m, "ClusterRoleBinding/wherry-agent")
	require.Contains(t, m, "Role/wherry-agent-memory")
	require.Contains(t, m, "Namespace/shop")
}

func TestTheAgentsManifests(t *testing.T) {
	m := render(t, Agent, DefaultNamespace, agentValues)
	config := decode[corev1.ConfigMap](t, m, "ConfigMap/wherry-agent")
	require.Equal(t, map[string]string{
		"agent.yaml": "clusterType: drone\nenvironment: dev\nkeys:\n- cosign.pub\nregistry: oci://registry.plant-7:5000/edge\n", "cosign.pub": "key\n",
	}, config.Data)
	role := decode[rbacv1.ClusterRole](t, m, "ClusterRole/wherry-agent")
	binding := decode[rbacv1.ClusterRoleBinding](t, m, "ClusterRoleBinding/wherry-agent")
	require.Equal(t, role.Name, binding.RoleRef.Name)
	require.Equal(t, []rbacv1.Subject{{Kind: "ServiceAccount", Name: AgentAccount, Namespace: DefaultNamespace}}, binding.Subjects)

	agent := decode[appsv1.Deployment](t, m, "Deployment/wherry-agent")
	pod := agent.Spec.Template.Spec
	require.Equal(t, "registry.plant-7:5000/edge/wherry-agent:v1.2.3", pod.Containers[0].Image)
	require.Equal(t, config.Name, volume(t, pod, "config").ConfigMap.Name)
	claim := decode[corev1.PersistentVolumeClaim](t, m, "PersistentVolumeClaim/"+volume(t, pod, "state").PersistentVolumeClaim.ClaimName)
	require.Equal(t, "keep", claim.Annotations["helm.sh/resource-policy"])
	port := fmt.Sprint(pod.Containers[0].Ports[0].ContainerPort)
	require.Contains(t, pod.Containers[0].Env, corev1.EnvVar{Name: "WHERRY_LISTEN", Value: ":" + port})
	require.Equal(t, port, agent.Spec.Template.Annotations["prometheus.io/port"])
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, agent.Spec.Strategy.Type, "two pods must not work with one state folder")
	require.Len(t, m, 8)

	other := decode[appsv1.Deployment](t, render(t, Agent, DefaultNamespace, strings.Replace(agentValues, "dev", "prod", 1)), "Deployment/wherry-agent")
	require.NotEqual(t, agent.Spec.Template.Annotations, other.Spec.Template.Annotations, "another configuration is another pod")
}

// The names in the Role are those that the agent uses.
func TestTheAgentMayKeepItsMemory(t *testing.T) {
	m := render(t, Agent, "line-b", agentValues)
	binding := decode[rbacv1.RoleBinding](t, m, "RoleBinding/wherry-agent-memory")
	require.Equal(t, "Role", binding.RoleRef.Kind)
	role := decode[rbacv1.Role](t, m, "Role/"+binding.RoleRef.Name)
	var rules []rbacv1.PolicyRule
	for _, kind := range [][2]string{{"", "secrets"}, {"coordination.k8s.io", "leases"}} {
		rules = append(rules,
			rbacv1.PolicyRule{APIGroups: kind[:1], Resources: kind[1:], Verbs: []string{"create"}},
			rbacv1.PolicyRule{APIGroups: kind[:1], Resources: kind[1:], ResourceNames: []string{clustermemory.DefaultName}, Verbs: []string{"get", "update"}})
	}
	require.Equal(t, rules, role.Rules)
}

func TestTheEndpointGetsAService(t *testing.T) {
	require.NotContains(t, render(t, Agent, "edge", agentValues), "Service/wherry-agent")
	served := strings.Replace(agentValues, "keys:", "serve: {address: ':5001'}, keys:", 1)
	m := render(t, Agent, "edge", served)
	service := decode[corev1.Service](t, m, "Service/wherry-agent")
	agent := decode[appsv1.Deployment](t, m, "Deployment/wherry-agent")
	require.Equal(t, agent.Spec.Template.Labels, service.Spec.Selector)
	require.True(t, service.Spec.PublishNotReadyAddresses)
	require.Equal(t, int32(5001), service.Spec.Ports[0].Port)
	container := agent.Spec.Template.Spec.Containers[0]
	require.Contains(t, container.Ports, corev1.ContainerPort{Name: "registry", ContainerPort: 5001})
	require.Contains(t, container.Env, corev1.EnvVar{Name: "WHERRY_SERVE_URL", Value: "https://wherry-agent.edge.svc:5001"})
	require.NotContains(t, string(render(t, Agent, "edge", strings.Replace(served, "':5001'", "':5001', url: https://10.0.0.7:30501", 1))["Deployment/wherry-agent"]), "WHERRY_SERVE_URL")
}

func TestAFolderOfTheNodeInsteadOfAVolume(t *testing.T) {
	m := render(t, Agent, "edge", "{createNamespace: true, state: {hostPath: /srv/wherry}}")
	require.NotContains(t, m, "PersistentVolumeClaim/wherry-agent")
	require.Equal(t, "privileged", decode[corev1.Namespace](t, m, "Namespace/edge").Labels["pod-security.kubernetes.io/enforce"])
	pod := podOf(t, m, Agent)
	kind := corev1.HostPathDirectoryOrCreate
	require.Equal(t, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/srv/wherry", Type: &kind}}, volume(t, pod, "state").VolumeSource)
	require.Zero(t, *pod.SecurityContext.RunAsUser)
	require.Nil(t, pod.SecurityContext.FSGroup)
	require.Equal(t, []corev1.Capability{"ALL"}, pod.Containers[0].SecurityContext.Capabilities.Drop)
}

func TestTheFolderOfAVetoFileIsTheNodes(t *testing.T) {
	m := render(t, Agent, "line-b", strings.Replace(agentValues, "keys:", "veto: {file: /run/plc/busy}, keys:", 1)+"createNamespace: true")
	require.Equal(t, "privileged", decode[corev1.Namespace](t, m, "Namespace/line-b").Labels["pod-security.kubernetes.io/enforce"])
	pod := podOf(t, m, Agent)
	kind := corev1.HostPathDirectoryOrCreate
	require.Equal(t, corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/run/plc", Type: &kind}}, volume(t, pod, "veto").VolumeSource)
	require.Contains(t, pod.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "veto", MountPath: "/run/plc", ReadOnly: true})
	require.True(t, *pod.SecurityContext.RunAsNonRoot)
}

func TestACertificateOfTheAgentIsInASecret(t *testing.T) {
	pod := podOf(t, render(t, Agent, "edge", "tlsSecret: plant-7"), Agent)
	require.Equal(t, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "plant-7"}}, volume(t, pod, "client").VolumeSource)
	agent := pod.Containers[0]
	require.Contains(t, agent.VolumeMounts, corev1.VolumeMount{Name: "client", MountPath: "/etc/wherry-client", ReadOnly: true})
	require.Contains(t, agent.Env, corev1.EnvVar{Name: "WHERRY_TLS_CERT", Value: "/etc/wherry-client/tls.crt"})
	require.Contains(t, agent.Env, corev1.EnvVar{Name: "WHERRY_TLS_KEY", Value: "/etc/wherry-client/tls.key"})
}

func TestAnotherNamespaceHasRolesOfItsOwn(t *testing.T) {
	m := render(t, Agent, "line-b", strings.Replace(agentValues, "keys:", "siteValues: configmap:plant/own, keys:", 1))
	binding := decode[rbacv1.ClusterRoleBinding](t, m, "ClusterRoleBinding/wherry-agent-line-b")
	require.Equal(t, "wherry-agent-line-b", binding.RoleRef.Name)
	require.Equal(t, RoleName("line-b"), decode[rbacv1.ClusterRole](t, m, "ClusterRole/wherry-agent-line-b").Name)
	require.Equal(t, "line-b", binding.Subjects[0].Namespace)
	role := decode[rbacv1.Role](t, m, "Role/wherry-agent-line-b-site-values")
	require.Equal(t, "plant", role.Namespace)
	require.Equal(t, []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"own"}, Verbs: []string{"get"}}}, role.Rules)
}

func TestTheClustersNameIsTheNodesUntilItIsGiven(t *testing.T) {
	node := corev1.EnvVar{Name: "WHERRY_CLUSTER_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"}}}
	require.Contains(t, podOf(t, render(t, Agent, "edge", agentValues), Agent).Containers[0].Env, node)
	named := strings.Replace(agentValues, "keys:", "cluster: {name: plant-7}, keys:", 1)
	require.NotContains(t, podOf(t, render(t, Agent, "edge", named), Agent).Containers[0].Env, node)
}

func TestTheHubKeepsItsDataOnAVolumeOrInADatabase(t *testing.T) {
	m := render(t, Hub, "edge", "")
	hub := decode[appsv1.Deployment](t, m, "Deployment/wherry-hub")
	require.Equal(t, appsv1.RecreateDeploymentStrategyType, hub.Spec.Strategy.Type)
	claim := decode[corev1.PersistentVolumeClaim](t, m, "PersistentVolumeClaim/wherry-hub")
	require.Equal(t, claim.Name, volume(t, hub.Spec.Template.Spec, "data").PersistentVolumeClaim.ClaimName)
	require.Equal(t, "keep", claim.Annotations["helm.sh/resource-policy"])
	require.NotContains(t, m, "PodDisruptionBudget/wherry-hub")

	m = render(t, Hub, "edge", "{replicas: 3, database: {secret: db}}")
	hub = decode[appsv1.Deployment](t, m, "Deployment/wherry-hub")
	require.EqualValues(t, 3, *hub.Spec.Replicas)
	require.Empty(t, hub.Spec.Strategy)
	require.NotContains(t, m, "PersistentVolumeClaim/wherry-hub")
	pod := hub.Spec.Template.Spec
	require.NotNil(t, volume(t, pod, "data").EmptyDir)
	require.Equal(t, "db", volume(t, pod, "database").Secret.SecretName)
	require.Contains(t, pod.Containers[0].Args, "--database-file=/etc/wherry-database/url")
	budget := decode[policyv1.PodDisruptionBudget](t, m, "PodDisruptionBudget/wherry-hub")
	require.Equal(t, 1, budget.Spec.MaxUnavailable.IntValue())
	require.Equal(t, hub.Spec.Template.Labels, budget.Spec.Selector.MatchLabels)
}

func TestTheHubsCertificate(t *testing.T) {
	m := render(t, Hub, "edge", "{tls: {certManager: {issuerRef: {kind: ClusterIssuer, name: site}, dnsNames: [hub.example]}}, serviceMonitor: {enabled: true}}")
	pod := podOf(t, m, Hub)
	require.Contains(t, pod.Containers[0].Args, "--tls-cert=/etc/wherry-tls/tls.crt")
	require.Equal(t, corev1.URISchemeHTTPS, pod.Containers[0].ReadinessProbe.HTTPGet.Scheme)
	var certificate struct {
		APIVersion string
		Spec       struct {
			SecretName string
			DNSNames   []string
			IssuerRef  map[string]string
		}
	}
	require.NoError(t, yaml.Unmarshal(m["Certificate/wherry-hub"], &certificate))
	require.Equal(t, "cert-manager.io/v1", certificate.APIVersion)
	require.Equal(t, volume(t, pod, "tls").Secret.SecretName, certificate.Spec.SecretName)
	require.Equal(t, []string{"wherry-hub.edge.svc", "hub.example"}, certificate.Spec.DNSNames)
	require.Equal(t, map[string]string{"kind": "ClusterIssuer", "name": "site"}, certificate.Spec.IssuerRef)
	require.Contains(t, string(m["ServiceMonitor/wherry-hub"]), "serverName: wherry-hub.edge.svc")

	m = render(t, Hub, "edge", "{tls: {secret: ''}, serviceMonitor: {enabled: true}}")
	pod = podOf(t, m, Hub)
	require.Contains(t, pod.Containers[0].Args, "--insecure-http")
	require.Equal(t, corev1.URISchemeHTTP, pod.Containers[0].ReadinessProbe.HTTPGet.Scheme)
	require.NotContains(t, string(m["ServiceMonitor/wherry-hub"]), "https")
}

// No secret is among the arguments, which all users of a node can read.
func TestSecretsAreInFiles(t *testing.T) {
	for c, folders := range map[Chart][]string{Hub: {"/etc/wherry-hub/", "/etc/wherry-database/"}, Promoter: {"/etc/wherry-promoter/"}} {
		for _, arg := range podOf(t, render(t, c, "edge", "{}"), c).Containers[0].Args {
			if _, file, ok := strings.Cut(arg, "-file="); ok {
				require.Contains(t, folders, file[:strings.LastIndex(file, "/")+1], arg)
			}
		}
	}
}

func TestThePromoterIsConfigured(t *testing.T) {
	m := render(t, Promoter, "edge", "{replicas: 2, platform: https://forge.example/p, registry: oci://r/edge, hub: https://hub.example}")
	config := decode[corev1.ConfigMap](t, m, "ConfigMap/wherry-promoter")
	require.Equal(t, map[string]string{"PLATFORM": "https://forge.example/p", "WHERRY_REGISTRY": "oci://r/edge", "WHERRY_HUB": "https://hub.example"}, config.Data)
	pod := podOf(t, m, Promoter)
	require.Equal(t, config.Name, pod.Containers[0].EnvFrom[0].ConfigMapRef.Name)
	require.Equal(t, []string{"promote", "$(PLATFORM)", "--watch"}, pod.Containers[0].Args[:3])
	require.Equal(t, "wherry-promoter", volume(t, pod, "secrets").Secret.SecretName)
	require.Nil(t, volume(t, pod, "secrets").Secret.Optional)
	service := decode[corev1.Service](t, m, "Service/wherry-promoter")
	require.Equal(t, pod.Containers[0].Ports[0].Name, service.Spec.Ports[0].TargetPort.StrVal)
	require.Contains(t, m, "PodDisruptionBudget/wherry-promoter")
}

// What is off by default names the ports of the pod and the labels of the Service.
func TestNetworkPoliciesAndMonitors(t *testing.T) {
	for _, c := range all {
		t.Run(string(c), func(t *testing.T) {
			m := render(t, c, "edge", `{networkPolicy: {enabled: true, from: [{namespaceSelector: {}}], egress: [{ports: [{port: 443}]}]}, serviceMonitor: {enabled: true, labels: {release: prometheus}}}`)
			deployment := decode[appsv1.Deployment](t, m, "Deployment/"+string(c))
			policy := decode[networkingv1.NetworkPolicy](t, m, "NetworkPolicy/"+string(c))
			require.Equal(t, deployment.Spec.Template.Labels, policy.Spec.PodSelector.MatchLabels)
			require.Len(t, policy.Spec.PolicyTypes, 2)
			port := deployment.Spec.Template.Spec.Containers[0].Ports[0].Name
			require.Equal(t, port, policy.Spec.Ingress[0].Ports[0].Port.StrVal)
			require.Len(t, policy.Spec.Ingress[0].From, 1)
			require.Len(t, policy.Spec.Egress, 1)
			require.Contains(t, string(m["ServiceMonitor/"+string(c)]), "port: "+port)
			require.Contains(t, string(m["ServiceMonitor/"+string(c)]), "release: prometheus")
			require.Equal(t, port, decode[corev1.Service](t, m, "Service/"+string(c)).Spec.Ports[0].Name)

			policy = decode[networkingv1.NetworkPolicy](t, render(t, c, "edge", "networkPolicy: {enabled: true}"), "NetworkPolicy/"+string(c))
			require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}, policy.Spec.PolicyTypes)
			require.Empty(t, policy.Spec.Ingress[0].From)
		})
	}
}
