package reconcilers

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARepositoryHasTheNameOfItsAssignment(t *testing.T) {
	require.Equal(t, "assignments/shop-dev", ServedRepository("shop-dev"))
	for _, name := range []string{"Shop", "a..b", "-a", "a_", "", strings.Repeat("a", 129)} {
		require.Regexp(t, `^assignments/sha256-[0-9a-f]{32}$`, ServedRepository(name), name)
	}
}
