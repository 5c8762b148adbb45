// Package workflows lints the examples of GitHub workflows with actionlint, which is in this module so that wherry's own does not
// get it.
package workflows

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/rhysd/actionlint"
	"github.com/stretchr/testify/require"
)

func TestTheExamplesOfWorkflows(t *testing.T) {
	files, err := filepath.Glob("../../examples/ci/github/*.yml")
	require.NoError(t, err)
	require.Len(t, files, 2)
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	require.NoError(t, err)
	for _, file := range files {
		found, err := linter.LintFile(file, nil)
		require.NoError(t, err)
		for _, mistake := range found {
			t.Errorf("%s", mistake)
		}
	}
}

func TestActionlintFindsMistakes(t *testing.T) {
	linter, err := actionlint.NewLinter(io.Discard, &actionlint.LinterOptions{})
	require.NoError(t, err)
	found, err := linter.Lint("x.yml", []byte("on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    step: []\n"), nil)
	require.NoError(t, err)
	require.NotEmpty(t, found)
}
