package render

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	chartutil "helm.sh/helm/v4/pkg/chart/v2/util"
	"helm.sh/helm/v4/pkg/engine"
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
)

const testKubeVersion = "1.31.2"

// byHelm renders a chart with Helm's own engine.
func byHelm(files []*file, values map[string]any) (rendered map[string]string, err error) {
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	values, err = copyOf(values)
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependencies(c, values); err != nil {
		return nil, err
	}
	version, err := common.ParseKubeVersion(testKubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	release := common.ReleaseOptions{Name: "my-release", Namespace: "my-namespace", Revision: 1, IsInstall: true}
	top, err := util.ToRenderValuesWithSchemaValidation(c, values, release, capabilities, true)
	if err != nil {
		return nil, err
	}
	rendered, err = engine.Render(c, top)
	for name := range rendered {
		if strings.HasSuffix(name, notesFile) {
			delete(rendered, name)
		}
	}
	return rendered, err
}

func testOptions(values map[string]any) chart.Options {
	return chart.Options{ReleaseName: "my-release", Namespace: "my-namespace", Values: values, KubeVersion: testKubeVersion}
}

// templatesOf renders a chart here, before it is split.
func templatesOf(t *testing.T, c *Chart, values map[string]any) (map[string]string, error) {
	opts := testOptions(values)
	opts.MaxBytes = 64 << 20
	opts.WithoutSchema = true
	p, err := c.compose(opts)
	if err != nil {
		return nil, err
	}
	if _, err := p.reproducible(); err != nil {
		return nil, err
	}
	rendered, _, err := p.once(func(string) bool { return false })
	return rendered, err
}

// The charts with which Helm tests itself.
func TestHelmsOwnChartsRenderAsWithHelm(t *testing.T) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "helm.sh/helm/v4")
	out, err := cmd.Output()
	require.NoError(t, err)
	compareAll(t, strings.TrimSpace(string(out)), 40)
}

// compareAll renders all charts below a folder, here and with Helm.
func compareAll(t *testing.T, root string, atLeast int) {
	rendered := 0
	require.NoError(t, filepath.WalkDir(root, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		var c *Chart
		switch {
		case e.Name() == chartutil.ChartfileName:
			c, err = ReadFolder(os.DirFS(filepath.Dir(name)), ".")
		case strings.HasSuffix(name, ".tgz"):
			data, readErr := os.ReadFile(name)
			require.NoError(t, readErr)
			c, err = Read(bytes.NewReader(data))
		default:
			return nil
		}
		if err != nil {
			return nil //nolint:nilerr // it is meant to be broken
		}
		want, err := byHelm(c.files, nil)
		got, ownErr := templatesOf(t, c, nil)
		switch {
		case err != nil:
			require.Error(t, ownErr, "%s: %s", name, err)
		case ownErr != nil:
			t.Logf("%s: %s", strings.TrimPrefix(name, root), ownErr)
		default:
			require.Equal(t, want, got, name)
			rendered++
		}
		return nil
	}))
	t.Logf("%d charts are rendered alike", rendered)
	require.GreaterOrEqual(t, rendered, atLeast)
}

// Charts of our own: given.yaml has the values that go over those of the chart.
func TestChartsRenderAsWithHelm(t *testing.T) {
	cases, err := filepath.Glob("testdata/charts/*.txtar")
	require.NoError(t, err)
	require.Len(t, cases, 15)
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			require.NoError(t, err)
			files, values := map[string]string{}, map[string]any{}
			for _, f := range archive.Files {
				files[f.Name] = string(f.Data)
			}
			if given, ok := files["given.yaml"]; ok {
				values, err = chart.ParseValues([]byte(given))
				require.NoError(t, err)
			}
			c := chartWith(t, files)
			want, err := byHelm(c.files, values)
			require.NoError(t, err)
			got, err := templatesOf(t, c, values)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.NotEmpty(t, want)

			result, err := c.Render(testOptions(values))
			require.NoError(t, err)
			again, err := c.Render(testOptions(values))
			require.NoError(t, err)
			require.Equal(t, result, again)
			require.Equal(t, documentsByHelm(t, want), documentsOf(result))
		})
	}
}

// documentsByHelm lists what "helm template" prints, without CRDs and tests, in the order of paths.
func documentsByHelm(t *testing.T, rendered map[string]string) []string {
	t.Helper()
	hooks, manifests, err := releaseutil.SortManifests(rendered, nil, releaseutil.InstallOrder)
	require.NoError(t, err)
	var all []string
	for _, m := range manifests {
		if m.Head.Kind+m.Head.Version != "" || !strings.HasPrefix(m.Content, "#") {
			all = append(all, inside(m.Name)+"\n"+strings.TrimSpace(m.Content))
		}
	}
	for _, h := range hooks {
		all = append(all, inside(h.Path)+"\n"+strings.TrimSpace(h.Manifest))
	}
	slices.Sort(all)
	return all
}

func documentsOf(result *chart.Result) []string {
	var all []string
	for _, f := range result.Files {
		for _, text := range documents(string(f.Data)) {
			if !strings.HasPrefix(f.Path, "crds/") {
				all = append(all, f.Path+"\n"+strings.TrimSpace(text))
			}
		}
	}
	for _, h := range result.Hooks {
		all = append(all, h.Path+"\n"+strings.TrimSpace(string(h.Data)))
	}
	slices.Sort(all)
	return all
}

func TestAChartIsRenderedByManyAtOnce(t *testing.T) {
	c := chartWith(t, map[string]string{
		"values.yaml": "num: {x: 1}", "charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
		"charts/sub/templates/a.yaml": "a: {{ .Release.Name }}", "templates/a.yaml": "{{ $_ := set .Values.num \"x\" 2 }}a: {{ .Values.num.x }} {{ tpl \"{{ len (uuidv4) }}\" . }}",
	})
	var group errgroup.Group
	for range 8 {
		group.Go(func() error {
			result, err := c.Render(testOptions(nil))
			if err == nil && string(result.Files[1].Data) != "a: 2 36\n" {
				err = fmt.Errorf("got %s", result.Files[1].Data)
			}
			return err
		})
	}
	require.NoError(t, group.Wait())
}
