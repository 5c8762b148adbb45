package finding

import (
	"flag"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the table of docs/reference/findings.md")

// quotedCode finds a code in Go source.
var quotedCode = regexp.MustCompile(`"([EWN]1[0-9]{3})"`)

func TestEveryCodeIsExplainedAndListed(t *testing.T) {
	source, err := os.ReadFile("codes.go")
	require.NoError(t, err)
	var declared []string
	for _, match := range quotedCode.FindAllStringSubmatch(string(source), -1) {
		declared = append(declared, match[1])
	}
	var explained, rows []string
	for _, e := range Explanations() {
		explained = append(explained, e.Code)
		rows = append(rows, "| "+e.Code+" | "+e.Title+" |")
		require.NotEmpty(t, e.Title, e.Code)
		require.NotEmpty(t, e.Text, e.Code)
		require.NotEmpty(t, e.Remedy, e.Code)
	}
	require.ElementsMatch(t, declared, explained, "one explanation for each code")
	require.IsIncreasing(t, numbers(explained), "sorted by number")

	const page, head = "../../docs/reference/findings.md", "| code | |\n|-|-|\n"
	doc, err := os.ReadFile(page)
	require.NoError(t, err)
	before, table, found := strings.Cut(string(doc), head)
	require.True(t, found)
	if want := strings.Join(rows, "\n") + "\n"; *update && want != table {
		require.NoError(t, os.WriteFile(page, []byte(before+head+want), 0o644))
	} else {
		require.Equal(t, want, table, "docs/reference/findings.md; -update rewrites it")
	}
}

func numbers(codes []string) []string {
	all := make([]string, len(codes))
	for i, c := range codes {
		all[i] = c[1:]
	}
	return all
}

func TestCodesAreDeclaredHereAlone(t *testing.T) {
	for _, folder := range []string{"scheduler", "publisher", "cmd"} {
		root := os.DirFS("../../" + folder)
		require.NoError(t, fs.WalkDir(root, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || folder+"/"+name == "scheduler/finding/codes.go" {
				return err
			}
			source, err := fs.ReadFile(root, name)
			require.NotRegexp(t, quotedCode, string(source), "%s/%s", folder, name)
			return err
		}))
	}
}
