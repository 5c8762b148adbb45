package bundle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlatformsAreWrittenAsOCIDoes(t *testing.T) {
	for s, good := range map[string]bool{"linux/amd64": true, "linux/arm/v7": true, "linux": false, "": false, "linux/": false, "a/b/c/d": false, "Linux/amd64": false} {
		require.Equal(t, good, CheckPlatform(s) == nil, s)
	}
}
