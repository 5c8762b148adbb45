// Package platformtest writes a large platform for benchmarks; see [Write].
package platformtest

import (
	"fmt"
	"os"
	"path/filepath"
)

// The numbers of ConfigMaps: 200, of 5 keys each.
const (
	commonMaps   = 2
	regionMaps   = 80
	purposeMaps  = 60
	workloadMaps = 58
)

const common = `
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: arc-flux}
spec:
  type: reconciler
  manifests:
    - |
      apiVersion: source.toolkit.fluxcd.io/v1
      kind: GitRepository
      metadata:
        name: "{{ .DeploymentTargetName}}"
        namespace: flux-system
      spec:
        interval: 30s
        url: "{{ .Manifests.repo}}"
        ref:
          branch: "{{ .Manifests.branch}}"
    - |
      apiVersion: kustomize.toolkit.fluxcd.io/v1
      kind: Kustomization
      metadata:
        name: "{{ .DeploymentTargetName}}"
        namespace: flux-system
      spec:
        interval: 30s
        targetNamespace: "{{ .Namespace}}"
        sourceRef:
          kind: GitRepository
          name: "{{ .DeploymentTargetName}}"
        path: "{{ .Manifests.path}}"
        prune: true
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: default}
spec:
  type: namespace
  manifests:
    - |
      apiVersion: v1
      kind: Namespace
      metadata:
        name: "{{ .Namespace}}"
        labels:
          environment: "{{ .Environment}}"
          workspace: "{{ .Workspace}}"
          workload: "{{ .Workload}}"
          deploymentTarget: "{{ .DeploymentTargetName}}"
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: configmap}
spec:
  type: config
  manifests:
    - |
      apiVersion: v1
      kind: ConfigMap
      metadata:
        name: platform-config
        namespace: {{ .Namespace}}
      data:
      {{ stringify .ConfigData | indent 2}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
spec:
  deploymentTargetSelector: {labelSelector: {matchLabels: {tier: edge, fleet: main}}}
  clusterTypeSelector: {labelSelector: {matchLabels: {kind: line, fleet: main}}}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ConfigSchema
metadata: {name: ports}
spec:
  schema: '{"type": "object", "required": ["PORT_0"], "properties": {"PORT_0": {"type": "integer"}, "NAME_0": {"type": "string"}, "URL_0": {"type": "string"}, "ON_0": {"type": "boolean"}}}'
`

// Write writes the environment dev of a platform of size × size assignments to the folder dir, a file for each object: size
// cluster types and size targets, all selected by one policy; 200 ConfigMaps of 5 keys (one of them a list of maps) of which
// 4 apply to each assignment; the three Templates of Kalypso's own platform; one schema.
func Write(dir string, size int) error {
	files := map[string]string{"common.yaml": common}
	for i := range size {
		files[fmt.Sprintf("types/%d.yaml", i)] = fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: type-%d, labels: {kind: line, fleet: main, region: region-%d}}
spec: {reconciler: arc-flux, namespaceService: default, configType: configmap}
`, i, i%regionMaps)
		files[workloadFile(i)] = workload(i, "dev")
	}
	for kind, n := range map[string]int{"common": commonMaps, "region": regionMaps, "purpose": purposeMaps, "group": workloadMaps} {
		for i := range n {
			files[configFile(kind, i)] = config(kind, i, fmt.Sprintf("%s %d", kind, i))
		}
	}
	for name, content := range files {
		if err := write(dir, name, content); err != nil {
			return err
		}
	}
	return nil
}

// ChangeRegion changes a value of the ConfigMap of one region, which applies to all assignments of up to four cluster types.
func ChangeRegion(dir, value string) error {
	return write(dir, configFile("region", 7), config("region", 7, value))
}

// ChangeGroup changes a value of the ConfigMap of one group of workloads, which applies to five or six assignments of each
// cluster type.
func ChangeGroup(dir, value string) error {
	return write(dir, configFile("group", 7), config("group", 7, value))
}

// ChangeWorkload changes one target, which is assigned to each cluster type.
func ChangeWorkload(dir, branch string) error {
	return write(dir, workloadFile(7), workload(7, branch))
}

func write(dir, name, content string) error {
	name = filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(content), 0o600)
}

func workloadFile(i int) string { return fmt.Sprintf("workloads/%d.yaml", i) }

func workload(i int, branch string) string {
	return fmt.Sprintf(`apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: work-%d}
spec:
  deploymentTargets:
    - name: t%d
      labels: {tier: edge, fleet: main, purpose: purpose-%d, group: group-%d}
      environment: dev
      manifests: {repo: "https://example.com/apps/work-%d", branch: %s, path: ./t%d}
`, i, i, i%purposeMaps, i%workloadMaps, i, branch, i)
}

func configFile(kind string, i int) string { return fmt.Sprintf("config/%s-%d.yaml", kind, i) }

// config is a ConfigMap for assignments with a label of that kind, or for all of them.
func config(kind string, i int, name string) string {
	condition := fmt.Sprintf(", %s: %s-%d", kind, kind, i)
	if kind == "common" {
		condition = ""
	}
	return fmt.Sprintf(`apiVersion: v1
kind: ConfigMap
metadata: {name: %s-%d, labels: {platform-config: "true"%s}}
data:
  NAME_%d: %s
  PORT_%d: "%d"
  URL_%d: https://example.com/%s/%d
  ON_%d: "true"
  LIST: |
    - name: %s
      value: %d
`, kind, i, condition, i, name, i, 8000+i, i, kind, i, i, kind, i)
}
