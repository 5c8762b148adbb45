package lint

import (
	"context"
	"strings"
	"testing/fstest"

	"github.com/wherry-dev/wherry/scheduler"
)

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

// secondApp is a Workload with one target on all types, and these annotations.
func secondApp(name, annotations string) string {
	return "---\n" + strings.NewReplacer("name: app,", "name: "+name+", annotations: {"+annotations+"},").Replace(oneTarget)
}

func load(m *scheduler.Model, registration, file, content string) error {
	return m.Load(context.Background(), scheduler.Source{FS: fstest.MapFS{file: {Data: []byte(content)}}, Registration: registration})
}

func policyYAML(name, targets, types string) string {
	return "apiVersion: scheduler.kalypso.io/v1alpha1\nkind: SchedulingPolicy\nmetadata: {name: " + name + "}\nspec:\n  deploymentTargetSelector: {" + targets + "}\n  clusterTypeSelector: {" + types + "}\n---\n"
}

func platformWith(workspaces string) string {
	return "apiVersion: wherry.dev/v1alpha1\nkind: Platform\nmetadata: {name: coffee}\nspec:\n  workspaces:\n" + workspaces
}

// bomb is a Workload whose targets are aliases of one another, 10 to the power of 6 schemas in all.
func bomb() string {
	var b strings.Builder
	b.WriteString("apiVersion: scheduler.kalypso.io/v1alpha1\nkind: Workload\nmetadata: {name: x}\nspec:\n  configSchemas: &s [" + strings.Repeat("a, ", 1100) + "a]\n  deploymentTargets:\n")
	b.WriteString("    - &t {name: t, configSchemas: *s}\n")
	b.WriteString(strings.Repeat("    - *t\n", 1100))
	return b.String()
}
