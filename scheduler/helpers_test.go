package scheduler

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// basics is a platform that lacks only configuration and workloads.
const basics = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: rec}
spec:
  manifests:
    - "name: {{ .DeploymentTargetName }}\nworkspace: {{ .Workspace }}\n"
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: ns}
spec: {manifests: ["{{ .Namespace }}"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: Template
metadata: {name: cfg}
spec: {manifests: ["{{ toYaml .ConfigData }}"]}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: WorkloadRegistration
metadata: {name: reg}
spec: {workspace: team}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: ClusterType
metadata: {name: edge, labels: {region: north}}
spec: {reconciler: rec, namespaceService: ns, configType: cfg}
---
apiVersion: scheduler.kalypso.io/v1alpha1
kind: SchedulingPolicy
metadata: {name: all}
---
`

// oneTarget is an app team's file with one deployment target, app-t1.
const oneTarget = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: app, labels: {type: application}}
spec:
  deploymentTargets:
    - name: t1
      labels: {purpose: x}
      environment: dev
      manifests: {repo: "https://example.com/app", branch: dev, path: ./t1}
`

// configMapYAML is a ConfigMap without conditions.
func configMapYAML(name, data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + ", labels: {platform-config: \"true\"}}\ndata:\n" + data + "\n---\n"
}

// templateYAML is a Template of one text.
func templateYAML(name, text string) string {
	return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Template\nmetadata: {name: " + name + "}\nspec:\n  manifests:\n    - |\n      " +
		strings.ReplaceAll(text, "\n", "\n      ") + "\n---\n"
}

func load(m *Model, registration, file, content string) error {
	return m.Load(context.Background(), Source{FS: fstest.MapFS{file: {Data: []byte(content)}}, Registration: registration})
}

// render renders environment dev of a platform and what app team reg gives.
func render(t *testing.T, platform, workloads string) *Result {
	t.Helper()
	m := NewModel("dev")
	require.NoError(t, load(m, "", "platform.yaml", platform))
	require.NoError(t, load(m, "reg", "app.yaml", workloads))
	result, err := m.Render(context.Background(), Options{})
	require.NoError(t, err)
	return result
}

// only returns the one assignment that there must be.
func only(t *testing.T, r *Result) Assignment {
	t.Helper()
	requireFailures(t, r, nil)
	require.Len(t, r.ClusterTypes, 1)
	require.Len(t, r.ClusterTypes[0].Assignments, 1)
	return r.ClusterTypes[0].Assignments[0]
}

// failure returns what the one failure that there must be says.
func failure(t *testing.T, r *Result) string {
	t.Helper()
	require.Len(t, r.ClusterTypes, 1)
	require.Len(t, r.ClusterTypes[0].Failures, 1, "assignments: %v", r.ClusterTypes[0].Assignments)
	return r.ClusterTypes[0].Failures[0].Err.Error()
}

// content is a file of an assignment, empty where there is none.
func content(a Assignment, path string) string {
	for _, f := range a.Files {
		if f.Path == path {
			return string(f.Data)
		}
	}
	return ""
}

// composeAlone composes layers that belong to no composer.
func composeAlone(layers []layer) *config { return compose(layers, newWriter(layers)) }

func sha256Of(s string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(s))) }

// secondApp is a Workload with one target on all types, and these annotations.
func secondApp(name, annotations string) string {
	return "---\n" + strings.NewReplacer("name: app,", "name: "+name+", annotations: {"+annotations+"},").Replace(oneTarget)
}
