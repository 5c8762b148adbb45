package config

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who installs an agent finds each setting as a flag, or why it has none.
func TestASettingThatCannotBeInstalledIsExplained(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/install.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "have no flag here")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "A setting that is wanted all the same")
	for _, s := range Settings() {
		without := slices.Contains(here[:], s.Field)
		require.Equal(t, without, slices.ContainsFunc(strings.Split(table, "\n"), func(row string) bool {
			settings, _, _ := strings.Cut(strings.TrimPrefix(row, "|"), "|")
			return strings.Contains(settings, "`--"+s.Flag+"`")
		}), s.Flag)
	}
}
