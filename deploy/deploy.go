// Package deploy holds the manifests and units that run wherry's programs: the Kustomize base of the agent in agent/, a
// systemd unit in systemd/, and the configuration of kind and zot for tests on other machines.
//
// Begin with Agent, which renders the base for one cluster. It builds an overlay with Kustomize itself, as a person
// would, so that its output and that of "kustomize build" on the folder cannot differ.
package deploy

import (
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/wherry-dev/wherry/bundle/lazyregexp"
)

//go:embed agent
var base embed.FS

// Names in the base.
const (
	// DefaultNamespace is the agent's namespace in the base.
	DefaultNamespace = "wherry-system"
	agentName        = "wherry-agent"
)

// AgentAccount is the name of the agent's ServiceAccount.
const AgentAccount = agentName

// AgentOptions are the values of one cluster, which the base lacks. Files and Image are required.
type AgentOptions struct {
	// Files are the files of the agent's configuration, by name: agent.yaml, and the keys that it names.
	Files map[string][]byte
	// Image is the agent's image, such as registry.plant-7:5000/edge/wherry-agent:v1.2.3.
	Image string
	// Namespace is the agent's namespace. Empty means DefaultNamespace. The names of the ClusterRole and its binding
	// contain any other namespace, so that two agents can share a cluster.
	Namespace string
	// ClusterName names the cluster in reports. Empty means the name of the agent's node.
	ClusterName string
	// NoRole leaves out the base's ClusterRole and its binding: the agent then has only permissions from elsewhere.
	NoRole bool
	// HostPath is a folder of the node for the agent's state. Empty means a PersistentVolumeClaim.
	HostPath string
	// VetoFile is the file of a node that forbids changes while it exists. Its folder, which is created if it is
	// missing, is mounted at the same path in the pod. Empty means none.
	VetoFile string
	// ServePort is the port of the agent's endpoint, which gets a Service of the agent's name. Zero means none.
	ServePort int
	// ServeURL is the URL by which others reach the endpoint. Empty means the Service's name and ServePort.
	ServeURL string
	// SiteValues is the ConfigMap, as NAMESPACE/NAME, with the values that the site itself sets. The agent gets a Role in that
	// namespace, by which it may read this ConfigMap and no other. Empty means none.
	SiteValues string
	// ClientSecret names a Secret of type kubernetes.io/tls in Namespace with the certificate that the agent shows to
	// registries and the hub. Empty means none.
	ClientSecret string
	// EnrollToken is a token to enroll with, which goes into a Secret. Empty makes none. The agent finds it at
	// EnrollTokenPath, which is absolute.
	EnrollToken     []byte
	EnrollTokenPath string
}

// enrollName is the name of the Secret with a token to enroll with.
const enrollName = "wherry-agent-enroll"

// Agent returns the manifests of an agent, as YAML in the order in which they can be applied.
func Agent(opts AgentOptions) ([]byte, error) {
	opts.Namespace = cmp.Or(opts.Namespace, DefaultNamespace)
	disk := filesys.MakeFsInMemory()
	if err := copyBase(disk); err != nil {
		return nil, err
	}
	const overlay = "/overlay"
	k := types.Kustomization{
		TypeMeta:   types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources:  []string{"../agent"},
		Namespace:  opts.Namespace,
		Images:     []types.Image{image(opts.Image)},
		Patches:    patches(opts),
		Components: components(opts),
	}
	if opts.ServePort != 0 {
		k.Resources = append(k.Resources, "service.yaml")
		if err := disk.WriteFile(path.Join(overlay, "service.yaml"), []byte(service(opts.ServePort))); err != nil {
			return nil, err
		}
	}
	generated := types.ConfigMapArgs{}
	generated.Name = agentName
	for name, data := range opts.Files {
		generated.FileSources = append(generated.FileSources, name)
		if err := disk.WriteFile(path.Join(overlay, name), data); err != nil {
			return nil, err
		}
	}
	k.ConfigMapGenerator = []types.ConfigMapArgs{generated}
	if len(opts.EnrollToken) > 0 {
		secret := types.SecretArgs{}
		file := path.Base(opts.EnrollTokenPath)
		secret.Name, secret.FileSources = enrollName, []string{file}
		k.SecretGenerator = []types.SecretArgs{secret}
		if err := disk.WriteFile(path.Join(overlay, file), opts.EnrollToken); err != nil {
			return nil, err
		}
	}
	data, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := disk.WriteFile(path.Join(overlay, "kustomization.yaml"), data); err != nil {
		return nil, err
	}
	manifests, err := build(disk, overlay)
	if err != nil || opts.SiteValues == "" {
		return manifests, err
	}
	return append(manifests, siteValuesRole(opts)...), nil
}

