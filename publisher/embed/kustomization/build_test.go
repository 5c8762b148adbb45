package kustomization_test

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"github.com/wherry-dev/wherry/publisher/embed/kustomization"
)

func TestABuildGivesTheBytesOfKustomizeOnTheDisk(t *testing.T) {
	cases, err := filepath.Glob("testdata/build/*.txtar")
	require.NoError(t, err)
	require.Len(t, cases, 17)
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			dir := strings.TrimSpace(string(archive.Comment))
			disk, source := t.TempDir(), fstest.MapFS{}
			for _, f := range archive.Files {
				to := filepath.Join(disk, filepath.FromSlash(f.Name))
				require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
				require.NoError(t, os.WriteFile(to, f.Data, 0o644))
				source[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			want := onDisk(t, filepath.Join(disk, dir))
			got, err := kustomization.Build(source, dir, kustomization.Options{})
			require.NoError(t, err)
			require.Equal(t, want, string(got.YAML))
			require.Equal(t, strings.Count("\n"+want, "\n---\n")+1, got.Objects)
			again, err := kustomization.Build(os.DirFS(disk), dir, kustomization.Options{})
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
}

func onDisk(t *testing.T, dir string) string {
	t.Helper()
	openapi.ResetOpenAPI()
	defer openapi.ResetOpenAPI()
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsNone
	built, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	require.NoError(t, err)
	data, err := built.AsYaml()
	require.NoError(t, err)
	return string(data)
}

func tree(files map[string]string) fstest.MapFS {
	source := fstest.MapFS{}
	for name, text := range files {
		source[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return source
}

const object = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\n"

func TestWhatABuildRefuses(t *testing.T) {
	alarm := withAlarm(t)
	commit := strings.Repeat("a", 40)
	for _, c := range []struct {
		name, text, want string
		more             map[string]string
	}{
		{"a base above the repository", "resources: [../../other]", "app/kustomization.yaml: resources: ../../other lies outside of the repository", nil},
		{"a file above the repository", "configMapGenerator: [{name: a, files: [../../../etc/passwd]}]", "configMapGenerator: ../../../etc/passwd lies outside of the repository", nil},
		{"an absolute path", "resources: [/etc/passwd]", "resources: /etc/passwd is an absolute path", nil},
		{"a file that is not there", "resources: [gone.yaml]", "app/kustomization.yaml: resources: gone.yaml is not in the repository", nil},
		{"a folder without a kustomization", "resources: [below]", "the folder has no kustomization.yaml", map[string]string{"app/below/x.yaml": object}},
		{"a base over https", "resources: ['https://github.com/a/b?ref=main']", `https://github.com/a/b?ref=main: "main" is not a full commit`, nil},
		{"a file over https", "resources: ['https://example.com/a.yaml']", "a URL is taken only where it names a commit of a git repository", nil},
		{"a patch over https", "patches: [{path: 'https://example.com/a.yaml'}]", "patches: https://example.com/a.yaml: a URL is taken only", nil},
		{"a base over ssh", "resources: ['git@github.com:a/b']", "git@github.com:a/b: a URL is taken only", nil},
		{"a base of GitHub without a scheme", "resources: [github.com/a/b]", "github.com/a/b: a URL is taken only", nil},
		{"a base on the disk by file URL", "resources: ['file:///etc?ref=" + commit + "']", `the scheme "file" is not known`, nil},
		{"a URL with a password", "resources: ['https://me:secret@github.com/a/b?ref=" + commit + "']", "the URL has credentials", nil},
		{"a commit without a way to fetch it", "resources: ['https://github.com/a/b?ref=" + commit + "']", "is in another repository, and none are fetched here", nil},
		{"a schema over http", "openapi: {path: 'http://example.com/s.json'}", "openapi: http://example.com/s.json: a URL is taken only", nil},
		{"charts", "helmCharts: [{name: a, repo: 'https://example.com'}]", "helmCharts: kustomize would have the program helm inflate charts", nil},
		{"a plugin that runs a program", "generators: [p.yaml]", "Exec of example.com/v1 is a plugin that runs a program or a container", map[string]string{"app/p.yaml": "apiVersion: example.com/v1\nkind: Exec\nmetadata: {name: x}\n"}},
		{"a chart by a plugin", "generators: [p.yaml]", "HelmChartInflationGenerator would have the program helm inflate a chart", map[string]string{"app/p.yaml": "apiVersion: builtin\nkind: HelmChartInflationGenerator\nmetadata: {name: x}\n"}},
		{"a URL in a plugin", "transformers: [p.yaml]", "transformers: http://example.com/p: a URL is taken only", map[string]string{"app/p.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: x}\nPATH: http://example.com/p\n"}},
		{
			"a URL in a plugin that a kustomization makes", "transformers: [../p]", "transformers: http://example.com/p: a URL is taken only",
			map[string]string{"p/kustomization.yaml": "resources: [t.yaml]\npatches: [{target: {kind: PatchTransformer}, patch: '[{\"op\": \"replace\", \"path\": \"/path\", \"value\": \"http://example.com/p\"}]'}]", "p/t.yaml": "apiVersion: builtin\nkind: PatchTransformer\nmetadata: {name: x}\npath: a.yaml\n"},
		},
		{"a base that names itself", "resources: [../b]", "b names itself, over other folders or not", map[string]string{"b/kustomization.yaml": "resources: [../c]", "c/kustomization.yaml": "resources: [../b]"}},
		{"two kustomizations in one folder", "namePrefix: a", "the folder has a second kustomization, kustomization.yaml", map[string]string{"app/kustomization.yml": "namePrefix: b"}},
		{"an unknown field", "resorces: [a.yaml]", `app/kustomization.yaml: json: unknown field "resorces"`, nil},
		{"nothing", "{}", "app/kustomization.yaml: the kustomization is empty", nil},
		{"no YAML in a base", "resources: [../base]", "kustomize: in 'base': accumulating resources from './one.yaml': ", map[string]string{"base/kustomization.yaml": "resources: [one.yaml]", "base/one.yaml": "["}},
		{"no YAML", "resources: [one.txt]", "kustomize: ", map[string]string{"app/one.txt": "{{"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"app/kustomization.yaml": c.text, "app/one.yaml": object}
			maps.Copy(files, c.more)
			_, err := kustomization.Build(tree(files), "app", kustomization.Options{})
			require.ErrorContains(t, err, c.want)
			alarm.check(t)
			require.NotContains(t, err.Error(), "/source")
			require.NotContains(t, err.Error(), "secret@")
		})
	}
}

func TestABuildIsBounded(t *testing.T) {
	doubling := map[string]string{"b0/kustomization.yaml": "resources: [one.yaml]", "b0/one.yaml": object}
	for i := range 40 {
		doubling[fmt.Sprintf("b%d/kustomization.yaml", i+1)] = fmt.Sprintf("resources: [../l%d, ../r%d]", i, i)
		doubling[fmt.Sprintf("l%d/kustomization.yaml", i)] = fmt.Sprintf("namePrefix: l\nresources: [../b%d]", i)
		doubling[fmt.Sprintf("r%d/kustomization.yaml", i)] = fmt.Sprintf("namePrefix: r\nresources: [../b%d]", i)
	}
	large := strings.Repeat("x", 1000)
	for _, c := range []struct {
		name, dir string
		files     map[string]string
		opts      kustomization.Options
	}{
		{"bases that double forty times", "b20", doubling, kustomization.Options{}},
		{"many bytes", ".", map[string]string{"kustomization.yaml": "configMapGenerator: [{name: a, files: [x]}]", "x": large}, kustomization.Options{MaxReadBytes: 900}},
		{"two hundred megabytes", ".", map[string]string{"kustomization.yaml": "configMapGenerator: [{name: a, files: [" + strings.Repeat("x=x, ", 200) + "]}]", "x": strings.Repeat("x", 1_000_000)}, kustomization.Options{}},
		{"many files", ".", map[string]string{"kustomization.yaml": "configMapGenerator: [{name: a, files: [x, y=x, z=x]}]", "x": large}, kustomization.Options{MaxFiles: 4}},
		{"many bytes of output", ".", map[string]string{"kustomization.yaml": "configMapGenerator: [{name: a, files: [x, y=x, z=x]}]", "x": large}, kustomization.Options{MaxBytes: 2000}},
		{"many objects", ".", map[string]string{"kustomization.yaml": "configMapGenerator: [{name: a, files: [x]}, {name: b, files: [x]}]", "x": large}, kustomization.Options{MaxObjects: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := kustomization.Build(tree(c.files), c.dir, c.opts)
			require.ErrorIs(t, err, kustomization.ErrTooLarge)
		})
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(outside, "secret.yaml"), []byte(object), 0o600))
	require.NoError(t, os.Symlink(filepath.Join(outside, "secret.yaml"), filepath.Join(dir, "one.yaml")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "folder")))
	for _, name := range []string{"one.yaml", "folder/secret.yaml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte("resources: ["+name+"]"), 0o600))
		_, err := kustomization.Build(os.DirFS(dir), ".", kustomization.Options{})
		require.ErrorContains(t, err, "is a symbolic link")
	}
}

func TestAPinnedBaseIsFetchedByTheCaller(t *testing.T) {
	commit := strings.Repeat("0f", 20)
	var asked []string
	opts := kustomization.Options{Remote: func(url, at string) (fs.FS, error) {
		asked = append(asked, url+" "+at)
		return tree(map[string]string{
			"deploy/kustomization.yaml": "resources: [one.yaml, ../more]", "deploy/one.yaml": object,
			"more/kustomization.yaml": "configMapGenerator: [{name: two, literals: [a=b]}]",
		}), nil
	}}
	for _, c := range []struct{ base, want string }{
		{"https://example.com/org/repo//deploy?ref=", "https://example.com/org/repo"},
		{"https://example.com/org/repo/deploy?ref=", "https://example.com/org/repo"},
		{"https://example.com/deep/org/repo.git/deploy?timeout=90&ref=", "https://example.com/deep/org/repo.git"},
		{"git@example.com:org/repo//deploy?ref=", "ssh://git@example.com/org/repo"},
		{"ssh://git@example.com/org/repo.git//deploy?ref=", "ssh://git@example.com/org/repo.git"},
		{"github.com/org/repo/deploy?ref=", "https://github.com/org/repo"},
		{"git::https://dev.example.com/org/project/_git/repo/deploy?version=", "https://dev.example.com/org/project/_git/repo"},
	} {
		asked = nil
		source := tree(map[string]string{"app/kustomization.yaml": "namePrefix: my-\nresources: ['" + c.base + commit + "']"})
		built, err := kustomization.Build(source, "app", opts)
		require.NoError(t, err, c.base)
		require.Equal(t, []string{c.want + " " + commit}, asked)
		require.Equal(t, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: my-one\n---\napiVersion: v1\ndata:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: my-two-4k6mdkd765\n", regexpHash(string(built.YAML)))
		require.Equal(t, []string{"app/kustomization.yaml"}, built.Read)
	}
	for _, base := range []string{"https://example.com/org/repo//../deploy?ref=", "https://example.com/org/repo//gone?ref="} {
		source := tree(map[string]string{"app/kustomization.yaml": "resources: ['" + base + commit + "']"})
		_, err := kustomization.Build(source, "app", opts)
		require.Error(t, err)
	}
}

// regexpHash replaces the hash in the name of what is generated, which is kustomize's own matter.
func regexpHash(text string) string {
	const name = "my-two-"
	i := strings.Index(text, name) + len(name)
	return text[:i] + "4k6mdkd765" + text[i+10:]
}

func TestAnOverlayChangesTheKustomizationItself(t *testing.T) {
	source := tree(map[string]string{
		"app/kustomization.yaml":       "resources: [one.yaml]\nnamePrefix: old-\nimages: [{name: nginx, newTag: '1'}, {name: redis, newTag: '1'}]",
		"app/one.yaml":                 "apiVersion: v1\nkind: Pod\nmetadata: {name: one}\nspec: {containers: [{name: a, image: nginx}, {name: b, image: redis}]}",
		"app/patch.yaml":               "apiVersion: v1\nkind: Pod\nmetadata: {name: one, labels: {patched: 'yes'}}",
		"component/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncommonAnnotations: {component: 'yes'}",
	})
	overlay, err := kustomization.ArgoOverlay([]byte(`{
		"namePrefix": "new-", "nameSuffix": "-x", "namespace": "shop", "images": ["nginx=example.com/nginx:2", "busybox@sha256:1"],
		"patches": [{"path": "patch.yaml"}],
		"components": ["../component"], "commonLabels": {"team": "a"}, "commonAnnotations": {"by": "argo"}}`))
	require.NoError(t, err)
	built, err := kustomization.Build(source, "app", kustomization.Options{Overlay: overlay})
	require.NoError(t, err)
	require.Equal(t, `apiVersion: v1
kind: Pod
metadata:
  annotations:
    by: argo
    component: "yes"
  labels:
    patched: "yes"
    team: a
  name: new-one-x
  namespace: shop
spec:
  containers:
  - image: example.com/nginx:2
    name: a
  - image: redis:1
    name: b
`, string(built.YAML))
	require.Equal(t, []string{"app/kustomization.yaml", "app/one.yaml", "app/patch.yaml", "component/kustomization.yaml"}, built.Read)

	_, err = kustomization.ArgoOverlay([]byte(`{"version": "v5"}`))
	require.ErrorContains(t, err, `unknown field "version"`)
	_, err = kustomization.ArgoOverlay([]byte(`{"images": ["nginx"]}`))
	require.ErrorContains(t, err, "is not an image")
}

func TestManyPlainReplacementsAreBuilt(t *testing.T) {
	text := "resources: [one.yaml, two.yaml]\nreplacements:\n" + strings.Repeat("- {source: {kind: ConfigMap, fieldPath: data.host}, targets: [{select: {kind: Secret}, fieldPaths: [stringData.host], options: {create: true}}]}\n", 60)
	built, err := kustomization.Build(tree(map[string]string{
		"kustomization.yaml": text, "one.yaml": object + "data: {host: example.com}\n", "two.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: two}\nstringData: {a: b}\n",
	}), ".", kustomization.Options{})
	require.NoError(t, err)
	require.Contains(t, string(built.YAML), "stringData:\n  a: b\n  host: example.com\n")
}

func TestAKustomizationOfNothingBuildsNothing(t *testing.T) {
	built, err := kustomization.Build(tree(map[string]string{"kustomization.yaml": "resources: []\n"}), ".", kustomization.Options{})
	require.NoError(t, err)
	require.Zero(t, built.Objects)
}

func TestAFolderWithoutAKustomizationIsAnError(t *testing.T) {
	_, err := kustomization.Build(tree(map[string]string{"app/one.yaml": object}), "app", kustomization.Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestBuildsAfterEachOther(t *testing.T) {
	for i := range 8 {
		text := "resources: [one.yaml]\nnamePrefix: p-"
		if i%2 == 0 {
			text += "\nopenapi: {version: v1.21.2}"
		}
		built, err := kustomization.Build(tree(map[string]string{"kustomization.yaml": text, "one.yaml": object}), ".", kustomization.Options{})
		require.NoError(t, err)
		require.Contains(t, string(built.YAML), "name: p-one")
	}
}
