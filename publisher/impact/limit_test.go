package impact

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLimits(t *testing.T) {
	f := &Facts{ClustersFrom: FromHub, Counts: Counts{Clusters: 30, ChangedClusters: 3, Added: 2, Removed: 1, Bytes: 70_000}}
	for text, want := range map[string]string{
		"added": "added: 2 assignments are added", "removed": "removed: 1 assignment is removed", "changed": "", "failed": "", "restarts": "",
		"clusters>3": "", "clusters>2": "clusters>2: 3 of 30 clusters would change", "clusters>0": "clusters>0: 3 of 30 clusters would change",
		"clusters>10%": "", "clusters>9%": "clusters>9%: 3 of 30 clusters would change",
		"bytes>64KiB": "bytes>64KiB: a cluster fetches up to 70000 bytes", "bytes>1MiB": "", "bytes>70000": "",
	} {
		l, err := ParseLimit(text)
		require.NoError(t, err, text)
		require.Equal(t, want, l.Exceeded(f), text)
	}
	for _, text := range []string{"", "clusters", "clusters>", "clusters>-1", "clusters>1KiB", "bytes>1%", "clusters > 1", "removed>1", "Removed"} {
		_, err := ParseLimit(text)
		require.EqualError(t, err, `unknown limit "`+text+`" (known: added, bytes>64KiB, changed, clusters>10, clusters>10%, failed, refused, removed, restarts)`)
	}
}

func TestALimitOfUnknownClustersIsExceeded(t *testing.T) {
	l, err := ParseLimit("clusters>10%")
	require.NoError(t, err)
	require.Empty(t, l.Exceeded(&Facts{}), "nothing changes")
	require.Equal(t, "clusters>10%: no roster and no hub says how many clusters there are", l.Exceeded(&Facts{Counts: Counts{Changed: 1}}))
}
