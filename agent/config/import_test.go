package config

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/agent/intake"
)

func TestWhatIsStoredOfSitePackages(t *testing.T) {
	for _, tc := range []struct {
		name, file string
		want       intake.Options
	}{
		{"its own stream", "", intake.Options{}},
		{"with an endpoint, all of the platform", "serve: {address: ':5001'}\n", intake.Options{Others: true}},
		{"an endpoint for its own alone", "serve: {address: ':5001'}\nimport: {streams: own}\n", intake.Options{}},
		{"all without an endpoint, bounded", "import: {streams: platform, budget: 20GiB}\n", intake.Options{Others: true, Budget: 20 << 30}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := configured(t, tc.file)
			require.NoError(t, err)
			require.Equal(t, tc.want, c.intakeOptions())
		})
	}
	_, err := configured(t, "", "--import-streams", "all")
	require.ErrorContains(t, err, `unknown import streams "all" (known: own, platform)`)
	_, err = configured(t, "", "--import-budget", "little")
	require.ErrorContains(t, err, `"little" is not a size`)
}
