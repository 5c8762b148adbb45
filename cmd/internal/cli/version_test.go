package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAVersionIsShortForServers(t *testing.T) {
	for version, want := range map[string]string{
		"v1.2.3":       "v1.2.3",
		"v1.2.3-rc.1":  "v1.2.3-rc.1",
		"(devel)":      "(devel)",
		"v1.2.3+dirty": "v1.2.3+dirty",
		"v0.0.0-20261122035811-aca199daaddb+dirty":      "aca199daaddb",
		"v1.2.4-0.20261122035811-aca199daaddb":          "aca199daaddb",
		"v1.2.4-rc.1.0.20261122035811-aca199daaddb":     "aca199daaddb",
		"v1.2.4-rc.1.0.20261122035811-aca199daaddb+x.y": "aca199daaddb",
	} {
		require.Equal(t, want, short(version))
	}
}
