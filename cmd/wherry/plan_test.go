package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
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
			case "want/plan.txt", "want/assignment.txt", "want/config.txt":
				require.Contains(t, string(page), strings.TrimSpace(string(f.Data)), f.Name)
				shown++
			}
		}
	}
	require.Equal(t, 3, shown)
}
