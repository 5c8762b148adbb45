package artifacts

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/scheduler"
)

func TestAnEngineFollowsTheSourceThatIsEmbedded(t *testing.T) {
	t.Parallel()
	const (
		flux  = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: "
		helm  = "---\napiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: h}\nspec: "
		argo  = "apiVersion: argoproj.io/v1alpha1\nkind: Application"
		apply = "---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: k}\nspec: {path: ./x, sourceRef: {kind: KIND, name: s}}\n"
	)
	git := map[string]string{"repo": "https://git.example/team/app", "branch": "main", "path": "./x"}
	oci := map[string]string{"repo": "oci://registry.example/team/app", "tag": "1"}
	chart := map[string]string{"repo": "https://charts.example/stable", "chart": "db", "version": "1.x"}
	for name, c := range map[string]struct {
		manifests map[string]string
		own       string
		rendered  string
		want      bool
	}{
		"a Kustomization":                     {git, "", flux + "GitRepository\nmetadata: {name: s}\nspec: {url: https://git.example/team/app.git}\n" + strings.Replace(apply, "KIND", "GitRepository", 1), true},
		"in the other order, with an anchor":  {git, "", strings.Replace(strings.Replace(apply, "KIND", "GitRepository", 1), "---\n", "", 1) + "---\n" + flux + "GitRepository\nmetadata: {name: s}\nspec: {url: &u https://git.example/team/app, x: *u}\n", true},
		"of another repository":               {git, "", flux + "GitRepository\nmetadata: {name: s}\nspec: {url: https://git.example/team/else}\n" + strings.Replace(apply, "KIND", "GitRepository", 1), false},
		"of a source that is elsewhere":       {git, "", strings.Replace(apply, "KIND", "GitRepository", 1), false},
		"a source alone":                      {git, "", flux + "GitRepository\nmetadata: {name: s}\nspec: {url: https://git.example/team/app}\n", false},
		"no object":                           {git, "", "apiVersion: v1\nkind: ConfigMap\n", false},
		"the Workload's own repository":       {map[string]string{"path": "./x"}, "https://git.example/team/app", flux + "GitRepository\nmetadata: {name: s}\nspec: {url: https://git.example/team/app}\n" + strings.Replace(apply, "KIND", "GitRepository", 1), true},
		"of the platform's own":               {map[string]string{"path": "./x"}, "", flux + "GitRepository\nmetadata: {name: s}\nspec: {url: https://git.example/team/app}\n" + strings.Replace(apply, "KIND", "GitRepository", 1), false},
		"an artifact of a registry":           {oci, "", flux + "OCIRepository\nmetadata: {name: s}\nspec: {url: oci://registry.example/team/app}\n" + strings.Replace(apply, "KIND", "OCIRepository", 1), true},
		"a HelmRelease":                       {chart, "", flux + "HelmRepository\nmetadata: {name: s}\nspec: {url: https://charts.example/stable}\n" + helm + "{chart: {spec: {chart: db, sourceRef: {kind: HelmRepository, name: s}}}}\n", true},
		"a HelmRelease of another chart":      {chart, "", flux + "HelmRepository\nmetadata: {name: s}\nspec: {url: https://charts.example/stable}\n" + helm + "{chart: {spec: {chart: mq, sourceRef: {kind: HelmRepository, name: s}}}}\n", false},
		"a HelmRelease of a chart in git":     {git, "", flux + "GitRepository\nmetadata: {name: s}\nspec: {url: https://git.example/team/app}\n" + helm + "{chart: {spec: {chart: ./x, sourceRef: {kind: GitRepository, name: s}}}}\n", true},
		"a HelmRelease of a registry's chart": {oci, "", flux + "OCIRepository\nmetadata: {name: s}\nspec: {url: oci://registry.example/team/app}\n" + helm + "{chartRef: {kind: OCIRepository, name: s}}\n", true},
		"an Application":                      {git, "", argo + "\nspec: {source: {repoURL: https://git.example/team/app, path: x}}\n", true},
		"an Application of several":           {git, "", argo + "\nspec: {sources: [{repoURL: https://git.example/a}, {repoURL: https://git.example/team/app, path: x}]}\n", true},
		"an Application of another":           {git, "", argo + "\nspec: {source: {repoURL: https://git.example/a}}\n", false},
		"an Application of a chart":           {chart, "", argo + "\nspec: {source: {repoURL: https://charts.example/stable, chart: db}}\n", true},
		"an ApplicationSet":                   {git, "", argo + "Set\nspec: {template: {spec: {source: {repoURL: https://git.example/team/app}}}}\n", true},
	} {
		a := scheduler.Assignment{
			Name: "app-x", Settings: scheduler.Settings{Delivery: scheduler.Embedded}, Manifests: c.manifests,
			Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte(c.rendered)}, {Path: bundle.ManifestsDir + "/cm.yaml", Data: []byte("kind: ConfigMap\n")}},
		}
		require.Equal(t, c.want, Followed(&a, c.own), name)
		a.Delivery = ""
		require.False(t, Followed(&a, c.own), name)
	}
}
