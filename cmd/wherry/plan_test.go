package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/publisher/diff"
)

func TestThePageOnPlansShowsWhatTheScriptsPrint(t *testing.T) {
	page, err := os.ReadFile("../../docs/plan.md")
	require.NoError(t, err)
	shown := 0
	for _, script := range []string{"plan", "explain"} {
		archive, err := txtar.ParseFile("testdata/script/" + script + ".txtar")
		require.NoError(t, err)
		for _, f := range archive.Files {
			switch f.Name {
			case "want/plan.txt", "want/assignment.txt", "want/no-assignment.txt", "want/config.txt", "want/no-value.txt":
				require.Contains(t, string(page), strings.TrimSpace(string(f.Data)), f.Name)
				shown++
			}
		}
	}
	require.Equal(t, 5, shown)
}

func TestACommentIsBoundedAndCannotBeBrokenOutOf(t *testing.T) {
	d := &diff.Difference{Environment: "dev", Against: "a|b"}
	long := strings.Repeat("x", 2*maxValueShown)
	for i := range 2000 {
		evil := fmt.Sprintf("%d `|\n| @everyone <img src=x> [a](b) %s", i, long)
		d.ClusterTypes = append(d.ClusterTypes, diff.TypeDifference{
			ClusterType: fmt.Sprintf("type-%d", i), Result: diff.StandingChanged,
			Changes: []diff.AssignmentDifference{{Name: "web", Change: diff.ChangeChanged, Values: []diff.ValueDifference{{Key: "K", Old: &evil, New: &evil}}}},
			Failed:  []diff.FailedDifference{{Name: "db", Error: evil}},
		})
	}
	text := string(planMarkdown(d))
	require.Less(t, len(text), maxCommentBytes+1000)
	require.Contains(t, text, fmt.Sprintf("\n%d more lines are not shown; ", 3*(len(d.ClusterTypes)-maxCommentRows)))
	for line := range strings.Lines(text) {
		bars := strings.Count(line, "|") - strings.Count(line, `\|`)
		switch {
		case strings.HasPrefix(line, "| changed |"):
			require.Equal(t, 5, bars, line)
			require.Contains(t, line, " `` ", "the text stands between fences that are not in it")
		case strings.Contains(line, "/db`"):
			require.Equal(t, 3, bars, line)
			require.NotContains(t, line, "<img")
			require.NotContains(t, line, "@everyone")
		}
	}
}

func TestLongListsAndValuesAreShortened(t *testing.T) {
	require.Equal(t, "a, b and 2 more", namesShown([]string{"a", "b", "c", "d"}, 2))
	long, multi, empty := strings.Repeat("é", 100), "a\nb", ""
	require.Equal(t, strings.Repeat("é", maxValueShown-1)+"…", shown(&long))
	require.Equal(t, `"a\nb"`, shown(&multi))
	require.Equal(t, `""`, shown(&empty))
	require.Equal(t, "none", shown(nil))
}
