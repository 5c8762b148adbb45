package chart

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

const testKubeVersion = "1.31.2"

// byHelm renders a chart with Helm's own engine.
func byHelm(files []*loader.BufferedFile, values map[string]any) (rendered map[string]string, err error) {
	c, err := loader.LoadFiles(files)
	if err != nil {
		return nil, err
	}
	values, err = copyOf(values)
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependenciesWithMerge(c, values); err != nil {
		return nil, err
	}
	version, err := chartutil.ParseKubeVersion(testKubeVersion)
	if err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	release := chartutil.ReleaseOptions{Name: "my-release", Namespace: "my-namespace", Revision: 1, IsInstall: true}
	top, err := chartutil.ToRenderValuesWithSchemaValidation(c, values, release, capabilities, true)
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

func testOptions(values map[string]any) Options {
	return Options{ReleaseName: "my-release", Namespace: "my-namespace", Values: values, KubeVersion: testKubeVersion}
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
	if _, err := p.reproducible(t.Context()); err != nil {
		return nil, err
	}
	rendered, _, err := p.once(t.Context(), func(string) bool { return false })
	return rendered, err
}

// The charts with which Helm tests itself.
func TestHelmsOwnChartsRenderAsWithHelm(t *testing.T) {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "helm.sh/helm/v3")
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
