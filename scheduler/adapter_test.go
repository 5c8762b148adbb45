package scheduler

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func TestTheAdapterIsInferredFromTheRenderedKinds(t *testing.T) {
	const flux, argo = "apiVersion: kustomize.toolkit.fluxcd.io/v1beta2\nkind: Kustomization\n", "apiVersion: argoproj.io/v1alpha1\nkind: Application\n"
	for name, c := range map[string]struct{ file, adapter string }{
		"nothing":                         {"", "kubernetes"},
		"plain objects":                   {"apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  apiVersion: source.toolkit.fluxcd.io/v1\n", "kubernetes"},
		"Flux":                            {flux, "flux"},
		"Flux's Helm":                     {"kind: HelmRelease\napiVersion: \"helm.toolkit.fluxcd.io/v2\" # why\n", "flux"},
		"Flux beside plain objects":       {"apiVersion: v1\nkind: ConfigMap\n---\n" + flux, "flux"},
		"Argo CD":                         {argo, "argo"},
		"a workflow is not Argo CD":       {"apiVersion: argoproj.io/v1alpha1\nkind: Workflow\n", "kubernetes"},
		"Argo CD with a Flux object":      {argo + "---\n" + flux, "flux"},
		"a playbook":                      {"---\n- hosts: localhost\n  tasks: []\n", "ansible"},
		"a playbook with names first":     {"---\n- name: install\n  hosts: localhost\n", "ansible"},
		"a playbook of playbooks":         {"- import_playbook: other.yml\n", "ansible"},
		"any other list":                  {"- a\n- b\n", "kubernetes"},
		"a Zarf package":                  {"kind: ZarfPackageConfig\nmetadata:\n  name: x\n", "zarf"},
		"a prebuilt Zarf package":         {"apiVersion: wherry.dev/v1alpha1\nkind: ZarfPackage\nspec: {package: x}\n", "zarf"},
		"JSON":                            {`{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application"}`, "argo"},
		"flow style after a plain object": {"apiVersion: v1\nkind: A\n---\n{apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository}\n", "flux"},
		"an object on the marker's line":  {"--- {apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository}\n", "flux"},
		"quoted keys":                     {"\"apiVersion\": source.toolkit.fluxcd.io/v1\n\"kind\": GitRepository\n", "flux"},
		"not YAML at all":                 {"{{{\n", "kubernetes"},
		"a group that only ends alike":    {"apiVersion: notfluxcd.io/v1\nkind: X\n", "kubernetes"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.adapter, inferAdapter([]byte(c.file))) })
	}
}

func TestAnAnnotationChoosesTheAdapter(t *testing.T) {
	for name, c := range map[string]struct{ onType, onWorkload, adapter string }{
		"none":                   {"", "", "kubernetes"},
		"the cluster type's":     {"wherry.dev/adapter: directory", "", "directory"},
		"the workload's wins":    {"wherry.dev/adapter: directory", "wherry.dev/adapter: zarf", "zarf"},
		"the target's wins":      {"wherry.dev/adapter: directory", "wherry.dev/adapter: zarf, t1.wherry.dev/adapter: flux", "flux"},
		"another target's is no": {"", "t2.wherry.dev/adapter: flux", "kubernetes"},
	} {
		t.Run(name, func(t *testing.T) {
			result := render(t, annotate(basics, "edge", c.onType), annotate(oneTarget, "app", c.onWorkload))
			require.Equal(t, c.adapter, only(t, result).Adapter)
		})
	}
	require.Equal(t, `platform.yaml:25: annotation wherry.dev/adapter: unknown adapter "fluks" (did you mean "flux"?)`,
		failure(t, render(t, annotate(basics, "edge", "wherry.dev/adapter: fluks"), oneTarget)))
	require.Contains(t, failure(t, render(t, basics, annotate(oneTarget, "app", "t1.wherry.dev/adapter: salt"))),
		`app.yaml:3: annotation t1.wherry.dev/adapter: unknown adapter "salt" (known: ansible, argo, directory, flux, kubernetes, zarf)`)
}

func TestDidYouMean(t *testing.T) {
	known := []string{"reconciler", "namespaceService", "configType"}
	for word, hint := range map[string]string{
		"reconcilr": `did you mean "reconciler"?`, "Reconciler": `did you mean "reconciler"?`, "erconciler": `did you mean "reconciler"?`,
		"namespace": "", "x": "", "": "", "configtype": `did you mean "configType"?`, strings.Repeat("reconciler", 99): "",
	} {
		require.Equal(t, hint, finding.DidYouMean(word, known), word)
	}
	require.Equal(t, `did you mean "configmap"?`, finding.DidYouMean("config-map", []string{"configMap", "configmap", "configMAP"}))
}
