package artifacts

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// A workspace's repositories bind every kind of source, and nobody is asked for one that they do not allow.
func TestPinAsksForNothingThatAWorkspaceMayNotUse(t *testing.T) {
	const flux = "apiVersion: source.toolkit.fluxcd.io/v1\nkind: "
	for name, c := range map[string]struct{ file, place string }{
		"a git repository":   {fluxGit("https://git.example/x", "branch: main"), "https://git.example/x"},
		"an artifact":        {flux + "OCIRepository\nmetadata: {name: o}\nspec: {url: oci://registry.example/org/app}\n", "oci://registry.example/org/app"},
		"a chart repository": {"apiVersion: argoproj.io/v1alpha1\nkind: Application\nspec: {source: {repoURL: 'https://charts.example/x', chart: db, targetRevision: 1.x}}\n", "https://charts.example/x"},
		"a chart of a registry": {
			flux + "HelmRepository\nmetadata: {name: r}\nspec: {type: oci, url: 'oci://registry.example/org'}\n---\n" + flux + "HelmChart\nspec: {chart: app, version: 1.x, sourceRef: {kind: HelmRepository, name: r}}\n",
			"oci://registry.example/org/app",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := rendered(c.file)
			a.Registration, a.Workspace = "reg", "team"
			result := &scheduler.Result{ClusterTypes: []scheduler.ClusterTypeResult{{
				Name: "edge", Annotations: map[string]string{scheduler.PinAnnotation: scheduler.PinCommit}, Assignments: []scheduler.Assignment{a},
			}}}
			resolver := sources.NewResolver(sources.Options{})
			defer resolver.Close()
			var asked []string
			refused := errors.New("not for this team")
			require.NoError(t, Pin(t.Context(), result, resolver, func(registration, workspace, repository string) error {
				asked = append(asked, registration+" "+workspace+" "+repository)
				return refused
			}))
			require.Contains(t, asked, "reg team "+c.place)
			require.Len(t, result.ClusterTypes[0].Failures, 1)
			require.ErrorIs(t, result.ClusterTypes[0].Failures[0].Err, refused)
		})
	}
}
