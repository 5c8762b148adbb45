package show

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNearestWordIsFound(t *testing.T) {
	known := []string{"interval", "registry", "Registry", "reports", "ring"}
	for word, want := range map[string]string{
		"intervall": "interval", "itnerval": "interval", "REGISTRY": "Registry", "registy": "registry",
		"xyzzy": "", "": "", strings.Repeat("x", 100): "", "rng": "ring",
	} {
		require.Equal(t, want, Nearest(word, known), word)
	}
}
