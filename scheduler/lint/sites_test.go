package lint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/scheduler"
)

func TestSiteValues(t *testing.T) {
	const (
		declared = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: factory, labels: {wherry.dev/site-values: \"true\"}}\ndata:\n  schema: |\n    properties:\n      dns: {type: string, maxLength: 20}\n      port: {type: integer, default: 443}\n"
		one      = "  clusterType: edge\n  uid: 4be1c9\n  reporting: none\n"
		named    = "metadata: {name: edge, annotations: {wherry.dev/site-values: factory},"
	)
	with := func(annotation, text string) string {
		return strings.NewReplacer("name: app,", "name: app, annotations: {"+annotation+"},").Replace(oneTarget) + text
	}
	for _, tc := range []struct {
		name               string
		platform, workload string
		want               []string
	}{
		{"a good one", named + declared + clusterYAML("a", one+"  values: {dns: a.example.com}\n"), with("wherry.dev/uses-site-values: dns", ""), nil},
		{"a declaration that nobody names", declared, oneTarget, []string{`W1905 d.yaml:2 the site values "factory" are named by no ClusterType`}},
		{"a declaration with a mistake", named + strings.Replace(declared, "maxLength", "maxLenght", 1), oneTarget, []string{`E1901 d.yaml:8 site values "factory": dns: maxLenght: the keyword is not supported`}},
		{"a default that is a secret", named + strings.Replace(declared, "port: {type: integer, default: 443}", "password: {type: string, default: hunter22}", 1), oneTarget, []string{`W1906 d.yaml:9 the default of site value password of "factory" looks like a secret`}},
		{"a cluster with a value that is too long", named + declared + clusterYAML("a", one+"  values:\n    port: 1\n    dns: 0123456789-0123456789\n"), oneTarget, []string{`E1902 d.yaml:20 Cluster "a": site value dns: it has 21 characters, at most 20 are permitted`}},
		{"a cluster with a secret", named + declared + clusterYAML("a", one+"  values: {dns: \"https://ann:hunter22@x\"}\n"), oneTarget, []string{`E1902`, `W1906 d.yaml:18 site value dns of Cluster "a" looks like a secret`}},
		{"a cluster of a type that declares none", clusterYAML("a", one+"  values: {dns: x}\n"), oneTarget, []string{`E1902 d.yaml:2 Cluster "a" has site values, and ClusterType "edge" declares none`}},
		{"a name that is misspelt", "metadata: {name: edge, annotations: {wherry.dev/site-values: factry}," + declared, oneTarget, []string{`W1905`, `E1903 p.yaml:28 annotation wherry.dev/site-values: there is no declaration of site values "factry"`}},
		{"a key that is misspelt", named + declared, with("wherry.dev/uses-site-values: dsn", ""), []string{`E1903 app.yaml:3 edge/app-t1: annotation wherry.dev/uses-site-values: the site values "factory" of cluster type "edge" have no key dsn`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			platform := sound
			extra := tc.platform
			if head, rest, ok := strings.Cut(tc.platform, "---\n"); ok && strings.HasPrefix(head, "metadata") {
				platform, extra = strings.Replace(sound, "metadata: {name: edge,", head, 1), "---\n"+rest
			}
			m := scheduler.NewModel("dev")
			require.NoError(t, load(m, "", "p.yaml", platform))
			require.NoError(t, load(m, "reg", "app.yaml", tc.workload))
			require.NoError(t, load(m, "", "d.yaml", extra))
			report, err := Run(t.Context(), m, Options{})
			require.NoError(t, err)
			var got []string
			for _, f := range report.Findings {
				got = append(got, f.Code+" "+f.Position.String()+" "+f.Message)
			}
			require.Len(t, got, len(tc.want), strings.Join(got, "\n"))
			for i, want := range tc.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}

func TestReferencesToSiteValuesThatTheWorkloadDoesNotList(t *testing.T) {
	const declared = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: factory, labels: {wherry.dev/site-values: \"true\"}}\ndata:\n  schema: |\n    properties:\n      dns: {type: string}\n      port: {type: integer}\n"
	object := templateYAML("rec", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: web\n  # ${site.comment}\nspec:\n  host: shop.${site.dns}\n  text: $${site.port} ${other.port}\n  items: [&a \"${site.port}\", *a]")
	for _, tc := range []struct {
		name, edge, annotation string
		want                   []string
	}{
		{"both are listed", "annotations: {wherry.dev/site-values: factory, wherry.dev/adapter: kubernetes},", `wherry.dev/uses-site-values: "dns, port"`, nil},
		{"one is listed", "annotations: {wherry.dev/site-values: factory, wherry.dev/adapter: kubernetes},", "wherry.dev/uses-site-values: dns", []string{`E1904 app.yaml:3 edge/app-t1: reconciler.yaml, document 1: Ingress web refers to ${site.port}, and the workload does not list port in wherry.dev/uses-site-values`}},
		{"none is listed", "annotations: {wherry.dev/site-values: factory, wherry.dev/adapter: kubernetes},", "", []string{`E1904 app.yaml:6 edge/app-t1: reconciler.yaml, document 1: Ingress web refers to ${site.dns}`, `E1904 app.yaml:6`}},
		{"the type declares none, so that this is something else", "annotations: {wherry.dev/adapter: kubernetes},", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := scheduler.NewModel("dev")
			rec := sound[strings.Index(sound, "kind: Template\nmetadata: {name: rec"):]
			rec = rec[:strings.Index(rec, "---")]
			platform := strings.Replace(sound, "apiVersion: scheduler.kalypso.io/v1alpha1\n"+rec+"---\n", "", 1)
			platform = strings.Replace(platform, "metadata: {name: edge,", "metadata: {name: edge, "+tc.edge, 1) + "---\n" + object
			if strings.Contains(tc.edge, "site-values") {
				platform += declared
			}
			require.NoError(t, load(m, "", "p.yaml", platform))
			require.NoError(t, load(m, "reg", "app.yaml", strings.NewReplacer("name: app,", "name: app, annotations: {"+tc.annotation+"},").Replace(oneTarget)))
			report, err := Run(t.Context(), m, Options{})
			require.NoError(t, err)
			var got []string
			for _, f := range report.Findings {
				got = append(got, f.Code+" "+f.Position.String()+" "+f.Message)
			}
			require.Len(t, got, len(tc.want), strings.Join(got, "\n"))
			for i, want := range tc.want {
				require.Contains(t, got[i], want)
			}
		})
	}
}
