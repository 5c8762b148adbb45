package reconcilertest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	docs  = "../../docs/reference/engines.md"
	begin = "<!-- The table is made of the records: WHERRY_CONFORMANCE=write go test ./reconcilers/reconcilertest -->\n"
	end   = "<!-- end of the table -->\n"
)

// The table is the one of the records, each of which its adapter's own run compares with its outcome.
func TestTheTableIsThatOfTheRecords(t *testing.T) {
	files, err := filepath.Glob("../*/testdata/conformance.txt") // in order
	require.NoError(t, err)
	var columns []column
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		c, err := parseColumn(string(data))
		require.NoError(t, err, file)
		require.Equal(t, string(data), c.String(), file)
		require.Equal(t, filepath.Base(filepath.Dir(filepath.Dir(file))), c.Adapter)
		for i, cell := range c.Cells {
			require.Equal(t, cases[i].name, cell.Case, "%s is of an older suite: run the adapter's with %s=write", file, recordVariable)
		}
		require.Len(t, c.Cells, len(cases), file)
		columns = append(columns, c)
	}
	require.NotEmpty(t, columns)

	page, err := os.ReadFile(docs)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found, "%s lacks %q", docs, begin)
	old, after, found := strings.Cut(rest, end)
	require.True(t, found, "%s lacks %q", docs, end)
	if writes() {
		require.NoError(t, os.WriteFile(docs, []byte(before+begin+table(columns)+end+after), 0o644))
		return
	}
	require.Equal(t, table(columns), old, "%s=write writes it", recordVariable)
}

// CI has no zarf. The record of a run of "make e2e-zarf" is kept as real.txt, and docs/tested.md claims the suite only by a record of this one.
func TestTheRecordOfARealZarfIsOfThisSuite(t *testing.T) {
	page, err := os.ReadFile("../../docs/tested.md")
	require.NoError(t, err)
	row := regexp.MustCompile(`(?m)^\| Zarf \|.*$`).FindString(string(page))
	data, err := os.ReadFile("../zarf/testdata/real.txt")
	if errors.Is(err, fs.ErrNotExist) {
		require.Contains(t, row, "the conformance suite of then", "no record is kept")
		return
	}
	require.NoError(t, err)
	c, err := parseColumn(string(data))
	require.NoError(t, err)
	require.Len(t, c.Cells, len(cases), "the suite has changed: run make e2e-zarf, and keep dist/e2e/zarf-conformance.txt")
	for i, cell := range c.Cells {
		require.Equal(t, cases[i].name, cell.Case)
	}
	require.NotContains(t, row, "of then")
	require.Contains(t, row, strings.Fields(strings.TrimPrefix(c.On, "zarf "))[0])
}

func TestAColumnIsReadAsItWasWritten(t *testing.T) {
	c := column{Adapter: "directory", On: "a disk", Cells: []cell{{Apply, ""}, {Progress, "it is done: at once"}}}
	got, err := parseColumn(c.String())
	require.NoError(t, err)
	require.Equal(t, c, got)
	_, err = parseColumn("ok: a\nmaybe: b\n")
	require.ErrorContains(t, err, "maybe")
}

func TestWhatAnAdapterCannotHaveIsDeclared(t *testing.T) {
	start := func(*testing.T) Engine { return nil }
	for _, c := range []struct {
		name    string
		adapter string
		without map[Case]string
		err     string
	}{
		{"nothing", "kubernetes", nil, ""},
		{"a case, for a reason", "ansible", map[Case]string{Prune: "playbooks do not say what they brought"}, ""},
		{"a case, for no reason", "ansible", map[Case]string{Prune: " "}, "gives no reason"},
		{"a case that there is not", "ansible", map[Case]string{"flies": "no wings"}, `"flies", which there is not`},
		{"a case of an adapter that can have it", "flux", map[Case]string{Prune: "too hard"}, "flux can have every case"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Adapter{Name: c.adapter, On: "x", Start: start, Without: c.without}.check()
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
		})
	}
	require.Error(t, Adapter{Name: "flux"}.check())
}