// siteValuesRole returns the Role by which the agent reads the site's own values, and its binding. They are not in the
// overlay, which would put them into the agent's namespace.
func siteValuesRole(opts AgentOptions) string {
	namespace, configMap, _ := strings.Cut(opts.SiteValues, "/")
	name := RoleName(opts.Namespace) + "-site-values"
	object := func(kind string) map[string]any {
		return map[string]any{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": map[string]any{
			"name": name, "namespace": namespace, "labels": map[string]any{"app.kubernetes.io/name": agentName},
		}}
	}
	role, binding := object("Role"), object("RoleBinding")
	role["rules"] = []any{map[string]any{
		"apiGroups": []any{""}, "resources": []any{"configmaps"}, "resourceNames": []any{configMap}, "verbs": []any{"get"},
	}}
	binding["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
	binding["subjects"] = []any{map[string]any{"kind": "ServiceAccount", "name": AgentAccount, "namespace": opts.Namespace}}
	return "---\n" + text(role) + "---\n" + text(binding)
}

func copyBase(disk filesys.FileSystem) error {
	return fs.WalkDir(base, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := base.ReadFile(name)
		if err != nil {
			return err
		}
		return disk.WriteFile("/"+name, data)
	})
}

func build(disk filesys.FileSystem, dir string) ([]byte, error) {
	opts := krusty.MakeDefaultOptions()
	opts.Reorder = krusty.ReorderOptionLegacy // namespaces first
	objects, err := krusty.MakeKustomizer(opts).Run(disk, dir)
	if err != nil {
		return nil, fmt.Errorf("build the agent's manifests: %w", err)
	}
	return objects.AsYaml()
}

// reference splits an image's reference as registries do: a colon in front of a slash is a port's.
var reference = lazyregexp.New(`^(.*?)(?::([^/:@]+))?(?:@(.+))?$`)

func image(ref string) types.Image {
	m := reference.FindStringSubmatch(ref)
	return types.Image{Name: agentName, NewName: m[1], NewTag: m[2], Digest: m[3]}
}

func components(opts AgentOptions) []string {
	if opts.HostPath == "" {
		return nil
	}
	return []string{"../agent/host-path"}
}

// patches returns the changes to the base beside its ConfigMap, image and namespace.
func patches(opts AgentOptions) (all []types.Patch) {
	if opts.ClusterName != "" {
		env := map[string]any{"name": "WHERRY_CLUSTER_NAME", "value": opts.ClusterName, "valueFrom": nil}
		all = append(all, deployment(map[string]any{"containers": []any{map[string]any{"name": "agent", "env": []any{env}}}}))
	}
	if opts.HostPath != "" {
		state := map[string]any{"name": "state", "hostPath": map[string]any{"path": opts.HostPath}}
		all = append(all, deployment(map[string]any{"volumes": []any{state}}))
	}
	if opts.VetoFile != "" {
		all = append(all, deployment(nodeFolder(path.Dir(opts.VetoFile))), privileged())
	}
	if opts.ServePort != 0 {
		all = append(all, deployment(endpoint(opts)))
	}
	if opts.ClientSecret != "" {
		all = append(all, deployment(clientCertificate(opts.ClientSecret)))
	}
	if len(opts.EnrollToken) > 0 {
		// Optional, so that the Secret can be deleted once it has been used.
		volume := map[string]any{"name": "enroll", "secret": map[string]any{"secretName": enrollName, "optional": true}}
		mount := map[string]any{"name": "enroll", "mountPath": path.Dir(opts.EnrollTokenPath), "readOnly": true}
		all = append(all, deployment(map[string]any{
			"volumes":    []any{volume},
			"containers": []any{map[string]any{"name": "agent", "volumeMounts": []any{mount}}},
		}))
	}
	switch name := RoleName(opts.Namespace); {
	case opts.NoRole:
		all = append(all, remove("ClusterRole"), remove("ClusterRoleBinding"))
	case name != agentName:
		all = append(all, rename("ClusterRole", name, "/metadata/name"), rename("ClusterRoleBinding", name, "/metadata/name", "/roleRef/name"))
	}
	return all
}

