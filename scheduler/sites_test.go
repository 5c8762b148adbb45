package scheduler

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle/sitevalues"
)

// factoryValues declares site values.
const factoryValues = `apiVersion: v1
kind: ConfigMap
metadata: {name: factory, labels: {wherry.dev/site-values: "true"}}
data:
  schema: |
    required: [gateway.address]
    properties:
      dns: {type: string, siteMaySet: true}
      url: {type: string, default: "https://{{ .values.dns }}/"}
      gateway.address: {type: string, format: ipv4}
      port: {type: integer, maximum: 65535, default: 443}
---
`

// clusterYAML is a Cluster of type edge, with spec.values in flow style.
func clusterYAML(name, uid, values string) string {
	return fmt.Sprintf("apiVersion: wherry.dev/v1alpha1\nkind: Cluster\nmetadata: {name: %s}\nspec:\n  clusterType: edge\n  uid: %s\n  reporting: none\n  values: {%s}\n---\n", name, uid, values)
}

const (
	uidOne = "00000000-0000-4000-8000-000000000001"
	uidTwo = "00000000-0000-4000-8000-000000000002"
)

func TestSiteValuesOfAClusterType(t *testing.T) {
	platform := annotate(basics, "edge", "wherry.dev/site-values: factory") + factoryValues +
		clusterYAML("b", uidTwo, `gateway.address: 10.0.0.2, dns: "{{ .cluster.name }}.example.com", port: 8443`) +
		clusterYAML("a", uidOne, "gateway.address: 10.0.0.1")
	result := render(t, platform, annotate(oneTarget, "app", `wherry.dev/uses-site-values: "url, dns,cluster.name, url"`))
	require.Empty(t, result.Warnings)
	require.Equal(t, []string{"cluster.name", "dns", "url"}, only(t, result).SiteValues)
	sites := result.ClusterTypes[0].Sites
	require.True(t, sites.IsFinal())
	require.Equal(t, []string{"dns", "gateway.address", "port", "url"}, sites.Document.Keys())
	require.Equal(t, []sitevalues.Row{
		{UID: uidOne, Name: "a", Values: map[string]any{"gateway.address": "10.0.0.1"}},
		{UID: uidTwo, Name: "b", Values: map[string]any{"gateway.address": "10.0.0.2", "dns": "{{ .cluster.name }}.example.com", "port": int64(8443)}},
	}, sites.Rows)
}

func TestAClusterTypeWithoutSiteValuesHasNone(t *testing.T) {
	result := render(t, basics+factoryValues+clusterYAML("a", uidOne, ""), oneTarget)
	require.Nil(t, result.ClusterTypes[0].Sites)
	require.True(t, result.ClusterTypes[0].Sites.IsFinal())

	result = render(t, basics, annotate(oneTarget, "app", "t1.wherry.dev/uses-site-values: cluster.labels.zone"))
	require.Equal(t, []string{"cluster.labels.zone"}, only(t, result).SiteValues)
}

func TestAMistakeInOneClusterFailsNoOther(t *testing.T) {
	for name, c := range map[string]struct{ uid, values, want string }{
		"a value that is not allowed":          {uidTwo, "gateway.address: 10.0.0.256", `Cluster "b": site value gateway.address: it is not in the format ipv4`},
		"a number for a text":                  {uidTwo, "gateway.address: 10.0.0.2, dns: 1.10", `Cluster "b": site value dns: it must be a string, not a number: write it in quotes`},
		"a boolean of older YAML":              {uidTwo, "gateway.address: 10.0.0.2, dns: yes", `Cluster "b": site value dns: it must be a string, not true or false: write it in quotes`},
		"a list":                               {uidTwo, "gateway.address: [10.0.0.2]", `Cluster "b": site value gateway.address: it must be a single string`},
		"a key that is misspelt":               {uidTwo, "gateway.address: 10.0.0.2, prt: 1", `Cluster "b": site value prt: the cluster type declares no such key (did you mean "port"?)`},
		"a required key that nobody gives":     {uidTwo, "dns: b.example.com", `Cluster "b" has no value for gateway.address, which the site values "factory" require (add it below spec.values)`},
		"a template that refers to nothing":    {uidTwo, `gateway.address: 10.0.0.2, dns: "{{ .values.name }}"`, `Cluster "b": site value dns: it refers to name, which is not declared`},
		"a template that cannot be understood": {uidTwo, `gateway.address: 10.0.0.2, dns: "{{ range }}"`, `Cluster "b": site value dns: unsupported template`},
		"a cycle":                              {uidTwo, `gateway.address: 10.0.0.2, dns: "{{ .values.url }}"`, `Cluster "b": site value dns: it refers to itself: dns → url → dns`},
		"no uid":                               {`""`, "gateway.address: 10.0.0.2", `Cluster "b" has site values and no valid spec.uid, by which its agent finds them ("wherry-agent status -o json" prints it)`},
	} {
		t.Run(name, func(t *testing.T) {
			platform := annotate(basics, "edge", "wherry.dev/site-values: factory") + factoryValues +
				clusterYAML("a", uidOne, "gateway.address: 10.0.0.1") + clusterYAML("b", c.uid, c.values)
			result := render(t, platform, annotate(oneTarget, "app", "wherry.dev/uses-site-values: dns"))
			require.Equal(t, []string{"dns"}, only(t, result).SiteValues)
			sites := result.ClusterTypes[0].Sites
			require.False(t, sites.IsFinal())
			require.Equal(t, []sitevalues.Row{{UID: uidOne, Name: "a", Values: map[string]any{"gateway.address": "10.0.0.1"}}}, sites.Rows)
			require.Len(t, sites.Failures, 1)
			require.Equal(t, "b", sites.Failures[0].Cluster)
			require.Regexp(t, `^platform\.yaml:\d+: `, sites.Failures[0].Err.Error())
			require.Contains(t, sites.Failures[0].Err.Error(), c.want)
		})
	}
}

