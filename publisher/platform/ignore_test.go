package platform

import (
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func TestAChartBesideAWorkloadIsNoPartOfThePlatform(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{
		"workload.yaml", "Chart.yaml", "values.yaml", "values-prod.yaml", "values.schema.json", "templates/a.yaml", "charts/b/templates/b.yaml", "crds/c.yaml", "config/d.yaml",
		"deploy/chart/Chart.yaml", "deploy/chart/templates/e.yaml", "deploy/f.yaml", "none/templates/g.yaml", "none/values.yaml",
	} {
		files[name] = &fstest.MapFile{}
	}
	var got []string
	require.NoError(t, fs.WalkDir(Ignoring(files), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			got = append(got, name)
		}
		return err
	}))
	require.Equal(t, []string{"config/d.yaml", "deploy/f.yaml", "none/templates/g.yaml", "none/values.yaml", "workload.yaml"}, got)
}