// service is the Service of the agent's endpoint. Engines may ask while the agent, in its first pass, is not ready yet.
func service(port int) string {
	return text(map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": agentName, "namespace": DefaultNamespace},
		"spec": map[string]any{
			"selector":                 map[string]any{"app.kubernetes.io/name": agentName},
			"publishNotReadyAddresses": true,
			"ports":                    []any{map[string]any{"name": "registry", "port": port, "targetPort": "registry"}},
		},
	})
}

// endpoint opens the port of the endpoint, and names the Service as its host.
func endpoint(opts AgentOptions) map[string]any {
	url := cmp.Or(opts.ServeURL, fmt.Sprintf("https://%s.%s.svc:%d", agentName, opts.Namespace, opts.ServePort))
	return map[string]any{"containers": []any{map[string]any{
		"name":  "agent",
		"env":   []any{map[string]any{"name": "WHERRY_SERVE_URL", "value": url}},
		"ports": []any{map[string]any{"name": "registry", "containerPort": opts.ServePort}},
	}}}
}

// clientCertificate mounts the Secret with the agent's certificate. The pod does not start before the Secret exists.
func clientCertificate(secret string) map[string]any {
	const name, folder = "client", "/etc/wherry-client"
	return map[string]any{
		"containers": []any{map[string]any{
			"name": "agent",
			"env": []any{
				map[string]any{"name": "WHERRY_TLS_CERT", "value": folder + "/tls.crt"},
				map[string]any{"name": "WHERRY_TLS_KEY", "value": folder + "/tls.key"},
			},
			"volumeMounts": []any{map[string]any{"name": name, "mountPath": folder, "readOnly": true}},
		}},
		"volumes": []any{map[string]any{"name": name, "secret": map[string]any{"secretName": secret}}},
	}
}

// nodeFolder mounts a folder of the node into the agent's pod.
func nodeFolder(folder string) map[string]any {
	const name = "veto"
	return map[string]any{
		"containers": []any{map[string]any{
			"name": "agent", "volumeMounts": []any{map[string]any{"name": name, "mountPath": folder, "readOnly": true}},
		}},
		"volumes": []any{map[string]any{"name": name, "hostPath": map[string]any{"path": folder, "type": "DirectoryOrCreate"}}},
	}
}

// privileged lets pods of the namespace mount folders of the node.
func privileged() types.Patch {
	return types.Patch{Patch: text(map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": DefaultNamespace, "labels": map[string]any{
			"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "privileged",
		}},
	})}
}

// RoleName is the name of the roles of an agent in a namespace.
func RoleName(namespace string) string {
	if namespace == DefaultNamespace {
		return agentName
	}
	return agentName + "-" + namespace
}

func remove(kind string) types.Patch {
	return types.Patch{Patch: text(map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": agentName}, "$patch": "delete",
	})}
}

// deployment changes the specification of the agent's pod, by a strategic merge.
func deployment(pod map[string]any) types.Patch {
	return types.Patch{Patch: text(map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": agentName, "namespace": DefaultNamespace},
		"spec": map[string]any{"template": map[string]any{"spec": pod}},
	})}
}

func rename(kind, name string, paths ...string) types.Patch {
	var changes []map[string]any
	for _, p := range paths {
		changes = append(changes, map[string]any{"op": "replace", "path": p, "value": name})
	}
	return types.Patch{
		Patch:   text(changes),
		Target:  &types.Selector{ResId: resid.ResId{Gvk: resid.Gvk{Kind: kind}}},
		Options: &types.PatchArgs{AllowNameChange: true},
	}
}

func text(patch any) string {
	data, err := yaml.Marshal(patch)
	if err != nil {
		panic(err) // maps, lists and strings
	}
	return string(data)
}
