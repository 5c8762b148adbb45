package scheduler

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/examples"
	"github.com/wherry-dev/wherry/scheduler/finding"
)

var update = flag.Bool("update", false, "rewrite the golden files under testdata")

// exampleSources lists what an example's environment is made of. Each example has the folders main
// and workloads, and one for each environment.
func exampleSources(t *testing.T, name, environment string) []Source {
	t.Helper()
	folder := func(elements ...string) fs.FS {
		sub, err := fs.Sub(examples.FS, path.Join(append([]string{name}, elements...)...))
		require.NoError(t, err)
		return sub
	}
	sources := []Source{
		{FS: folder(environment), Name: environment},
		{FS: folder("main"), Name: "main", Base: "main"},
	}
	teams, err := fs.ReadDir(folder("workloads"), ".")
	require.NoError(t, err)
	for _, team := range teams {
		sources = append(sources, Source{FS: folder("workloads", team.Name()), Name: team.Name(), Registration: team.Name()})
	}
	return sources
}

func renderSources(t *testing.T, environment string, sources []Source, opts Options) *Result {
	t.Helper()
	m := NewModel(environment)
	for _, src := range sources {
		require.NoError(t, m.Load(context.Background(), src))
	}
	result, err := m.Render(context.Background(), opts)
	require.NoError(t, err)
	return result
}

// eachExample runs check for every environment of every example.
func eachExample(t *testing.T, check func(t *testing.T, name, environment string)) {
	names, err := fs.ReadDir(examples.FS, ".")
	require.NoError(t, err)
	for _, name := range names {
		folders, err := fs.ReadDir(examples.FS, name.Name())
		require.NoError(t, err)
		for _, folder := range folders {
			if environment := folder.Name(); folder.IsDir() && environment != "main" && environment != "workloads" {
				t.Run(name.Name()+"/"+environment, func(t *testing.T) { check(t, name.Name(), environment) })
			}
		}
	}
}

func TestExamplesRenderAsTheirGoldenFilesSay(t *testing.T) {
	eachExample(t, func(t *testing.T, name, environment string) {
		result := renderSources(t, environment, exampleSources(t, name, environment), Options{})
		require.Empty(t, result.Warnings)
		requireFailures(t, result, nil)
		golden := filepath.Join("testdata", "examples", name, environment)
		if *update {
			writeTree(t, golden, Tree(result))
		}
		require.Equal(t, readTree(t, golden), treeOf(result))
	})
}

func TestAnExampleIsTheSameWithAllItsFilesInOneFolder(t *testing.T) {
	eachExample(t, func(t *testing.T, name, environment string) {
		sources := exampleSources(t, name, environment)
		expected := renderSources(t, environment, sources, Options{})
		for i := range sources {
			shuffled, n := fstest.MapFS{}, 0
			require.NoError(t, fs.WalkDir(sources[i].FS, ".", func(p string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				data, err := fs.ReadFile(sources[i].FS, p)
				n++ // backwards, so that the order of files is another one
				shuffled[fmt.Sprintf("%03d%s", 999-n, path.Ext(p))] = &fstest.MapFile{Data: data}
				return err
			}))
			sources[i].FS = shuffled
		}
		require.Equal(t, treeOf(expected), treeOf(renderSources(t, environment, sources, Options{})))
	})
}

func TestTheNumberOfCoresChangesNothing(t *testing.T) {
	eachExample(t, func(t *testing.T, name, environment string) {
		sources := exampleSources(t, name, environment)
		alone := renderSources(t, environment, sources, Options{Parallel: 1})
		require.Equal(t, alone, renderSources(t, environment, sources, Options{Parallel: 8}))
	})
}

func TestAnExamplesAssignmentsSayWhatTheyWereMadeOf(t *testing.T) {
	result := renderSources(t, "dev", exampleSources(t, "coffee", "dev"), Options{})
	require.Equal(t, "coffee", result.Platform)
	require.Equal(t, "8c1f4e0b7d2a96f35e08c7b1a4d96e2f50b3c8d7", result.BaseCommit)
	adapters := map[string]string{}
	for _, ct := range result.ClusterTypes {
		for _, a := range ct.Assignments {
			adapters[ct.Name+"/"+a.Name] = a.Adapter
		}
	}
	require.Equal(t, map[string]string{
		"roastery/profiles-load": "flux", "warehouse/profiles-load": "argo", "shop/till-test": "kubernetes", "shop/menu-test": "kubernetes",
	}, adapters)

	shop := result.ClusterTypes[2]
	require.Equal(t, "shop", shop.Name)
	require.Equal(t, map[string]string{"wherry.dev/valid-for": "30d"}, shop.Annotations)
	till := shop.Assignments[1]
	require.Equal(t, []string{"storefront", "tills-everywhere-small"}, till.Policies)
	require.Equal(t, "storefront-team", till.Workspace)
	require.Equal(t, "dev-shop-till-test", till.Namespace)
	require.Equal(t, []ConfigSource{
		{Name: "a-common", Position: finding.Position{File: "main/configs/common.yaml", Line: 2}},
		{Name: "c-till", Position: finding.Position{File: "main/configs/common.yaml", Line: 35}},
		{Name: "d-dev", Position: finding.Position{File: "dev/configs/dev.yaml", Line: 1}},
		{Name: "azure-app-config", Position: finding.Position{File: "main/configs/common.yaml", Line: 47}},
	}, till.Config)
	require.NotEmpty(t, till.ConfigDigest)
}

// writeTree replaces a golden tree.
func writeTree(t *testing.T, root string, files []File) {
	t.Helper()
	require.NoError(t, os.RemoveAll(root))
	for _, f := range files {
		name := filepath.Join(root, filepath.FromSlash(f.Path))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, f.Data, 0o644))
	}
}
