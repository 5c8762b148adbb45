package show

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLongListsAndValuesAreShortened(t *testing.T) {
	require.Equal(t, "a, b and 2 more", List([]string{"a", "b", "c", "d"}, 2))
	long, multi, empty := strings.Repeat("é", 100), "a\nb", ""
	require.Equal(t, strings.Repeat("é", maxValue-1)+"…", Value(&long))
	require.Equal(t, `"a\nb"`, Value(&multi))
	require.Equal(t, `""`, Value(&empty))
	require.Equal(t, "none", Value(nil))
}
