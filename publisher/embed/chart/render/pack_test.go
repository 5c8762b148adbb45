package render

import (
	"bytes"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v4/pkg/chart/v2/loader"

	"github.com/wherry-dev/wherry/publisher/embed/chart"
)

func TestAPackedChartIsTheSame(t *testing.T) {
	c := chartWith(t, map[string]string{
		"templates/a.yaml": "a: {{ .Values.a }}{{ .Values.b }}", "values.yaml": "a: 1\nb: 1\n", "values-prod.yaml": "a: 2\n", "values-eu.yaml": "b: 3\n",
		"charts/sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n", "charts/sub/templates/b.yaml": "b: c\n",
	})
	packed, err := c.Pack()
	require.NoError(t, err)
	again, err := c.Pack()
	require.NoError(t, err)
	require.Equal(t, packed, again)
	name := t.TempDir() + "/web.tgz"
	require.NoError(t, os.WriteFile(name, packed, 0o600))
	byHelm, err := loader.LoadFile(name)
	require.NoError(t, err)
	require.Len(t, byHelm.Dependencies(), 1)

	read, err := Read(bytes.NewReader(packed))
	require.NoError(t, err)
	for _, c := range []*Chart{c, read} {
		result, err := c.Render(chart.Options{ReleaseName: "a"})
		require.NoError(t, err)
		require.Equal(t, "a: 11\n", string(result.Files[1].Data))
		prod, err := c.WithValuesFiles([]string{"values-prod.yaml", "values-eu.yaml"})
		require.NoError(t, err)
		result, err = prod.Render(chart.Options{ReleaseName: "a"})
		require.NoError(t, err)
		require.Equal(t, "a: 23\n", string(result.Files[1].Data))
	}
	_, err = c.WithValuesFiles([]string{"gone.yaml"})
	require.ErrorContains(t, err, "gone.yaml: the chart web has no such file of values")
	data, ok := c.File("values-eu.yaml")
	require.True(t, ok)
	require.Equal(t, "b: 3\n", string(data))
}
