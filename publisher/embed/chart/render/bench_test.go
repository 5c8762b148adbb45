package render

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
)

// One rendering of a small chart, with what is done for each: reading its YAML, composing values, parsing templates.
func BenchmarkRender(b *testing.B) {
	for _, name := range []string{"includes", "subcharts", "defaults"} {
		data, err := os.ReadFile(filepath.Join("testdata/charts", name+".txtar"))
		require.NoError(b, err)
		dir := b.TempDir()
		for _, f := range txtar.Parse(data).Files {
			to := filepath.Join(dir, f.Name)
			require.NoError(b, os.MkdirAll(filepath.Dir(to), 0o755))
			require.NoError(b, os.WriteFile(to, f.Data, 0o600))
		}
		c, err := ReadFolder(os.DirFS(dir), ".")
		require.NoError(b, err)
		b.Run(strings.TrimSuffix(name, ".txtar"), func(b *testing.B) {
			for b.Loop() {
				_, err := c.Render(testOptions(nil))
				require.NoError(b, err)
			}
		})
	}
}
