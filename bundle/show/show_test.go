package show

import (
	"strings"
	"testing"
	"time"

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

func TestNumbersAndTimesReadAsWords(t *testing.T) {
	require.Equal(t, "1 policy", Count(1, "policy"))
	require.Equal(t, "2 policies", Count(2, "policy"))
	require.Equal(t, "0 keys", Count(0, "key"))
	require.Equal(t, []string{"812 bytes", "12 KiB", "30 MiB", "12 GiB"}, []string{Size(812), Size(12 << 10), Size(30 << 20), Size(12 << 30)})
	require.Equal(t, "2026-11-23 03:30 UTC", Time(time.Date(2026, 11, 23, 4, 30, 59, 0, time.FixedZone("CET", 3600))))
}
