package hubcmd

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBoundOfMemoryGrowsWithTheFleet(t *testing.T) {
	require.EqualValues(t, heapBound, boundFor(0))
	require.EqualValues(t, heapBound, boundFor(200<<20))
	require.EqualValues(t, 3<<30, boundFor(2<<30))
}
