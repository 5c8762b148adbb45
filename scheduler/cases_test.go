package scheduler

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// kalypsoCase is a case.json of WHERRY_CASES.
type kalypsoCase struct {
	Environment string
	Sources     []struct {
		Dir               string
		FluxKustomization string
	}
}

// difference is what wherry does where it differs from Kalypso on purpose; see docs/kalypso.md.
type difference struct {
	why string
	// files replaces these files of the expected tree, or adds them.
	files map[string]string
	// failures maps type/target to a part of what its failure says.
	failures map[string]string
	// policies lists those that selected type/target.
	policies map[string][]string
}

const rendered = "name: app-t1\nns: %[1]s-edge-app-t1\nenv: %[1]s\nworkspace: team-a\nworkload: app\nct: edge\n"

// edgeFiles are the files of app-t1 on edge, as the probes' templates write them.
func edgeFiles(environment, config string) map[string]string {
	return map[string]string{
		"edge/README.md":                   ReadmeText,
		"edge/app-t1/namespace.yaml":       "kind: Namespace\nname: " + environment + "-edge-app-t1\n",
		"edge/app-t1/reconciler.yaml":      fmt.Sprintf(rendered, environment),
		"edge/app-t1/platform-config.yaml": config,
	}
}

func with(files map[string]string, path, content string) map[string]string {
	files[path] = content
	return files
}

var differences = map[string]difference{
	"duplicate-policies": {
		why:      "two policies selecting one pair give one assignment with both as reasons",
		files:    edgeFiles("dev", "data:\n  {}\n"),
		policies: map[string][]string{"edge/app-t1": {"a-policy", "b-policy"}},
	},
	"injection-env": {
		why:   "what an app team writes is never evaluated",
		files: map[string]string{"edge/app-t1/reconciler.yaml": fmt.Sprintf(rendered, "dev") + "path: {{ env \"ORACLE_SECRET\" }}\n"},
	},
	"hyphen-environment": {
		why:   "environments may have hyphens",
		files: edgeFiles("us-dev", "data:\n  {}\n"),
	},
	"schema-bool": {
		why:   "schema checks coerce by the schema's type",
		files: edgeFiles("dev", "data:\n  FLAG: \"true\"\n  PORT: \"80\"\n"),
	},
	"schema-labels": {
		why:      "one failing assignment fails alone",
		files:    with(edgeFiles("dev", "data:\n  PORT: \"80\"\n"), "core/README.md", ReadmeText),
		failures: map[string]string{"core/app-t1": "missing property 'PORT'"},
	},
}

func TestKalypsosCasesComeOutByteForByte(t *testing.T) {
	root := os.Getenv("WHERRY_CASES")
	if root == "" {
		t.Log("WHERRY_CASES is not set: Kalypso's cases are not compared")
		return
	}
	for _, kind := range []string{"cases", "probes"} {
		folders, err := filepath.Glob(filepath.Join(root, "kalypso", kind, "*"))
		require.NoError(t, err)
		require.NotEmpty(t, folders, "WHERRY_CASES holds no kalypso/%s", kind)
		for _, folder := range folders {
			t.Run(kind+"/"+filepath.Base(folder), func(t *testing.T) {
				t.Setenv("ORACLE_SECRET", "LEAKED")
				differs := differences[filepath.Base(folder)]
				result := renderCase(t, folder)
				expected := readTree(t, filepath.Join(folder, "expected", "tree"))
				maps.Copy(expected, differs.files)
				require.Equal(t, expected, treeOf(result), differs.why)
				requireFailures(t, result, differs.failures)
				for _, ct := range result.ClusterTypes {
					for _, a := range ct.Assignments {
						if policies, ok := differs.policies[ct.Name+"/"+a.Name]; ok {
							require.Equal(t, policies, a.Policies)
						}
					}
				}
			})
		}
	}
}

// requireFailures compares failures by type/target and by a part of the error.
func requireFailures(t *testing.T, r *Result, expected map[string]string) {
	t.Helper()
	found := map[string]string{}
	for _, ct := range r.ClusterTypes {
		for _, f := range ct.Failures {
			key := ct.Name + "/" + f.Name
			found[key] = f.Err.Error()
			if part := expected[key]; strings.Contains(found[key], part) {
				found[key] = part
			}
		}
	}
	if expected == nil {
		expected = map[string]string{}
	}
	require.Equal(t, expected, found)
}

func renderCase(t *testing.T, folder string) *Result {
	t.Helper()
	result, err := loadCase(t, folder).Render(context.Background(), Options{})
	require.NoError(t, err)
	return result
}

func loadCase(t *testing.T, folder string) *Model {
	t.Helper()
	var c kalypsoCase
	data, err := os.ReadFile(filepath.Join(folder, "case.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &c))
	m := NewModel(c.Environment)
	for _, s := range c.Sources {
		src := Source{FS: os.DirFS(filepath.Join(folder, s.Dir)), Name: s.Dir}
		if name, ok := strings.CutPrefix(s.FluxKustomization, c.Environment+"-"); ok {
			if strings.HasSuffix(name, "main") {
				src.Base = name
			} else {
				src.Registration = name
			}
		}
		require.NoError(t, m.Load(context.Background(), src))
	}
	return m
}

// treeOf is the tree as a map from path to content.
func treeOf(r *Result) map[string]string {
	files := map[string]string{}
	for _, f := range Tree(r) {
		files[f.Path] = string(f.Data)
	}
	return files
}

func readTree(t *testing.T, root string) map[string]string {
	t.Helper()
	files := map[string]string{}
	if _, err := os.Stat(root); err != nil {
		return files
	}
	fsys := os.DirFS(root)
	require.NoError(t, fs.WalkDir(fsys, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(fsys, path)
		files[path] = string(data)
		return err
	}))
	return files
}
