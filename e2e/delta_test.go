//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// What "wherry publish" makes twice is what the agent takes: the second time a delta, in a process of its own, and
// nothing beside it.
func TestAnUpdateIsADelta(t *testing.T) {
	f := newWireBench(t)
	p := f.place(clusterType, "cosign.pub", "state")
	full := f.measure(func() { require.NotContains(t, f.once(p), "a delta was taken") })
	f.publish(1)
	update := f.measure(func() {
		require.Contains(t, f.once(p), `msg="a delta was taken in place of the layer"`)
	})
	t.Logf("first %+v, then %+v", full, update)
	require.Equal(t, int64(3), update.requests)
	require.Less(t, update.Down, full.Down/3)
	files, err := filepath.Glob(filepath.Join(p.applied(), "*service-000", "reconciler.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	changed, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.Contains(t, string(changed), "service-000:1.1.0")
}
