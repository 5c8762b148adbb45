package docs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReasonsAreReadFromEveryPage(t *testing.T) {
	topics := map[string]int{}
	for name, rows := range Reasons() {
		require.True(t, IsReason(name), name)
		for _, r := range rows {
			topics[r.Topic]++
			require.NotEmpty(t, r.Section, name)
			require.NotEmpty(t, r.Cells, name)
			for _, cell := range r.Cells {
				require.NotContains(t, cell[1], "`", name)
				require.NotContains(t, cell[1], "](", name)
			}
		}
	}
	require.Len(t, topics, len(reasonPages))
	require.False(t, IsReason("W1203"))
}
