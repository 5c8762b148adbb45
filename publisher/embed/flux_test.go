package embed

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/gittest"
	"github.com/wherry-dev/wherry/publisher/rendercache"
	"github.com/wherry-dev/wherry/scheduler"
)

// fluxTarget is an assignment of a folder of a git repository, whose GitRepository has these fields too.
func fluxTarget(url, path string, fields ...string) scheduler.Assignment {
	a := embedded("t1", map[string]string{"repo": url, "branch": "main", "path": path})
	a.Adapter = "flux"
	a.Files[1].Data = []byte(`apiVersion: source.toolkit.fluxcd.io/v1
kind: GitRepository
metadata: {name: app, namespace: flux-system}
spec:
  interval: 1m
  url: ` + url + `
  ref: {branch: main}
` + strings.Join(fields, "") + `---
apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: app, namespace: flux-system}
spec: {interval: 1m, path: ./` + path + `, prune: true, sourceRef: {kind: GitRepository, name: app}}
`)
	return a
}

func TestFilesThatFluxLeavesOutAreNotEmbedded(t *testing.T) {
	files := map[string]string{
		".sourceignore":            "# not for clusters\n*-draft.yaml\n/app/sub/\n",
		"app/.sourceignore":        "/near.yaml\n!kept-draft.yaml\n",
		"app/one.yaml":             configMap,
		"app/near.yaml":            configMap,
		"app/a-draft.yaml":         configMap,
		"app/kept-draft.yaml":      configMap,
		"app/cloudbuild.yaml":      configMap,
		"app/sub/two.yaml":         configMap,
		"app/deep/near.yaml":       configMap,
		"built/logo.png":           "x",
		"built/kustomization.yaml": "resources: [one.yaml]\nconfigMapGenerator: [{name: logo, files: [logo.png]}]\n",
		"built/one.yaml":           configMap,
		"none/a-draft.yaml":        configMap,
	}
	repo := filepath.Join(t.TempDir(), "app.git")
	gittest.CommitFiles(t, repo, "main", files)
	url := gittest.Serve(t, gittest.FullServer(repo))
	disk, err := rendercache.Open(t.TempDir(), rendercache.Options{})
	require.NoError(t, err)
	names := func(a scheduler.Assignment) (all []string) {
		for path := range filesOf(only(t, publish(t, Options{Cache: disk}, a))) {
			all = append(all, strings.TrimPrefix(path, "manifests/"))
		}
		slices.Sort(all)
		return all
	}
	require.Equal(t, []string{"deep/near.yaml", "kept-draft.yaml", "one.yaml"}, names(fluxTarget(url, "app")))
	require.Equal(t, []string{"sub/two.yaml"}, names(fluxTarget(url, "app", "  ignore: |\n    /*\n    !/app/sub/two.yaml\n")), "a file below a folder that is left out")
	require.Equal(t, []string{"cloudbuild.yaml", "deep/near.yaml", "kept-draft.yaml", "one.yaml"}, names(fluxTarget(url, "app", "  ignore: '!cloudbuild.yaml'\n")))

	other := fluxTarget(url, "app")
	other.Adapter = "kubernetes"
	require.Len(t, names(other), 7, "no Flux, no .sourceignore")

	require.Contains(t, failureOf(t, publish(t, Options{}, fluxTarget(url, "none"))), `folder "none" has no manifests for Flux: .sourceignore files, spec.ignore of the source or Flux's defaults leave files out`)
	require.Contains(t, failureOf(t, publish(t, Options{}, fluxTarget(url, "built"))), "logo.png")
	require.Equal(t, []string{"manifests.yaml"}, names(fluxTarget(url, "built", "  ignore: '!*.png'\n")))

	files[".sourceignore"] = "one.yaml\n"
	gittest.CommitFiles(t, repo, "main", files)
	require.Equal(t, []string{"a-draft.yaml", "deep/near.yaml", "kept-draft.yaml", "sub/two.yaml"}, names(fluxTarget(url, "app")), "a cache knows files above the folder")
	files[".sourceignore"] = strings.Repeat("x\n", 10_000)
	gittest.CommitFiles(t, repo, "main", files)
	require.Contains(t, failureOf(t, publish(t, Options{Cache: disk}, fluxTarget(url, "app"))), ".sourceignore has more than 16384 bytes")
}

