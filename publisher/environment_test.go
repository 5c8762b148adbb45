package publisher

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wherry-dev/wherry/published"
	"github.com/wherry-dev/wherry/publisher/garbage"
)

func TestAMistypedEnvironmentIsNotCleanedUpInSilence(t *testing.T) {
	w := newWorld(t, "embedded")
	require.Empty(t, w.collect(garbage.Options{Environment: "dev"}).Repositories, "the first time")
	w.publishes("one")
	w.mustPublish()
	_, err := garbage.Collect(t.Context(), w.loc, garbage.Options{Environment: "dve", OCI: w.opts.OCI})
	var lack *published.NoEnvironmentError
	require.ErrorAs(t, err, &lack)
	require.Equal(t, []string{"dev"}, lack.Others)
	require.NotEmpty(t, w.collect(garbage.Options{Environment: "dev"}).Repositories)
}