func TestClustersWithOneUIDBothFail(t *testing.T) {
	platform := annotate(basics, "edge", "wherry.dev/site-values: factory") + factoryValues +
		clusterYAML("a", uidOne, "gateway.address: 10.0.0.1") + clusterYAML("b", uidOne, "gateway.address: 10.0.0.2")
	sites := render(t, platform, oneTarget).ClusterTypes[0].Sites
	require.Empty(t, sites.Rows)
	require.Len(t, sites.Failures, 2)
	require.ErrorContains(t, sites.Failures[0].Err, `Cluster "a" has the uid of Cluster "b", at platform.yaml:`)
}

func TestADeclarationThatCannotBeUsedFailsWhatUsesItAlone(t *testing.T) {
	const two = `apiVersion: scheduler.kalypso.io/v1alpha1
kind: Workload
metadata: {name: app, annotations: {t1.wherry.dev/uses-site-values: dns, t3.wherry.dev/uses-site-values: cluster.name}}
spec:
  deploymentTargets:
    - {name: t1, environment: dev}
    - {name: t2, environment: dev}
    - {name: t3, environment: dev}
`
	for name, c := range map[string]struct{ annotation, declaration, want string }{
		"it does not exist": {"wherry.dev/site-values: factry", factoryValues, `there is no declaration of site values "factry" (did you mean "factory"?)`},
		"it has a mistake":  {"wherry.dev/site-values: factory", strings.Replace(factoryValues, "maximum", "maximun", 1), `port: maximun: the keyword is not supported (did you mean "maximum"?)`},
	} {
		t.Run(name, func(t *testing.T) {
			result := render(t, annotate(basics, "edge", c.annotation)+c.declaration, two)
			edge := result.ClusterTypes[0]
			require.ErrorContains(t, edge.Sites.Err, c.want)
			require.Len(t, edge.Assignments, 2)
			require.Len(t, edge.Failures, 1)
			require.Equal(t, "app-t1", edge.Failures[0].Name)
			require.Equal(t, BadAnnotation, edge.Failures[0].Reason)
			require.ErrorContains(t, edge.Failures[0].Err, "app.yaml:3: annotation t1.wherry.dev/uses-site-values: dns is a site value, and the declaration of those of cluster type \"edge\" cannot be used")
			require.ErrorContains(t, edge.Failures[0].Err, c.want)
		})
	}
}

func TestAKeyThatIsNotDeclaredFailsTheAssignmentThatUsesIt(t *testing.T) {
	declared := annotate(basics, "edge", "wherry.dev/site-values: factory") + factoryValues
	for name, c := range map[string]struct{ platform, keys, want string }{
		"a key that is misspelt": {declared, "gateway.adress", `the site values "factory" of cluster type "edge" have no key gateway.adress (did you mean "gateway.address"?)`},
		"no declaration":         {basics, "dns", `cluster type "edge" has no site values, and dns is one (give the cluster type the annotation wherry.dev/site-values)`},
		"an empty key":           {declared, "dns,,port", "it has an empty key (write keys with commas between them, such as: dns, gateway.address)"},
		"two labels of one name": {declared, "cluster.labels.a-b, cluster.labels.a.b", "cluster.labels.a-b and cluster.labels.a.b are one variable, cluster_labels_a_b"},
	} {
		t.Run(name, func(t *testing.T) {
			result := render(t, c.platform, annotate(oneTarget, "app", `wherry.dev/uses-site-values: "`+c.keys+`"`))
			require.Empty(t, result.ClusterTypes[0].Assignments)
			require.Len(t, result.ClusterTypes[0].Failures, 1)
			require.ErrorContains(t, result.ClusterTypes[0].Failures[0].Err, c.want)
		})
	}
}

func TestADeclarationIsNoConfiguration(t *testing.T) {
	m := NewModel("dev")
	err := load(m, "", "platform.yaml", strings.Replace(factoryValues, `wherry.dev/site-values: "true"`, `wherry.dev/site-values: "true", platform-config: "true"`, 1))
	require.ErrorContains(t, err, `ConfigMap "factory" has the labels platform-config and wherry.dev/site-values`)

	result := render(t, basics+factoryValues, oneTarget)
	require.Empty(t, only(t, result).Config)
}

// BenchmarkSiteValues checks the site values of 4,000 clusters of one type.
func BenchmarkSiteValues(b *testing.B) {
	var platform strings.Builder
	platform.WriteString(annotate(basics, "edge", "wherry.dev/site-values: factory") + factoryValues)
	for i := range 4000 {
		platform.WriteString(clusterYAML(fmt.Sprintf("plant-%d", i), fmt.Sprintf("uid-%d", i), fmt.Sprintf("gateway.address: 10.0.%d.%d, dns: plant-%d.example.com", i/250, i%250, i)))
	}
	m := NewModel("dev")
	require.NoError(b, load(m, "", "platform.yaml", platform.String()))
	r, err := newRenderer(m, Options{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		s := r.sites(m.objects.ClusterTypes["edge"])
		require.Len(b, s.Rows, 4000)
	}
}
