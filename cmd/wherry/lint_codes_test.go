package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// codesIn lists the codes that stand in quotes in the sources of a package.
func codesIn(t *testing.T, folder string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var codes []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		data, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(`"([EWN]1[0-9]{3})"`).FindAllStringSubmatch(string(data), -1) {
			codes = append(codes, match[1])
		}
	}
	return codes
}

func TestEveryCodeIsExplainedAndListed(t *testing.T) {
	used := slices.Concat(codesIn(t, "../../scheduler"), codesIn(t, "../../publisher"), []string{codeUnreadSource})
	slices.SortFunc(used, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
	var explained, rows []string
	for _, c := range lintCodes {
		explained = append(explained, c.code)
		rows = append(rows, "| "+c.code+" | "+c.title+" |")
		require.NotEmpty(t, c.title, c.code)
		require.NotEmpty(t, c.text, c.code)
		require.NotEmpty(t, c.remedy, c.code)
	}
	require.Equal(t, slices.Compact(used), explained, "one explanation for each code, in the order of their numbers")

	doc, err := os.ReadFile("../../docs/lint.md")
	require.NoError(t, err)
	before, _, found := strings.Cut(string(doc), "## Codes")
	require.True(t, found)
	_, table, found := strings.Cut(string(doc), "| code | |\n|-|-|\n")
	require.True(t, found)
	if want := strings.Join(rows, "\n") + "\n"; *update && want != table {
		require.NoError(t, os.WriteFile("../../docs/lint.md", []byte(strings.TrimSuffix(string(doc), table)+want), 0o644))
	} else {
		require.Equal(t, want, table, "docs/lint.md; -update rewrites it")
	}
	require.NotContains(t, before, "| code | |")
}

func TestExplainCode(t *testing.T) {
	var out bytes.Buffer
	cmd := &cobra.Command{}
	cmd.SetOut(&out)
	require.NoError(t, explainCode(cmd, "w1202"))
	require.Equal(t, `W1202 (warning): a key that is read as a boolean

In YAML 1.1, which Kalypso reads values with, y, n, yes, no, on and off are booleans, also as keys:
y becomes true.

Example
  data:
    AXES: |
      x: 1
      y: 2          # rendered as true: 2

What to do
  Put the key in quotes: "y": 2.
`, out.String())
	require.EqualError(t, explainCode(cmd, "W9999"), `there is no code "W9999"`)
}
