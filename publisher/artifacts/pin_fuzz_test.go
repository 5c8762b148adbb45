package artifacts

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/bundle"
	"github.com/wherry-dev/wherry/publisher/sources"
	"github.com/wherry-dev/wherry/scheduler"
)

// FuzzPin pins arbitrary output of a template. Pinning a second time changes nothing, and
// all listed artifacts then have a digest.
func FuzzPin(f *testing.F) {
	f.Add("apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: a/b:1 # x\n  - {image: 'c', name: \"é\"}\n")
	f.Add(fluxGit("https://example.com/app", "branch: dev") + "---\r\n" + fluxGit("https://example.com/b", "name: refs/heads/x"))
	f.Add("kind: List\nitems: [{apiVersion: argoproj.io/v1alpha1, kind: Application, spec: {sources: [{repoURL: https://a/b}, &x {repoURL: oci://c/d, targetRevision: >-\n e}, *x]}}]\n")
	f.Add("\ufeffapiVersion: source.toolkit.fluxcd.io/v1\nkind: OCIRepository\nspec: {url: oci://a/b, ref: !!map {? tag : &a \"v\\u0031\"}}\n")
	f.Add("apiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmChart\nspec:\n  version: |\n    1\n  chart: c\n  sourceRef: {kind: HelmRepository, name: r}\n")
	f.Fuzz(func(t *testing.T, file string) {
		a := rendered(file)
		if err := pinAll(&a); err != nil {
			return
		}
		for _, artifact := range Of([]scheduler.Assignment{a}) {
			require.False(t, artifact.Unresolved, "%+v\n%s", artifact, a.Files[1].Data)
		}
		again := a
		again.Pinned = nil
		require.NoError(t, pinAll(&again))
		require.Equal(t, string(a.Files[1].Data), string(again.Files[1].Data))
		require.Equal(t, strings.Count(file, "\n---"), bytes.Count(a.Files[1].Data, []byte("\n---")), "no document comes or goes")
	})
}

// pinAll pins an assignment whose sources all exist.
func pinAll(a *scheduler.Assignment) error {
	needs, err := needsOf(a)
	if err != nil {
		return err
	}
	p := &pinning{found: map[sources.Source]*sources.Resolution{}, contents: map[sourceFolder]folderContent{}}
	for _, n := range needs {
		found := &sources.Resolution{Revision: someDigest, Version: "1.2.3", Files: fstest.MapFS{}}
		if n.Kind == bundle.ArtifactGit {
			found.Revision = "0123456789abcdef0123456789abcdef01234567"
		}
		if n.Revision != "" {
			found.Revision = n.Revision
		}
		p.found[n.Source] = found
	}
	return p.assignment(a)
}
