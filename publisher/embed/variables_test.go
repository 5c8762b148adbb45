package embed

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/artifacts"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

func TestVariablesThatFluxDoesNotKnowAreNamed(t *testing.T) {
	const manifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: one}
data: {a: "${color}", b: "${site.dns} ${0} $HOME $${ESCAPED} ${size:=1} ${shape:-x}", c: "${API_TOKEN} ${API_TOKEN}"}
---
kind: ConfigMap
metadata: {name: two, annotations: {kustomize.toolkit.fluxcd.io/substitute: disabled}}
data: {a: "${OTHER}"}
---
data: {a: "${LAST}"}
`
	for _, c := range []struct {
		name, postBuild string
		want            []string
	}{
		{"variables", ", postBuild: {substitute: {color: red}}", []string{
			`W1711 manifests/one.yaml:4: ${API_TOKEN} is not among the variables of the Kustomization "app": Flux 2.9 fails, and earlier versions leave the text empty`,
			`W1711 manifests/one.yaml:10: ${LAST} is not among the variables of the Kustomization "app": Flux 2.9 fails, and earlier versions leave the text empty`,
		}},
		{"variables of the cluster", ", postBuild: {substitute: {color: red, LAST: ''}, substituteFrom: [{kind: Secret, name: tokens}]}", []string{
			`N1712 manifests/one.yaml:4: ${API_TOKEN} has to be set by what spec.postBuild.substituteFrom of the Kustomization "app" names, such as the Secret tokens: Flux 2.9 fails otherwise`,
		}},
		{"none", "", nil},
		{"the variables of another source", ", sourceRef: {kind: GitRepository, name: other}, postBuild: {substitute: {}}", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := "apiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: app}\nspec: {url: https://git.example/team/app}\n---\napiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: app}\nspec: {path: ./"
			if c.name != "the variables of another source" {
				text += ", sourceRef: {kind: GitRepository, name: app}"
			}
			a := scheduler.Assignment{Files: []scheduler.File{{Path: "reconciler.yaml", Data: []byte(text + c.postBuild + "}\n")}}}
			all, err := objectsIn(&a)
			require.NoError(t, err)
			q := request{origin: artifacts.Origin{Source: sources.Source{Kind: "git", URL: "https://git.example/team/app"}}}
			var got []string
			if variables := all.variables(q); variables != nil {
				for _, f := range variables.unset([]scheduler.File{{Path: "manifests/one.yaml", Data: []byte(manifest)}}) {
					got = append(got, f.Code+" "+finding.Finding{Position: f.Position, Message: f.Message}.String())
				}
			}
			require.Equal(t, c.want, got)
		})
	}
}
