//go:build e2e

package flux_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/reconcilers"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes"
	"github.com/wherry-dev/wherry/reconcilers/kubernetes/kubernetestest"
	"github.com/wherry-dev/wherry/reconcilers/reconcilertest"
)

func TestConformance(t *testing.T) {
	reconcilertest.Run(t, reconcilertest.Adapter{
		Name: "flux", On: "real source- and kustomize-controllers, with git, on a real API server", Start: newEngine,
	})
}

// engine is an Engine of reconcilertest.
type engine struct{ kubernetestest.Values }

func newEngine(t *testing.T) reconcilertest.Engine {
	s := newSite(t)
	return &engine{kubernetestest.Values{
		GitOps: s.GitOps, Commit: git.Commit, File: s.file, Kind: kinds["Kustomization"],
		Pinned: regexp.MustCompile(`branch: (\S+), commit: ([0-9a-f]+)`), Form: "$1@sha1:$2",
	}}
}

// file has Flux apply a commit of a branch.
func (s *site) file(branch, commit string) bundle.File {
	const text = `apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: $NAME-%s}
spec:
  interval: 10m
  url: $GIT/$NAME
  ref: {branch: %[1]s, commit: %[2]s}
  secretRef: {name: repo-secret}
---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: $NAME-%[1]s}
spec:
  interval: 10m
  retryInterval: 2s
  path: ./
  prune: true
  targetNamespace: $NAME
  sourceRef: {kind: GitRepository, name: $NAME-%[1]s}
`
	return bundle.File{Path: branch + ".yaml", Data: []byte(s.Fill(fmt.Sprintf(text, branch, commit)))}
}

// Writes names the generations of the assignment's objects and what their annotations say; the rest of them
// is Flux's.
func (e *engine) Writes(t *testing.T, assignment string) string {
	var found []string
	for _, kind := range []string{"Kustomization", "GitRepository"} {
		for _, o := range e.Own(t, kinds[kind]) {
			if o.GetLabels()[kubernetes.OwnerLabel] == assignment {
				found = append(found, fmt.Sprint(kind, o.GetName(), o.GetUID(), o.GetGeneration(), o.GetAnnotations()))
			}
		}
	}
	return strings.Join(found, "\n")
}

// Tamper points Flux at another commit.
func (e *engine) Tamper(t *testing.T, _, name, value string) {
	e.Merge(t, e.Object(t, kinds["GitRepository"], name), fmt.Sprintf(`{"spec":{"ref":{"commit":%q}}}`, e.Pin(t, name, value)))
	e.Arrives(t, name, value)
}

// Fail adds a commit that cannot be built.
func (e *engine) Fail(t *testing.T, a reconcilers.Assignment) (reason, words string) {
	e.AddFailing(t, a, "apiVersion: v1\nkind: ConfigMap\n")
	return "BuildFailed", "missing metadata.name"
}

// Stall stops Flux itself, so that its status stays as it was.
func (e *engine) Stall(t *testing.T, _ reconcilers.Assignment) (words string, finish func()) {
	resume, err := cluster.PauseFlux(namespace)
	require.NoError(t, err)
	return "GitRepository/" + namespace + "/" + e.Name, func() { require.NoError(t, resume()) }
}
