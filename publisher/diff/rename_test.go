package diff

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRenamesNeedToBeAlike(t *testing.T) {
	lines := func(s string) map[string]int {
		count := map[string]int{}
		countLines(count, s, "web-a")
		return count
	}
	require.Zero(t, alike(nil, nil))
	require.InDelta(t, 1, alike(lines("name: web-a\nx\n"), lines("x\nname: web-a")), 0)
	require.InDelta(t, 0.5, alike(lines("x\ny\nz"), lines("x\ny\nv")), 0)
}