func TestANewSourceignoreCountsDespiteTheCache(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "app.git")
	files := map[string]string{"app/one.yaml": configMap, "app/two.yaml": configMap}
	gittest.CommitFiles(t, repo, "main", files)
	url := gittest.Serve(t, gittest.FullServer(repo))
	disk, err := rendercache.Open(t.TempDir(), rendercache.Options{})
	require.NoError(t, err)
	cache := &countingCache{Cache: disk}
	for range 2 {
		require.Len(t, filesOf(only(t, publish(t, Options{Cache: cache}, fluxTarget(url, "app")))), 2)
	}
	kept := cache.puts
	files["README.md"] = "text"
	gittest.CommitFiles(t, repo, "main", files)
	require.Len(t, filesOf(only(t, publish(t, Options{Cache: cache}, fluxTarget(url, "app")))), 2)
	require.Equal(t, kept, cache.puts, "other files do not count")
	files[".sourceignore"] = "two.yaml"
	gittest.CommitFiles(t, repo, "main", files)
	require.Len(t, filesOf(only(t, publish(t, Options{Cache: cache}, fluxTarget(url, "app")))), 1)
}

func TestFieldsOfFluxSourcesThatAreNotFollowedFail(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "app.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{"app/one.yaml": configMap})
	url := gittest.Serve(t, gittest.FullServer(repo))
	for fields, want := range map[string]string{
		"  include: [{repository: {name: other}}]\n":              `the GitRepository "app" has spec.include, which embedded delivery does not follow: put the files into one repository`,
		"  recurseSubmodules: true\n":                             "spec.recurseSubmodules",
		"  sparseCheckout: [docs]\n":                              `spec.sparseCheckout, which embedded delivery does not follow: add the folder "app" to it`,
		"  layerSelector: {mediaType: application/vnd.own.tar}\n": "spec.layerSelector",
		"---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: GitRepository\nmetadata: {name: app, namespace: other}\nspec: {ignore: x, url: '" + url + "'}\n": `the sources "app" and "app" are one repository and differ in spec.ignore`,
	} {
		require.Contains(t, failureOf(t, publish(t, Options{}, fluxTarget(url, "app", fields))), want, fields)
	}
	only(t, publish(t, Options{}, fluxTarget(url, "app", "  sparseCheckout: [./app/]\n  recurseSubmodules: false\n")))
}

func TestAChartOfAGitRepositoryIsTakenAsFluxTakesIt(t *testing.T) {
	repo := filepath.Join(t.TempDir(), "app.git")
	gittest.CommitFiles(t, repo, "main", map[string]string{
		"web/Chart.yaml": "apiVersion: v2\nname: web\nversion: 1.0.0\n", "web/templates/one.yaml": configMap, "web/templates/two.yaml": configMap,
	})
	url := gittest.Serve(t, gittest.FullServer(repo))
	a := fluxTarget(url, "web", "  ignore: two.yaml\n")
	a.Files[1].Data = append([]byte(strings.Split(string(a.Files[1].Data), "---\n")[0]), `---
apiVersion: helm.toolkit.fluxcd.io/v2
kind: HelmRelease
metadata: {name: web, namespace: flux-system}
spec: {interval: 1m, chart: {spec: {chart: ./web, sourceRef: {kind: GitRepository, name: app}}}}
`...)
	archive := filesOf(only(t, publish(t, Options{}, a)))["charts/web-1.0.0.tgz"]
	require.Equal(t, []string{"web/Chart.yaml", "web/templates/one.yaml"}, namesIn(t, archive))
}

// namesIn lists the files of a gzipped tar.
func namesIn(t *testing.T, archive string) (names []string) {
	zip, err := gzip.NewReader(strings.NewReader(archive))
	require.NoError(t, err)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		names = append(names, h.Name)
	}
}
